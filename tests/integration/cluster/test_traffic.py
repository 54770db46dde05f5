"""What is sent to the nodes, and what is left behind."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import LeaseLost
from leasehold.observe.events import Renewed
from leasehold.stores.redis.cluster.nodes import slot_of
from tests.support.parties import Step, mostly
from tests.support.redis.cluster import Company, acquiring, calls, observer, releasing, taking
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redis import RedisServer
from tests.support.sockets import open_sockets
from tests.support.waiting import until


def test_a_grant_is_pushed_to_its_waiter(company: Company) -> None:
    """Who waits sends its claim, and nothing until it has the lock: with a long ttl a beat comes every second."""
    holder, waiter = company.party(), company.party()
    node = company.node("job:1")
    lease = holder.do(acquiring("job:1", ttl=60))
    waiting = waiter.start(acquiring("job:1", ttl=60, wait=30))
    company.waiting("job:1", 1)
    before = calls(node, "evalsha", "eval")
    holder.do(releasing(lease))
    assert waiting.result(20).fence > lease.fence
    assert calls(node, "evalsha", "eval") - before <= 2  # the release, and at most one beat of the waiter
    assert calls(node, "spublish") == 1 and not sum(calls(one, "publish") for one in company.cluster.masters)


def test_handoffs_between_many_waiters_need_no_polling(company: Company) -> None:
    """A claim and a release each, and a push for every handoff, whichever node it is."""
    parties = [company.party() for _ in range(4)]
    for node in company.cluster.masters:
        name = company.resource_at(node)
        leases = [parties[0].do(acquiring(name, ttl=60))]
        waiting = []
        for number, party in enumerate(parties[1:]):
            waiting.append(party.within(taking(name, ttl=60, wait=30), lambda lease: None))
            company.waiting(name, number + 1)
        parties[0].do(releasing(leases[0]))
        for future in waiting:
            future.result(20)
        assert calls(node, "spublish") == len(waiting)


def test_an_evicted_holder_is_told_by_its_node(company: Company) -> None:
    """The push comes from the node of the lease, before a renewal would find out."""
    holder, operator = company.party(), company.party()
    names = [company.resource_at(node) for node in company.cluster.masters]
    leases = [holder.do(acquiring(name, ttl=600)) for name in names]
    for name, lease in zip(names, leases, strict=True):
        until(partial(listeners, company.node(name), 2), "the holder and its watchdog listen at this node")
        operator.do(evicting(name, lease))
        until(partial(is_lost, lease), "it is told")
        with pytest.raises(LeaseLost, match="evicted"):
            lease.check()


def evicting(name: str, lease: Any) -> Step:
    """Take a lease away at once."""
    return lambda hold: hold.evict(name, fence=lease.fence, reason="test", delay=0, force=True)


def is_lost(lease: Any) -> bool:
    """Whether its holder knows."""
    return bool(lease.state == "lost")


def channels(node: RedisServer) -> list[bytes]:
    """Of slots, with somebody who listens."""
    client: Any = node.client()
    found: list[bytes] = client.execute_command("PUBSUB", "SHARDCHANNELS", "lock:v1:push:*")
    return found


def listeners(node: RedisServer, count: int) -> bool:
    """Whether so many listen."""
    return len(channels(node)) >= count


class Renewals:
    """Counts, as an observer, how often each lease was renewed."""

    def __init__(self) -> None:
        self._counts: Counter[int | None] = Counter()

    def __call__(self, event: Any) -> None:
        """Note it."""
        if isinstance(event, Renewed):
            self._counts[event.lease.fence] += 1

    def all(self, leases: list[Any], times: int) -> bool:
        """Whether each of these was renewed so often."""
        return all(self._counts[lease.fence] >= times for lease in leases)


@mostly("sync")
def test_renewals_are_batched_by_node(flavour: str) -> None:
    """One request for each node and round, whatever the number of leases: it is read at once, and has a command for
    each slot."""
    with RedisCluster() as cluster:  # a replica would send requests of its own
        company, renewals = Company(flavour, cluster), Renewals()
        party = company.party(observers=[renewals])
        leases = [party.do(acquiring(f"job:{at}", ttl=2)) for at in range(60)]
        until(lambda: renewals.all(leases, 1), "all are renewed, and the watchdog is connected")
        before = [(reads(node), calls(node, "evalsha")) for node in cluster.masters]
        until(lambda: renewals.all(leases, 3), "all are renewed again and again")
        for node, (requests, commands) in zip(cluster.masters, before, strict=True):
            assert calls(node, "evalsha") - commands >= 3 * (reads(node) - requests)
        for lease in leases:
            lease.check()
        company.close()


def reads(node: RedisServer) -> int:
    """How often a node has read from a client."""
    found: Any = observer(node).info("stats")
    return int(found["total_reads_processed"])


@mostly("asyncio", "company")
def test_leases_of_one_slot_are_one_command(company: Company) -> None:
    """Twelve leases in three slots, each on another node: three commands for a round. On a busy machine it can take
    longer to acquire them than a renewal may come early, and then they would fall into two rounds: the first round
    waits until all are due."""
    renewals = Renewals()
    party = company.party(observers=[renewals])
    watchdog = party.hold._engine.watchdog
    watchdog.pause()
    slots = [company.slot(company.resource_at(node)) for node in company.cluster.masters]
    names = [name for slot in slots for name in names_in(slot, 4)]
    leases = [party.do(acquiring(name, ttl=3)) for name in names]
    until(lambda: leases[-1].remaining() < 1.4, "all are due: a third of the ttl is over, and work must stop after 5/6")
    watchdog.pause(False)
    until(lambda: renewals.all(leases, 1), "all are renewed, and every node knows the script")
    before = [(calls(node, "evalsha"), calls(node, "pexpire")) for node in company.cluster.masters]
    until(lambda: renewals.all(leases, 3), "all are renewed again and again")
    for node, (commands, renewed) in zip(company.cluster.masters, before, strict=True):
        assert calls(node, "pexpire") - renewed >= 3 * (calls(node, "evalsha") - commands) > 0


def names_in(slot: int, count: int) -> list[str]:
    """Resources in one slot."""
    every = map("job:{}".format, range(1_000_000))
    return list(islice((name for name in every if slot_of(f"{{{name}}}") == slot), count))


def test_a_channel_whose_slot_moves_is_replaced(company: Company) -> None:
    """The waiter takes a new channel, and grants go on reaching it."""
    holder, waiter = company.party(), company.party()
    node = company.node("job:1")
    seen = set()
    for _ in range(3):
        lease = holder.do(acquiring("job:1", ttl=60))
        waiting = waiter.within(taking("job:1", ttl=60, wait=30), lambda lease: lease.fence)
        company.waiting("job:1", 1)
        holder.do(releasing(lease))
        assert waiting.result(20) > lease.fence
        slots = {slot_of(name) for name in channels(node)}
        assert slots and company.slot("job:1") not in slots
        seen |= slots
        for slot in slots:
            company.cluster.move(slot, node, company.other("job:1"))
    assert len(seen) >= 3 and calls(node, "spublish") >= 3


def test_nothing_is_left(company: Company) -> None:
    """No keys without an end, no sockets, no threads."""
    before, sockets = (threads(), descriptors()), open_sockets()
    party = company.party()
    for number in range(12):
        lease = party.do(acquiring(f"job:{number}", ttl=5))
        party.do(releasing(lease))
    kept = party.do(acquiring("job:1", ttl=5))
    company.close()
    assert kept.state == "lost"
    until(lambda: open_sockets() <= sockets, "all sockets are closed")
    company._parties.clear()
    assert all(left > 0 for _, left in company.stored_keys())
    until(lambda: threads() <= before[0] and descriptors() <= before[1], "all threads and polls are gone")
    for node in company.cluster.nodes:
        until(partial(is_left, node), "no connection is left")


def is_left(node: RedisServer) -> bool:
    """Nobody is connected for pushes."""
    client: Any = node.client()
    return not client.client_list(_type="pubsub")


def threads() -> int:
    """Those of this process."""
    return threading.active_count()


def descriptors() -> int:
    """The polls of this process: each watchdog has one for all nodes."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        try:
            found += str(path.readlink()) == "anon_inode:[eventpoll]"
        except FileNotFoundError:
            continue
    return found
