"""Several members: one that is down, frozen or cut off costs a part of the time, and the next call begins elsewhere."""

from __future__ import annotations

import socket
import time

from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.record.requests import Change, Look, Part, Record
from tests.integration.etcd.flavours import (
    Connect,
    Perform,
    in_thread,
    join,
    look,
    mostly_asyncio,
    mostly_threads,
    owners,
    write,
)
from tests.support.servers.etcd import EtcdEnsemble, EtcdServer
from tests.support.servers.syncs import stalled_disk
from tests.support.waiting import until

BUDGET = 2.0  # seconds for a call that a hanging member costs half of


def persist(perform: Perform, *arguments: object) -> object:
    """Repeat what has certainly not been done, until it is: an election may take a while."""

    def attempt() -> object:
        reply = perform(*arguments, seconds=BUDGET)
        return None if isinstance(reply, StoreUnavailable) else reply

    return until(attempt, "it is done")


def test_the_first_one_is_down(etcd: EtcdServer, connect: Connect, perform: Perform) -> None:
    """The next one is asked, and is the first from then on."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        records = connect(etcd.url_at(nobody.getsockname()[1], etcd.port))
        assert perform(records, Change((Part("a", 0, "one"),))).done
        assert records._gateway.first.port == etcd.port
        assert perform(records, Look(("a",))).records[0].text == "one"


def test_all_are_down(connect: Connect, perform: Perform) -> None:
    """Nothing was done."""
    with socket.socket() as one, socket.socket() as two:
        for place in (one, two):
            place.bind(("127.0.0.1", 0))
        ports = [place.getsockname()[1] for place in (one, two)]
        records = connect(f"etcd://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}")
        assert isinstance(perform(records, Change((Part("a", 0, "one"),))), StoreUnavailable)


@mostly_threads
def test_the_first_one_hangs(etcd: EtcdServer, connect: Connect, perform: Perform) -> None:
    """A look goes on at the next one; a change that was sent is unknown, and the next one goes elsewhere."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = etcd.url_at(deaf.getsockname()[1], etcd.port)
        records = connect(url)
        assert perform(records, Look(("a",)), seconds=BUDGET).records == (Record("a"),)
        assert records._gateway.first.port == etcd.port
        records = connect(url)
        begun = time.monotonic()
        assert isinstance(perform(records, Change((Part("a", 0, "one"),)), seconds=BUDGET), OutcomeUnknown)
        assert time.monotonic() - begun < BUDGET
        assert perform(records, Change((Part("a", 0, "one"),))).done


@mostly_threads
def test_the_leader_is_killed(ensemble: EtcdEnsemble, connect: Connect, perform: Perform) -> None:
    """What was confirmed is there, and the next leader takes changes."""
    leader = ensemble.leader()
    records = connect(ensemble.url_from(leader))
    first = write(records, "a", "one")
    leader.kill()
    seen = persist(perform, records, Look(("a",)))
    assert seen.records[0].text == "one"  # type: ignore[attr-defined]
    ensemble.leader()
    assert persist(perform, records, Change((Part("a", first.revision, "two"),))).done  # type: ignore[attr-defined]


@mostly_asyncio
def test_the_leader_is_frozen(ensemble: EtcdEnsemble, connect: Connect, perform: Perform) -> None:
    """The others elect another one; its streams and connections hang, and are left."""
    leader = ensemble.leader()
    records = connect(ensemble.url_from(leader))
    first = write(records, "a", "one")
    leader.freeze()
    seen = persist(perform, records, Look(("a",)))
    assert seen.records[0].text == "one"  # type: ignore[attr-defined]
    ensemble.leader()
    assert persist(perform, records, Change((Part("a", first.revision, "two"),))).done  # type: ignore[attr-defined]
    leader.thaw()
    assert look(records, "a").text == "two"


def test_a_leader_that_is_cut_off_confirms_nothing(ensemble: EtcdEnsemble, connect: Connect) -> None:
    """A change that is sent to it alone is unknown, and a look there fails: it cannot know what the others do."""
    leader = ensemble.leader()
    records = connect(ensemble.url_from(leader))
    alone = connect(leader.url)
    first = write(records, "a", "one")
    ensemble.cut_off(leader)
    assert isinstance(in_thread(alone, Change((Part("a", first.revision, "alone"),)), seconds=0.7), OutcomeUnknown)
    assert isinstance(in_thread(alone, Look(("a",)), seconds=0.7), StoreUnavailable)
    others = [member for member in ensemble.members if member is not leader]
    until(lambda: ensemble.leader() is not leader, "the others have a leader")
    elsewhere = connect(ensemble.url_from(*others))
    second = write(elsewhere, "a", "two", first.revision)
    ensemble.heal()
    until(lambda: not isinstance(in_thread(alone, Look(("a",)), seconds=1.5), StoreUnavailable), "it is one of them")
    assert look(alone, "a") == second._replace(places=())


def test_a_place_lives_through_a_failover(ensemble: EtcdEnsemble, connect: Connect, short_lease: int) -> None:
    """The lease is kept alive by whichever member answers."""
    leader = ensemble.leader()
    records = connect(ensemble.url_from(leader))
    join(records, "a", "me")
    leader.kill()
    ensemble.leader()
    time.sleep(short_lease + 0.6)  # the next leader gives each lease its whole time again
    assert until(lambda: in_thread(records, Look(("a",))).records, "it answers")
    assert owners(records, "a") == ["me"]


@mostly_threads
def test_all_members_restart(ensemble: EtcdEnsemble, connect: Connect, perform: Perform) -> None:
    """Records and places are there afterwards, at the same revisions."""
    records = connect(ensemble.url)
    first = write(records, "a", "one")
    ensemble.kill_all()
    assert isinstance(perform(records, Look(("a",)), seconds=BUDGET), StoreUnavailable)
    ensemble.start_all()
    ensemble.leader()
    seen = persist(perform, records, Look(("a",)))
    assert seen.records[0].revision == first.revision  # type: ignore[attr-defined]


def test_a_disk_that_stalls(ensemble: EtcdEnsemble, connect: Connect) -> None:
    """A change that the leader cannot write in time is unknown, and done at most once."""
    leader = ensemble.leader()
    records = connect(leader.url)
    first = write(records, "a", "one")
    with stalled_disk(leader, 2.0):
        unknown = in_thread(records, Change((Part("a", first.revision, "two"),)), seconds=1.0)
    assert isinstance(unknown, OutcomeUnknown)
    in_thread(records, Change((Part("a", first.revision, "two"),)))  # refused, if the first one was done
    row = ensemble.leader().keys()["leasehold/r/a"]
    assert (row["value"], row["version"]) == ("two", "2")
