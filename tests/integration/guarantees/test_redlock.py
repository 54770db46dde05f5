"""What Redlock promises: each cell of its column, on five masters.

Most faults are shown in the schedule that needs only one of them: the first holder has the votes of A, B and C, the
fault happens to C, and then a second client reaches C, D and E. It has a majority if C has forgotten its vote, and
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import leasehold
from leasehold import StoreUnavailable
from leasehold._core.guarantee_table import TABLE
from leasehold.stores.redis.protocol import keys
from leasehold.stores.redis.redlock.commands import MARKER
from tests.integration.guarantees.faults import HOUR, backup, evict, grow_old, power_failure, reach, set_clocks
from tests.support.guarantees import (
    LONG,
    RESOURCE,
    Writer,
    claim,
    show,
    show_a_frozen_holder,
    show_a_killed_holder,
)
from tests.support.servers.redlock import RedlockNode, RedlockServers
from tests.support.waiting import until

SHORT = 1.5  # seconds: what is waited for is the end of this lease


@pytest.fixture
def new_nodes() -> Iterator[RedlockServers]:
    """Five of the test's own: one that was started while its clock was off never looks as old as it is."""
    with RedlockServers(5) as servers:
        yield servers


@pytest.fixture
def nodes(new_nodes: RedlockServers) -> RedlockServers:
    """Five that count."""
    return grow_old(new_nodes)


@pytest.fixture
def with_files(request: pytest.FixtureRequest) -> Iterator[RedlockServers]:
    """Five that count and write a log, with the appendfsync of the parameter."""
    with RedlockServers(5, "--appendfsync", request.param, appendonly=True) as servers:
        yield grow_old(servers)


def show_vote(event: str, servers: RedlockServers, happens: Callable[[RedlockNode], object]) -> None:
    """A, B and C have granted a lease; ``happens(C)``; then a second client reaches C, D and E."""
    cell, data = TABLE["redlock"][event], Writer()
    with leasehold.connect(servers.url) as first, leasehold.connect(servers.url) as second:
        reach(servers, 0, 1, 2)
        old = claim(first, ttl=LONG if cell.exclusion == "lost" else SHORT, renew=False).lease
        assert data.write(old)
        happens(servers.nodes[2])
        reach(servers, 2, 3, 4)
        if cell.exclusion == "lost":
            new = claim(second, ttl=LONG, renew=False).lease
            assert new.remaining() > 0 < old.remaining(), "exclusion was not lost: two holders were expected"
        else:
            assert not granted(second), "two hold it at the same time"
            reach(servers, *range(5))
            new, at = claim(second, ttl=LONG)
            assert at >= old.deadline, "two held it at the same time"
        reach(servers, *range(5))
        assert new.fence > old.fence and data.write(new) and not data.write(old)
    data.judge(cell)


def granted(hold: leasehold.Leasehold, ttl: float = LONG) -> bool:
    """Whether one try gets the lease. Without a majority of nodes that count it is an error, and nothing is taken."""
    try:
        return hold.lock(RESOURCE, ttl=ttl).try_acquire() is not None
    except StoreUnavailable:
        return False


# ---------------------------------------------------------------- holders


def test_a_killed_holder(nodes: RedlockServers) -> None:
    """The next is granted when the ttl is over on a majority."""
    show_a_killed_holder("redlock", nodes.url)


def test_pause_in_flight(nodes: RedlockServers) -> None:
    """A holder is paused past its ttl, with a write still to be sent: the next one holds by then, the guard refuses."""
    show_a_frozen_holder("redlock", nodes.url)


# ---------------------------------------------------------------- nodes that cannot be reached


def test_a_minority_stands_still_and_goes_on(nodes: RedlockServers) -> None:
    """The others are enough: the lease is renewed, and handed on. On a busy machine a claim may not reach every node in
    time: those that do not have the lease are no loss."""
    frozen: list[RedlockNode] = []

    def freeze() -> None:
        frozen.extend(sorted(nodes.nodes, key=lambda node: int(node.server.client().exists(keys(RESOURCE)[0])))[:2])
        for node in frozen:
            node.server.freeze()

    def thaw() -> None:
        for node in frozen:
            node.server.thaw()

    show("redlock", "server_pause", nodes.url, freeze, thaw)


def test_a_minority_is_cut_off_and_healed(nodes: RedlockServers) -> None:
    """Clients that reach two nodes of five are granted nothing, and a holder among them stops in time."""
    show("redlock", "partition", nodes.url, lambda: reach(nodes, 0, 1), lambda: reach(nodes, *range(5)))


# ---------------------------------------------------------------- a node that forgets


def test_restart_without_persistence(nodes: RedlockServers) -> None:
    """The node is empty, and does not count."""
    show_vote("crash_none", nodes, lambda node: node.restart(keep=False))


def test_restart_between_two_snapshots(nodes: RedlockServers) -> None:
    """The node lacks the lease, and does not count."""
    nodes.nodes[2].server.client().save()
    show_vote("crash_snapshot", nodes, lambda node: node.restart())


@pytest.mark.parametrize("with_files", ["everysec"], indirect=True)
def test_restart_under_appendfsync_everysec(with_files: RedlockServers) -> None:
    """The node lacks what was not on its disk, and does not count."""
    fail = power_failure(with_files.nodes[2].server)
    show_vote("crash_everysec", with_files, lambda _: fail())


@pytest.mark.parametrize("with_files", ["always"], indirect=True)
def test_restart_under_appendfsync_always(with_files: RedlockServers) -> None:
    """The node has the lease, and does not count all the same: nobody knows what it has lost."""
    show_vote("crash_always", with_files, lambda node: node.restart())


def test_flushall_on_one_node_and_on_all(nodes: RedlockServers) -> None:
    """A node without its marker does not count; when all are flushed, nothing is granted."""
    show_vote("flush", nodes, lambda node: node.flush())
    for node in nodes.nodes:
        node.flush()
    with leasehold.connect(nodes.url) as hold:
        assert not granted(hold)


def test_a_backup_of_one_node_is_put_back(nodes: RedlockServers, tmp_path: Path) -> None:
    """The node lacks the lease, and does not count, because it was started again for it."""
    put_back = backup(nodes.nodes[2].server, tmp_path)
    show_vote("restore", nodes, lambda _: put_back())


def test_one_node_evicts_a_lease(nodes: RedlockServers) -> None:
    """Nobody can see that it has: it gives its vote again, and there are two holders."""
    show_vote("eviction", nodes, lambda node: evict(node.server))


def test_one_node_evicts_its_marker_too(nodes: RedlockServers) -> None:
    """With allkeys-random any key may go. A node without its marker does not count, whatever else it has lost; while
    this is so for a majority, nothing is granted."""
    data = Writer()
    with leasehold.connect(nodes.url) as first, leasehold.connect(nodes.url) as second:
        reach(nodes, 0, 1, 2)
        old = claim(first, ttl=LONG, renew=False).lease
        assert data.write(old)
        evict(nodes.nodes[2].server, RESOURCE, "allkeys-random", MARKER)
        reach(nodes, 2, 3, 4)
        with pytest.raises(StoreUnavailable, match="it was flushed or set up"):
            second.lock(RESOURCE, ttl=LONG).try_acquire()
        reach(nodes, *range(5))
        old.release()
        new = claim(second, ttl=LONG, renew=False).lease
        assert data.write(new) and not data.write(old)
        for node in nodes.nodes[:2]:
            evict(node.server, RESOURCE, "allkeys-random", MARKER)
        assert not granted(first)
    data.no_stale_write()


# ---------------------------------------------------------------- clocks


def test_the_clock_of_one_node_jumps_forward(nodes: RedlockServers) -> None:
    """Its lease ends there. When the clock is right again, nobody can see it, and there are two holders."""

    def jump(node: RedlockNode) -> None:
        client = node.server.client()
        node.clock.set_off(HOUR + LONG + 1)
        until(lambda: not client.exists(keys(RESOURCE)[0]), "the lease has ended there")
        node.clock.set_off(HOUR)

    show_vote("clock_forward", nodes, jump)


def test_the_clock_of_one_node_jumps_back(nodes: RedlockServers) -> None:
    """Its lease lasts longer there, and it does not count."""
    show_vote("clock_back", nodes, lambda node: node.clock.set_off(HOUR - 60))


def test_all_nodes_are_wiped_while_their_clocks_are_behind(new_nodes: RedlockServers) -> None:
    """Nothing is granted for the longest ttl. Then fences are lower than before, and guards refuse them."""
    data, url = Writer(), f"{new_nodes.url}?max_ttl=1s"
    cell = TABLE["redlock"]["clock_back_and_loss"]
    with leasehold.connect(url) as first, leasehold.connect(url) as second:
        set_clocks(new_nodes, HOUR)
        old = claim(first, ttl=0.9).lease
        assert data.write(old)
        set_clocks(new_nodes, 0)
        for node in new_nodes.nodes:
            node.flush()
        assert not granted(second, 0.9)
        until(lambda: old.remaining() <= 0, "the first has stopped")
        new = claim(second, ttl=0.9).lease
        assert old.state == "lost" and new.fence < old.fence and not data.write(new)
        new.release()
        assert data.write(claim(second, ttl=0.9).lease)
    data.no_stale_write()
    assert cell[:3] == ("refused", "lost", "holds")
