"""The schedules of the Redlock debate, each with and without a guard: what the store prevents, and what only a guard
does."""

from __future__ import annotations

import time
from typing import Any

import pytest

from leasehold import LeaseLost, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.memory import FenceGuard
from tests.integration.redlock.stage import Stage, acquire, age, aged, restart_aged
from tests.support.parties import mostly
from tests.support.servers.redlock import RedlockServers
from tests.support.waiting import until

pytestmark = pytest.mark.slow


class Record:
    """What is written under the lock. With a guard, only what the guard lets through."""

    def __init__(self, guarded: bool) -> None:
        self._guard = FenceGuard() if guarded else None
        self.fences: list[int] = []

    def write(self, lease: Any) -> None:
        """It has its fence from its holder, whatever that holder believes by now."""
        if self._guard is not None:
            self._guard.check(lease.fence, resource="job", owner=lease.owner)
        self.fences.append(lease.fence)

    def is_stale(self) -> bool:
        """An older fence was written after a newer one."""
        return self.fences != sorted(self.fences)


def write_late(record: Record, first: Any, second: Any) -> None:
    """The second holder writes, then the first, who still believes."""
    record.write(second)
    try:
        record.write(first)
    except StaleOwner:
        pass


def extend(party: Any, lease: Any) -> None:
    """Again, while it is in doubt: connections to nodes that have just restarted break."""

    def extended() -> bool:
        try:
            party.do(lambda _: lease.extend(20))
        except OutcomeUnknown:
            return False
        return True

    until(extended, "a majority confirms it")


def granted(party: Any, **options: Any) -> Any:
    """One try: the lease, or None, also when a busy machine took too long."""
    try:
        return acquire(party, **options)
    except StoreUnavailable:
        return None


@pytest.mark.parametrize("guarded", [False, True], ids=["without_guard", "with_guard"])
def test_clock_jumps_forward_on_one_node_and_is_set_right(five: Stage, guarded: bool) -> None:
    """The first holds A, B, C. The clock of C jumps, so that its lease ends there, and is set right again: nobody can
    see that. The second gets C, D, E. Both believe; the guard refuses the first."""
    one, two, record = five.party(), five.party(), Record(guarded)
    five.only(0, 1, 2)
    first = acquire(one)
    five.nodes[2].clock.set_off(60)
    until(lambda: not five.owners()[2], "the lease has ended on C")
    five.nodes[2].clock.set_off(0)
    five.only(2, 3, 4)
    second = acquire(two)
    assert first.state == second.state == "held" and second.fence > first.fence
    write_late(record, first, second)
    assert record.is_stale() is not guarded


@mostly("sync", "five")
def test_clock_jumps_by_less_than_half_a_second(five: Stage) -> None:
    """Nobody can call such a clock wrong, so C counts, and the lease of the first ends there a little too soon: for
    that long both believe. A machine that is too busy to see it tries again."""
    one, two = five.party(), five.party()

    def both_believe() -> bool:
        five.only(0, 1, 2)
        first = granted(one, ttl=2, renew=False)
        if first is None:
            return False
        five.nodes[2].clock.set_off(0.45)
        five.only(2, 3, 4)
        second: Any = None
        while second is None and first.state == "held":
            second = granted(two, ttl=2, renew=False)
        seen = second is not None and first.state == "held"
        five.nodes[2].clock.set_off(0)
        until(lambda: first.state == "lost" and (second is None or second.state == "lost"), "both are over")
        assert not seen or second.fence > first.fence
        return seen

    until(both_believe, "the second holds while the first still believes")


def test_clock_that_is_still_off_does_not_count(five: Stage) -> None:
    """The same, while the clock of C is ahead: the second finds only D and E, and is refused."""
    one, two = five.party(), five.party()
    five.only(0, 1, 2)
    acquire(one)
    five.nodes[2].clock.set_off(60)
    until(lambda: not five.owners()[2], "the lease has ended on C")
    five.only(2, 3, 4)
    with pytest.raises(StoreUnavailable, match=r"its clock is \+\d+\.\d s off the median"):
        acquire(two)
    until(lambda: five.owners()[2:] == [False] * 3, "the second has left nothing behind")


def test_restart_without_data_does_not_count(five: Stage) -> None:
    """The first holds A, B, C. C restarts without its data, and the second reaches C, D, E: C grants, and does not
    count, because it may lack leases."""
    one, two = five.party(), five.party()
    five.only(0, 1, 2)
    first = acquire(one)
    five.nodes[2].restart(keep=False)
    five.only(2, 3, 4)
    with pytest.raises(StoreUnavailable, match="ago and may lack leases; it counts again in"):
        acquire(two)
    assert first.state == "held"


@pytest.mark.parametrize("guarded", [False, True], ids=["without_guard", "with_guard"])
def test_restart_without_data_that_looks_old(five: Stage, guarded: bool) -> None:
    """The same, but C lies about its age: its clock was an hour behind when it started, and its marker is from a
    backup. Both believe; the guard refuses the first."""
    one, two, record = five.party(), five.party(), Record(guarded)
    five.only(0, 1, 2)
    first = acquire(one)
    restart_aged(five.nodes[2], keep=False)
    age(five.nodes[2])
    five.only(2, 3, 4)
    second = acquire(two)
    assert first.state == second.state == "held" and second.fence > first.fence
    write_late(record, first, second)
    assert record.is_stale() is not guarded


@mostly("sync", "three")
@pytest.mark.parametrize("guarded", [False, True], ids=["without_guard", "with_guard"])
def test_pause_while_a_write_is_in_flight(three: Stage, guarded: bool) -> None:
    """The first checks its lease and is paused with its write in flight, beyond the ttl. The second gets the lease and
    writes. Then the write of the first arrives."""
    one, two, record = three.party(), three.party(), Record(guarded)
    connected = acquire(one)  # a lease of half a second leaves no time for that
    one.do(lambda _: connected.release())
    three.nothing_left()
    first = until(lambda: granted(one, ttl=1.5, renew=False), "a majority replies in time")
    first.check()
    until(lambda: first.remaining() <= 0, "the lease is over")
    second = two.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=10))
    assert second.fence > first.fence
    write_late(record, first, second)
    assert record.is_stale() is not guarded
    with pytest.raises(LeaseLost):
        first.check()


@pytest.mark.parametrize("fsync", ["always", "everysec", "none"])
@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_kill_9_of_one_node(fsync: str, flavour: str) -> None:
    """With any persistence: the holder keeps its lease on the other two, nobody else gets it, and the node does not
    count for a while, because nobody knows what it has lost."""
    options = ("--appendfsync", fsync) if fsync != "none" else ()
    with aged(RedlockServers(3, *options, appendonly=fsync != "none")) as servers:
        stage = Stage(servers, flavour)
        one, two = stage.party(), stage.party()
        lease = acquire(one)
        time.sleep(0.05)  # an append-only file is written in the next turn of the server's loop
        stage.nodes[0].restart()
        assert stage.owners()[0] is (fsync != "none")
        assert acquire(two) is None
        extend(one, lease)
        assert one.do(lambda _: lease.release()) is True
        stage.nothing_left()
        stage.nodes[1].cut_off()
        with pytest.raises(StoreUnavailable, match="it was started"):
            acquire(two)
        stage.close()


@pytest.mark.parametrize("fsync", ["always", "none"])
@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_kill_9_of_a_majority(fsync: str, flavour: str) -> None:
    """With its data a node confirms the lease that it still has, and grants nothing new; without, the lease is lost."""
    options = ("--appendfsync", fsync) if fsync != "none" else ()
    with aged(RedlockServers(3, *options, appendonly=fsync != "none")) as servers:
        stage = Stage(servers, flavour)
        one, two = stage.party(), stage.party()
        lease = acquire(one)
        for node in stage.nodes[:2]:
            node.restart()
        if fsync == "always":
            extend(one, lease)
            assert lease.state == "held"
        else:
            with pytest.raises(LeaseLost):
                extend(one, lease)
        with pytest.raises(StoreUnavailable, match="2 of 3 Redlock nodes do not count"):
            acquire(two)
        stage.close()


def test_flushall_on_one_node(three: Stage) -> None:
    """The holder keeps its lease, and the node counts for nobody for a while."""
    one, two = three.party(), three.party()
    lease = acquire(one)
    three.nodes[0].flush()
    assert two.do(lambda hold: hold.lock("job").try_acquire()) is None
    extend(one, lease)
    assert lease.state == "held"
    assert one.do(lambda _: lease.release()) is True
    three.nothing_left()
    three.nodes[1].cut_off()
    with pytest.raises(StoreUnavailable, match=r"it was flushed or set up \d+ s ago; it counts again in \d+\.\d s"):
        acquire(two)
    three.nothing_left()


@mostly("asyncio", "three")
def test_flushall_on_all_nodes(three: Stage) -> None:
    """The lease is lost at its next renewal, nobody gets it before max_ttl is over, and fences keep growing."""
    one, two = three.party("?max_ttl=1"), three.party("?max_ttl=1")
    lease = acquire(one, ttl=0.9)
    for node in three.nodes:
        node.flush()
    until(lambda: lease.state == "lost", "the holder learns of it")
    with pytest.raises(StoreUnavailable, match="3 of 3 Redlock nodes do not count"):
        acquire(two, ttl=0.9)

    def again() -> Any:
        try:
            return acquire(two, ttl=0.9)
        except StoreUnavailable:
            return None

    assert until(again, "the nodes count again").fence > lease.fence
