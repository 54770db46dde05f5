"""What a turn requests, on a real server: looks, changes, lists and news, on threads and on event loops."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from leasehold import InvalidRequest
from leasehold.stores.record.requests import ANY, Change, Join, List, Look, Part, Place, Tell
from leasehold.stores.zookeeper.changes import MOST_PARTS
from tests.integration.zookeeper.party import Calls, Party
from tests.support.waiting import until

Joining = Callable[..., Party]
NAMES = ["plain", "jobs:nightly/2026", ".", "..", "zookeeper", "a b", "ünïcode", "-", "%41", "x" * 400]


def test_there_is_none(party: Party) -> None:
    """A tree that nobody has made is made, and is empty."""
    record = party.look("a")
    assert (record.text, record.revision, record.places) == (None, 0, ())


def test_a_record_is_made_changed_and_removed(party: Party) -> None:
    """Each change tells the new revision, which a look shows as well."""
    made = party.change(Part("a", 0, "one"))
    assert (made.done, made.records[0].text) == (True, "one")
    assert party.look("a").revision == made.records[0].revision
    changed = party.change(Part("a", made.records[0].revision, "two"))
    assert party.look("a")[:3] == ("a", "two", changed.records[0].revision)
    assert changed.records[0].revision != made.records[0].revision
    assert party.change(Part("a", changed.records[0].revision, "")).done
    assert party.look("a").revision == 0


def test_names_of_all_sorts(party: Party) -> None:
    """Each is a record of its own, and is listed by its name."""
    assert party.change(*[Part(name, 0, f"text of {name}") for name in NAMES]).done
    sight = party.one(Look(tuple(NAMES)))
    assert [record.text for record in sight.records] == [f"text of {name}" for name in NAMES]
    listed = party.one(List("", 100))
    assert sorted(record.resource for record in listed.records) == sorted(NAMES)
    assert listed.cursor == ""


def test_a_stale_revision_is_refused(party: Party, join: Joining) -> None:
    """Nothing is changed, and the records that come with the refusal are fresh."""
    old = party.write("a", "one")
    new = join().write("a", "two")
    outcome = party.change(Part("a", old.revision, "three"))
    assert not outcome.done
    assert outcome.records[0][:3] == ("a", "two", new.revision)
    assert not party.change(Part("a", 0, "three")).done
    assert party.look("a").text == "two"


def test_all_parts_or_none(party: Party, join: Joining) -> None:
    """One that is refused undoes the others, and all are shown as they are."""
    one, two = party.write("one", "1"), party.write("two", "2")
    join().write("two", "2b")
    refused = party.change(Part("one", one.revision, "x"), Part("two", two.revision, "x"), Part("three", 0, "x"))
    assert not refused.done
    assert [record.text for record in refused.records] == ["1", "2b", None]
    assert [record.text for record in party.one(Look(("one", "two", "three"))).records] == ["1", "2b", None]
    again = [Part(record.resource, record.revision, "x") for record in refused.records]
    assert party.change(*again).done


def test_a_condition_without_a_change(party: Party, join: Joining) -> None:
    """A part may only require that a record is what it was, or that there is none."""
    kept = party.write("kept", "1")
    parts = (Part("kept", kept.revision), Part("none", 0), Part("new", 0, "x"))
    assert party.change(*parts).done
    assert party.look("kept").revision == kept.revision
    assert party.look("none").revision == 0
    join().write("kept", "2")
    assert not party.change(*parts).done


def test_a_record_that_was_made_again(party: Party, join: Joining) -> None:
    """Its version begins anew at ZooKeeper. Whoever knows it from before is refused all the same (trap 2)."""
    old = party.write("a", "free")
    old = party.write("a", "free again")  # version 1
    other = join()
    assert other.change(Part("a", other.look("a").revision, "")).done
    other.write("a", "held")
    new = other.write("a", "held, renewed")  # version 1 again
    assert new.revision != old.revision
    outcome = party.change(Part("a", old.revision, "taken"))
    assert not outcome.done
    assert party.look("a").text == "held, renewed"
    assert party.change(Part("a", outcome.records[0].revision, "taken")).done


def test_removals_of_neighbours(party: Party) -> None:
    """Records of one bucket are removed and changed together."""
    from leasehold.stores.zookeeper.names import bucket

    same = [name for name in map(str, range(5000)) if bucket(name) == "00"][:3]
    first, second, third = [party.write(name, "x") for name in same]
    gone = [Part(record.resource, record.revision, "") for record in (first, second)]
    assert party.change(*gone, Part(third.resource, third.revision, "y")).done
    latest = party.look(third.resource)
    assert latest.text == "y"
    assert party.change(Part(third.resource, latest.revision, "z")).done


def test_a_batch(party: Party) -> None:
    """Each has its own reply: one that is refused is no trouble for the others."""
    party.write("held", "x")
    answers = party.perform(
        Change((Part("a", 0, "1"),)), Change((Part("held", 0, "1"),)), Look(("a",)), List("", 10), Tell("nobody", "x")
    )
    assert [answers[0].done, answers[1].done, answers[4]] == [True, False, False]
    many = party.perform(*[Change((Part(f"many {number}", 0, "x"),)) for number in range(300)])
    assert all(answer.done for answer in many)


def test_the_most_parts(party: Party) -> None:
    """They are one transaction, also when their texts are long. One part more is refused before anything is sent."""
    parts = [Part(f"part {number}", 0, "x" * 12_000) for number in range(MOST_PARTS)]
    assert party.change(*parts).done
    with pytest.raises(InvalidRequest, match="at most 60 parts"):
        party.change(*parts, Part("more", 0, "x"))


def test_a_list_in_pages(party: Party) -> None:
    """Each record comes once, whatever the pages."""
    party.perform(*[Change((Part(f"r{number}", 0, str(number)),)) for number in range(40)])
    found: list[str] = []
    cursor = ""
    for _ in range(100):
        listed = party.one(List(cursor, 7))
        assert len(listed.records) <= 7
        found += [record.resource for record in listed.records]
        cursor = listed.cursor
        if not cursor:
            break
    assert sorted(found) == sorted(f"r{number}" for number in range(40))
    record = party.one(List("", 100)).records[0]
    assert party.change(Part(record.resource, record.revision, "from the list")).done


def test_brief_lists(party: Party) -> None:
    """They begin anywhere, and each goes on where the last one has ended."""
    party.perform(*[Change((Part(f"r{number}", 0, str(number)),)) for number in range(40)])
    found: set[str] = set()

    def all_found() -> bool:
        cursor = ""
        for _ in range(100):
            listed = party.one(List(cursor, 7, brief=True))
            assert len(listed.records) <= 7
            found.update(record.resource for record in listed.records)
            cursor = listed.cursor
            if not cursor:
                break
        return len(found) == 40

    until(all_found, "all are found")


def test_a_list_shows_what_is_unreadable(party: Party) -> None:
    """A node that somebody else has made."""
    party.write("a", "x")
    names = party.server._tree.names
    client = party.server._session._client
    assert client is not None
    client.create(f"{names.records}/00/not%2ours")
    listed = party.one(List("", 10))
    assert listed.unreadable == ("not%2ours",)
    assert [record.resource for record in listed.records] == ["a"]


# ---------------------------------------------------------------- places


def test_places_in_their_order(party: Party, join: Joining) -> None:
    """Whoever joins comes last; each knows its own."""
    other = join()
    first, second, third = party.wait_in("a", "one"), other.wait_in("a", "two"), party.wait_in("a", "three")
    record = party.look("a", texts=True)
    assert record.places is not None
    assert [(place.owner, place.ours, place.text) for place in record.places] == [
        ("one", True, "text of one"),
        ("two", False, "text of two"),
        ("three", True, "text of three"),
    ]
    assert first.number < second.number < third.number
    assert [place.ours for place in other.look("a").places or ()] == [False, True, False]


def test_a_join_makes_the_record(party: Party) -> None:
    """There was none: both are made, or nothing is."""
    outcome = party.change(Part("a", 0, "flag", join=Join("me", "text")))
    assert outcome.done
    assert [place.owner for place in outcome.records[0].places or ()] == ["me"]
    assert not party.change(Part("a", 0, "flag", join=Join("you", "text"))).done
    assert [place.owner for place in party.look("a").places or ()] == ["me"]


def test_the_first_place_is_taken(party: Party, join: Joining) -> None:
    """It goes with the change. When it is gone already, nothing is changed."""
    mine = party.wait_in("a", "me")
    join().wait_in("a", "you")
    record = party.look("a")
    done = party.change(Part("a", record.revision, "granted", first=mine))
    assert done.done
    assert [place.owner for place in party.look("a").places or ()] == ["you"]
    again = party.change(Part("a", done.records[0].revision, "granted twice", first=mine))
    assert not again.done
    assert party.look("a").text == "granted"


def test_a_place_behind_another(party: Party, join: Joining) -> None:
    """Only that place is told. If the other one is gone, none is made, and all is told."""
    first = join().wait_in("a", "first")
    outcome = party.change(Part("a", ANY, join=Join("me", "text", behind=first)))
    assert outcome.done
    record, (place,) = outcome.records[0], outcome.records[0].places or ()
    assert (place.owner, place.ours, record.revision) == ("me", True, ANY)
    now = party.look("a")
    assert [one.owner for one in now.places or ()] == ["first", "me"]
    assert (now.places or ())[1] == place and now.queue == record.queue
    assert party.change(Part("a", ANY, leave=(first,))).done
    refused = party.change(Part("a", ANY, join=Join("late", "text", behind=first)))
    assert not refused.done
    assert refused.records[0].places == (place,)


def test_places_that_are_gone_do_not_matter(party: Party, join: Joining) -> None:
    """``leave`` removes those that are still there."""
    mine, yours = party.wait_in("a", "me"), join().wait_in("a", "you")
    gone = Place("x", 99, "x-0000000000000001-0000000099", False)
    also_gone = Place("y", 98, "y-0000000000000001-0000000098", False)
    record = party.look("a")
    assert party.change(Part("a", record.revision, "left", leave=(gone, mine, also_gone, yours))).done
    assert party.look("a").places == ()


def test_a_record_with_places_is_not_removed(party: Party) -> None:
    """The places would go with it."""
    place = party.wait_in("a", "me")
    record = party.look("a")
    refused = party.change(Part("a", record.revision, ""))
    assert not refused.done
    assert refused.records[0].places == (place,)
    assert party.change(Part("a", record.revision, "", leave=(place,))).done
    assert party.look("a").revision == 0


def test_a_place_that_was_made_twice(party: Party) -> None:
    """The reply to a join was lost, and it was repeated: the later place goes away by itself."""
    first = party.wait_in("a", "me")
    record = party.look("a")
    outcome = party.change(Part("a", record.revision, "again", join=Join("me", "text")))
    assert outcome.records[0].places == (first,)

    def children() -> list[str]:
        client = party.server._session._client
        assert client is not None
        return list(client.get_children(party.server._tree.names.record("a")))

    until(lambda: sorted(children()) == sorted([first.key, "q"]), "the second is removed")


# ---------------------------------------------------------------- watches and news


def test_a_watch_on_a_record(party: Party, join: Joining) -> None:
    """It fires once, when the record is changed, removed or made; several on one record each do."""
    other, calls = join(), [Calls() for _ in range(3)]
    record = party.write("a", "one")
    for one in calls:
        party.server.watch_record(record, one)
    latest = other.write("a", "two")
    for one in calls:
        one.wait()
    removed, made = Calls(), Calls()
    party.server.watch_record(party.look("a"), removed)
    assert other.change(Part("a", latest.revision, "")).done
    removed.wait()
    party.server.watch_record(party.look("a"), made)
    other.write("a", "three")
    made.wait()
    told = [[getattr(one, "text", None) for one in calls.got] for calls in (*calls, removed, made)]
    assert told == [["two"], ["two"], ["two"], [None], ["three"]], "each learns what it is now"


def test_a_watch_for_what_was_changed_before(party: Party, join: Joining) -> None:
    """Between the look and the watch: it fires at once. So does one for a record that there is by now."""
    record, none = party.write("a", "one"), party.look("b")
    other = join()
    other.write("a", "two")
    other.write("b", "two")
    late, made = Calls(), Calls()
    party.server.watch_record(record, late)
    party.server.watch_record(none, made)
    late.wait()
    made.wait()


def test_a_watch_for_an_older_revision_beside_a_set_one(party: Party) -> None:
    """The watch that is set is not fired by it."""
    old = party.write("a", "one")
    new = party.write("a", "two")
    stays, fires = Calls(), Calls()
    party.server.watch_record(new, stays)
    party.look("a")  # the watch is set by now
    party.server.watch_record(old, fires)
    fires.wait()
    assert stays.got == []
    party.write("a", "three")
    stays.wait()


def test_a_watch_that_is_closed(party: Party) -> None:
    """Nothing is kept of it."""
    record, calls = party.write("a", "one"), Calls()
    watch = party.server.watch_record(record, calls)
    party.look("a")
    watch.close()
    watch.close()
    assert party.server._watches.nodes == {}
    party.write("a", "two")
    party.look("a")
    assert calls.got == []


def test_a_watch_on_a_place(party: Party, join: Joining) -> None:
    """It fires when the place is gone, and at once when it is gone already; not when the record is changed."""
    other = join()
    place = other.wait_in("a", "other")
    assert party.look("a").places == (place._replace(ours=False),)
    calls, late = Calls(), Calls()
    party.server.watch_place("a", place, calls)
    party.write("a", "changed")
    party.look("a")
    assert calls.got == []
    other.server.close()
    calls.wait()
    party.server.watch_place("a", place, late)
    late.wait()
    now = party.look("a")._replace(queue=0)
    assert (calls.got, late.got) == ([now], [now]), "with the places"


def test_news(party: Party, join: Joining) -> None:
    """All texts come, in their order, to whoever listens there."""
    other, heard = join(), Calls()
    hearing = party.server.hear("coordinator 7", heard)
    party.look("a")
    for number in range(30):
        assert other.one(Tell("coordinator 7", f"text {number}"))
    heard.wait(30)
    assert heard.got == [f"text {number}" for number in range(30)]
    hearing.close()
    party.look("a")
    assert other.one(Tell("coordinator 7", "anybody?")) is False
    assert other.one(Tell("coordinator 8", "anybody?")) is False


def test_news_before_the_first_request(join: Joining) -> None:
    """Whoever listens first makes no tree, and is heard as soon as there is one."""
    party, heard = join(), Calls()
    party.server.hear("me", heard)
    party.look("a")
    until(lambda: party.one(Tell("me", "hello")), "somebody listens")
    heard.wait()
    assert heard.got == ["hello"]


def test_the_servers_clock(party: Party) -> None:
    """It is known from the first request on, within what this machine shows."""
    party.look("a")
    assert party.server._session._wall_us
    assert abs(party.server.wall_us() / 1e6 - time.time()) < 5
