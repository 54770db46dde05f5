"""What a turn requests, on a real etcd: all or nothing, conditional on every revision, and who waits."""

from __future__ import annotations

import pytest

from leasehold.stores.etcd.server import MANY, EtcdRecords
from leasehold.stores.etcd.transactions import MOST_PARTS
from leasehold.stores.record.requests import Change, Join, List, Listed, Look, Part, Record, Tell
from tests.integration.etcd.flavours import Connect, Perform, in_thread, join, look, owners, write
from tests.support.servers.etcd import EtcdServer, encoded
from tests.support.waiting import until


def test_a_resource_that_nobody_has_used(records: EtcdRecords, perform: Perform) -> None:
    """It has no record, no revision and no places."""
    assert perform(records, Look(("a", "space/b"))).records == (Record("a"), Record("space/b"))


def test_a_record_is_made_changed_and_removed(records: EtcdRecords, perform: Perform) -> None:
    """Each on condition of the revision that the one before has made."""
    made = perform(records, Change((Part("a", 0, "one ☃", nobody_waits=True),)))
    assert made.done and made.records[0].text == "one ☃"
    changed = perform(records, Change((Part("a", made.records[0].revision, "two"),)))
    assert changed.done and changed.records[0].revision > made.records[0].revision
    assert look(records, "a") == changed.records[0]._replace(places=())
    removed = perform(records, Change((Part("a", changed.records[0].revision, ""),)))
    assert removed.done and removed.records == (Record("a", places=None),)
    assert look(records, "a") == Record("a")


def test_a_change_of_an_old_revision_changes_nothing(records: EtcdRecords, perform: Perform) -> None:
    """It is refused, with the record as it is."""
    old = write(records, "a", "one")
    new = write(records, "a", "two", old.revision)
    for revision in (0, old.revision, new.revision + 1):
        refused = perform(records, Change((Part("a", revision, "three"),)))
        assert not refused.done and refused.records == (new._replace(places=()),)
    assert look(records, "a").text == "two"


def test_somebody_comes_after_we_were_alone(etcd: EtcdServer, connect: Connect, perform: Perform) -> None:
    """A change that expects nobody is refused all the same, with the record and its places as they are."""
    records, others = connect(etcd.url), connect(etcd.url)
    last = write(records, "a", "0")
    for number in range(1, MANY + 2):
        last = write(records, "a", f"{number}", last.revision)
    place = join(others, "a", "other")._replace(ours=False)
    refused = perform(records, Change((Part("a", last.revision, "mine", nobody_waits=True),)))
    assert not refused.done and refused.records == (last._replace(places=(place,)),)
    theirs = write(others, "a", "theirs", last.revision)
    refused = perform(records, Change((Part("a", last.revision, "mine"),)))
    assert not refused.done and refused.records == (theirs._replace(places=(place,)),)
    assert perform(records, Change((Part("a", theirs.revision, "mine"),))).done


def test_all_parts_or_none(records: EtcdRecords, perform: Perform) -> None:
    """One part whose condition does not hold refuses all, and the reply has each record as it is."""
    first = write(records, "a", "one")
    refused = perform(records, Change((Part("a", first.revision, "two"), Part("b", 7, "two"))))
    assert not refused.done and refused.records == (first._replace(places=()), Record("b"))
    done = perform(records, Change((Part("a", first.revision, "two"), Part("b", 0, "two"))))
    assert done.done and [record.text for record in done.records] == ["two", "two"]
    assert len({record.revision for record in done.records}) == 1


def test_a_part_that_only_compares(records: EtcdRecords, perform: Perform) -> None:
    """Without a text the record stays, and its revision too."""
    first = write(records, "a", "one")
    parts = (Part("a", first.revision), Part("b", 0), Part("c", 0, "new"))
    done = perform(records, Change(parts))
    assert done.done and done.records[:2] == (first, Record("b", places=None))
    assert not perform(records, Change((Part("c", 0), Part("b", 0, "new")))).done
    assert look(records, "b") == Record("b")


def test_places_are_in_the_order_of_their_arrival(records: EtcdRecords, perform: Perform) -> None:
    """The reply to a join has all places, the new one last; their texts come when they are requested."""
    first = write(records, "a", "held")
    for owner in ("zz", "mm", "aa"):
        joined = perform(records, Change((Part("a", first.revision, join=Join(owner, f"I am {owner}")),)))
        assert joined.done and joined.records[0].places[-1].owner == owner and joined.records[0].text == "held"
        assert joined.records[0].revision == first.revision
    seen = perform(records, Look(("a",), texts=True)).records[0].places
    assert [(place.owner, place.text, place.ours) for place in seen] == [
        ("zz", "I am zz", True),
        ("mm", "I am mm", True),
        ("aa", "I am aa", True),
    ]
    assert sorted(place.number for place in seen) == [place.number for place in seen]
    assert [place.text for place in look(records, "a").places or ()] == ["", "", ""]


def test_a_join_is_conditional_on_the_record_and_on_the_owner(records: EtcdRecords, perform: Perform) -> None:
    """Neither a record that moved on nor a second place of one owner."""
    first = write(records, "a", "held")
    assert not perform(records, Change((Part("a", first.revision - 1, join=Join("me", "")),))).done
    assert perform(records, Change((Part("a", first.revision, join=Join("me", "")),))).done
    again = perform(records, Change((Part("a", first.revision, join=Join("me", "")),)))
    assert not again.done and [place.owner for place in again.records[0].places] == ["me"]


def test_a_change_on_condition_that_nobody_waits(records: EtcdRecords, perform: Perform) -> None:
    """It is refused as long as somebody does, and says who."""
    first = write(records, "a", "free")
    place = join(records, "a", "me")
    refused = perform(records, Change((Part("a", first.revision, "mine", nobody_waits=True),)))
    assert not refused.done and refused.records[0].places == (place,)
    assert perform(records, Change((Part("a", first.revision, leave=(place,)),))).done
    assert perform(records, Change((Part("a", first.revision, "mine", nobody_waits=True),))).done


def test_only_the_first_takes(records: EtcdRecords, perform: Perform) -> None:
    """A change on condition that a place is the first removes it; one that is not, or is gone, is refused."""
    first = write(records, "a", "free")
    one, two = join(records, "a", "one"), join(records, "a", "two")
    assert not perform(records, Change((Part("a", first.revision, "two's", first=two),))).done
    taken = perform(records, Change((Part("a", first.revision, "one's", first=one),)))
    assert taken.done and owners(records, "a") == ["two"]
    revision = taken.records[0].revision
    assert not perform(records, Change((Part("a", revision, "again", first=one),))).done
    assert perform(records, Change((Part("a", revision, "two's", first=two),))).done


def test_a_place_that_was_made_again_is_another_one(records: EtcdRecords) -> None:
    """It has the same key and another number: the old one counts no more."""
    first = write(records, "a", "free")
    old = join(records, "a", "me")
    in_thread(records, Change((Part("a", first.revision, leave=(old,)),)))
    new = join(records, "a", "me")
    assert new.key == old.key and new.number > old.number
    assert not in_thread(records, Change((Part("a", first.revision, "mine", first=old),))).done
    assert in_thread(records, Change((Part("a", first.revision, "mine", first=new),))).done


def test_places_that_are_gone_already_do_not_matter(records: EtcdRecords, perform: Perform) -> None:
    """A change removes those that are there."""
    first = write(records, "a", "held")
    places = (join(records, "a", "one"), join(records, "a", "two"))
    assert perform(records, Change((Part("a", first.revision, leave=places[:1]),))).done
    assert perform(records, Change((Part("a", first.revision, "other", leave=places),))).done
    assert owners(records, "a") == []


def test_names_that_begin_alike(records: EtcdRecords) -> None:
    """No place of one resource is in the queue of another, whatever their names are."""
    names = ["a", "a/b", "a/w", "a:b", "a0", "r", "w", "n", "w/a", "a%2Fb", "a/b:c"]
    for name in names:
        join(records, name, f"waits-for-{name.replace('/', '-')}")
    for name in names:
        assert owners(records, name) == [f"waits-for-{name.replace('/', '-')}"]
        write(records, name, f"record of {name}")
    listed = in_thread(records, List("", 100))
    assert {record.resource: record.text for record in listed.records} == {name: f"record of {name}" for name in names}


def test_records_are_listed_in_pages(records: EtcdRecords, etcd: EtcdServer, perform: Perform) -> None:
    """Each page begins behind the one before; places are not records; what is no name of ours is shown apart."""
    for number in range(7):
        write(records, f"space/k:{number}", str(number))
    join(records, "space/k:3", "me")
    etcd.put("leasehold/r/x//y", "of somebody else")
    pages: list[Listed] = [perform(records, List("", 3))]
    while pages[-1].cursor:
        pages.append(perform(records, List(pages[-1].cursor, 3)))
    assert [len(page.records) for page in pages] == [3, 3, 1]
    assert [record.text for page in pages for record in page.records] == [str(number) for number in range(7)]
    assert [page.unreadable for page in pages] == [(), (), ("x//y",)]


def test_other_prefixes_are_other_stores(etcd: EtcdServer, connect: Connect) -> None:
    """Nothing of one is seen in the other, not even when one's name begins like the other's."""
    one, two = (connect(etcd.url_at(etcd.port, prefix=prefix)) for prefix in ("app", "app/b"))
    write(one, "a", "one")
    write(two, "a", "two")
    assert look(one, "a").text == "one"
    for records in (one, two):
        assert [record.resource for record in in_thread(records, List("", 10)).records] == ["a"]


def test_as_many_parts_as_it_says(records: EtcdRecords, perform: Perform) -> None:
    """With the conditions that a claim of several has, and the one place of the resource that it waited for."""
    place = join(records, "r0", "me")
    parts = [Part(f"r{number}", 0, "mine", nobody_waits=number > 0) for number in range(MOST_PARTS)]
    assert not perform(records, Change((*parts[:-1], parts[-1]._replace(revision=1)))).done
    assert perform(records, Change((parts[0]._replace(first=place), *parts[1:]))).done
    seen = perform(records, Look(tuple(part.resource for part in parts)))
    assert all(record.text == "mine" and record.places == () for record in seen.records)


# ---------------------------------------------------------------- several at once


def test_requests_that_are_sent_together_decide_alone(records: EtcdRecords, perform: Perform) -> None:
    """Each has its own reply: one that is refused refuses no other."""
    first = write(records, "a", "one")
    bad, good, seen, joined, told = perform(
        records,
        Change((Part("a", 0, "two"),)),
        Change((Part("b", 0, "two"),)),
        Look(("c", "d")),
        Change((Part("e", 0, join=Join("me", "")),)),
        Tell("nobody", "hello"),
    )
    assert not bad.done and bad.records == (first._replace(places=()),)
    assert good.done and good.records == (look(records, "b")._replace(places=None),)
    assert [record.resource for record in seen.records] == ["c", "d"]
    assert joined.done and joined.records[0].places[0].ours
    assert told is False


def test_many_at_once(records: EtcdRecords, perform: Perform) -> None:
    """More than one transaction takes; reads among them, and pages of a list."""
    made = perform(records, *(Change((Part(f"k:{number:03}", 0, "x" * 20_000),)) for number in range(150)))
    assert all(outcome.done for outcome in made)
    *seen, listed = perform(records, *(Look((f"k:{number:03}",)) for number in range(150)), List("", 5))
    assert [sight.records[0].revision for sight in seen] == [outcome.records[0].revision for outcome in made]
    assert len(listed.records) == 5


def test_many_reads_at_once_are_no_write(records: EtcdRecords, etcd: EtcdServer) -> None:
    """etcd appends nothing to its log for them."""
    write(records, "a", "one")
    before = etcd.call("maintenance/status", {})["raftIndex"]
    in_thread(records, *(Look((f"k:{number}", "a")) for number in range(40)))
    assert etcd.call("maintenance/status", {})["raftIndex"] == before


def test_one_resource_twice_at_once(records: EtcdRecords, perform: Perform) -> None:
    """They are carried out one after the other, in their order: etcd writes a key only once in a transaction."""
    first = write(records, "a", "one")
    done, refused, seen = perform(
        records,
        Change((Part("a", first.revision, "two"),)),
        Change((Part("a", first.revision, "three"),)),
        Look(("a",)),
    )
    assert done.done and not refused.done
    assert refused.records == seen.records == (done.records[0]._replace(places=()),)


# ---------------------------------------------------------------- news


def test_whoever_listens_is_told(records: EtcdRecords, etcd: EtcdServer, connect: Connect, perform: Perform) -> None:
    """Every text arrives, in its order, from any process; after the end nobody listens."""
    heard: list[str] = []
    hearing = records.hear("process-7", heard.append)
    other = connect(etcd.url)
    assert until(lambda: perform(other, Tell("process-7", "0")), "it is told")
    for number in range(1, 5):
        assert perform(other, Tell("process-7", f"{number} ☃"))
    assert not perform(other, Tell("process-8", "5"))
    until(lambda: len(heard) == 5, "all have arrived")
    assert [text[0] for text in heard] == list("01234")
    hearing.close()
    until(lambda: not perform(other, Tell("process-7", "6")), "nobody listens")
    assert len(heard) == 5


def test_damaged_records_are_shown(records: EtcdRecords, etcd: EtcdServer) -> None:
    """What somebody else wrote in the place of a record is a text, however bad it is."""
    etcd.call("kv/put", {"key": encoded("leasehold/r/a"), "value": "/////w=="})
    etcd.put("leasehold/r/b", "")
    assert look(records, "a").text and look(records, "a").revision
    assert look(records, "b").text == "" and look(records, "b").revision


@pytest.mark.parametrize("size", [1000, 100_000])
def test_long_texts(records: EtcdRecords, perform: Perform, size: int) -> None:
    """Replies of any length are read: short ones at once, long ones in chunks."""
    text = "é" * size
    assert perform(records, Change((Part("a", 0, text),))).done
    assert perform(records, Look(("a", "b"))).records[0].text == text
