"""Nodes that die, hang, and hand over while locks are held and waited for."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from leasehold.coordinator import Leasehold
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.observe.events import NotRenewed
from leasehold.stores.redis.cluster.store import ClusterStore
from tests.support.parties import mostly
from tests.support.redis.cluster import Company, acquiring, calls, releasing
from tests.support.servers.cluster import RedisCluster
from tests.support.waiting import until


@mostly("asyncio", "company")
def test_a_lease_outlives_the_death_of_its_node(company: Company) -> None:
    """Its replica has the record: it is renewed there, and released."""
    party = company.party()
    lease = party.do(acquiring("job:1", ttl=9))
    node = company.node("job:1")
    company.replicated(node)
    promoted = company.cluster.kill(node)
    assert promoted is not node
    before = calls(promoted, "pexpire")
    until(lambda: calls(promoted, "pexpire") > before, "it is renewed at the replica that took over")
    lease.check()
    assert party.do(releasing(lease))
    assert party.do(acquiring("job:1")).fence > lease.fence


@mostly("sync", "company")
def test_a_waiter_outlives_the_death_of_the_node(company: Company) -> None:
    """It keeps its place, or queues again, and gets the lock from the replica."""
    holder, waiter = company.party(), company.party()
    lease = holder.do(acquiring("job:1", ttl=12))
    waiting = waiter.start(acquiring("job:1", wait=60))
    company.waiting("job:1", 1)
    node = company.node("job:1")
    company.replicated(node)
    company.cluster.kill(node)

    def released() -> bool:
        try:
            return bool(holder.do(releasing(lease)))
        except LeaseholdError:
            return False

    until(released, "it is given back to the replica")
    assert waiting.result(60).fence > lease.fence


@mostly("asyncio", "company")
def test_a_failover_in_peace(company: Company) -> None:
    """The master becomes a replica and says MOVED: nothing is lost, and nobody notices."""
    holder, waiter = company.party(), company.party()
    lease = holder.do(acquiring("job:1", ttl=30))
    waiting = waiter.start(acquiring("job:1", wait=60))
    company.waiting("job:1", 1)
    company.cluster.failover(company.node("job:1"))
    assert holder.do(releasing(lease))
    assert waiting.result(60).fence > lease.fence


def test_a_slot_without_a_node_is_a_definite_no(company: Company) -> None:
    """CLUSTERDOWN: nothing was taken, and it goes on when the slot is served again."""
    party = company.party()
    lease = party.do(acquiring("job:1"))
    party.do(releasing(lease))
    slot, node = company.slot("job:1"), company.node("job:1")
    for master in company.cluster.masters:
        company.cluster.say(master, f"CLUSTER DELSLOTS {slot}")
    try:
        with pytest.raises(StoreUnavailable):
            party.do(acquiring("job:1", wait=0))
    finally:
        company.cluster.say(node, f"CLUSTER ADDSLOTS {slot}")
        company.cluster.settle()
    assert party.do(acquiring("job:1")).fence > lease.fence


@mostly("sync", "company")
def test_a_node_that_stands_still_is_replaced_and_the_lease_goes_on(company: Company) -> None:
    """SIGSTOP for longer than the Cluster waits: the replica takes over, and renews what it has. The old master comes
    back as a replica, and nobody believes it. (On a busy machine the new one may be taken for dead as well; the old one
    then takes over again, perhaps with what it had when it stood still, and nothing can be said of the lease.)"""
    party = company.party()
    lease = party.do(acquiring("job:1", ttl=9))
    node = company.node("job:1")
    company.replicated(node)
    node.freeze()
    try:
        until(lambda: company.node("job:1") is not node, "a replica has taken over")
        promoted = company.node("job:1")
        before = calls(promoted, "pexpire")
        until(lambda: calls(promoted, "pexpire") > before, "the lease is renewed there")
        lease.check()
    finally:
        node.thaw()
    company.cluster.settle()
    released = party.do(releasing(lease))
    assert released or company.node("job:1") is not promoted, f"{lease._held.reason}, and the new master has stayed"
    assert party.do(acquiring("job:1")).fence > lease.fence


@mostly("asyncio")
def test_a_node_that_hangs_costs_only_its_own_leases(flavour: str) -> None:
    """The leases on the other nodes are renewed meanwhile, and never in doubt."""
    with RedisCluster(node_timeout_ms=60_000) as cluster:
        company = Company(flavour, cluster)
        doubted: list[str] = []
        party = company.party(observers=[lambda event: doubted.append(event.lease.fence) if is_doubt(event) else None])
        masters = cluster.masters
        names = [company.resource_at(node) for node in masters]
        leases = [party.do(acquiring(name, ttl=2)) for name in names]
        until(lambda: all(calls(node, "pexpire") for node in masters), "all are renewed")
        masters[0].freeze()
        try:
            before = [calls(node, "pexpire") for node in masters[1:]]
            until(lambda: leases[0].state == "lost", "the lease of the node that hangs is lost")
            now = [calls(node, "pexpire") for node in masters[1:]]
            assert all(after > begun for begun, after in zip(before, now, strict=True))
            for lease in leases[1:]:
                lease.check()
        finally:
            masters[0].thaw()
        assert set(doubted) <= {leases[0].fence}
        company.close()


def is_doubt(event: Any) -> bool:
    """Whether a renewal has failed."""
    return isinstance(event, NotRenewed)


@mostly("sync")
def test_a_map_that_cannot_be_read_delays_no_renewal(flavour: str, redis_cluster: RedisCluster) -> None:
    """It is in doubt, and another thread waits for a node that hangs to tell it: renewals go where the nodes were."""
    company = Company(flavour, redis_cluster)
    party = company.party()
    leases = [party.do(acquiring(company.resource_at(node), ttl=1.5)) for node in redis_cluster.masters]
    cluster = party.hold._engine.store._server
    with cluster.reading:
        before = [calls(node, "pexpire") for node in redis_cluster.masters]

        def renewed() -> bool:
            cluster.doubt()
            cluster.read_at = 0.0
            now = [calls(node, "pexpire") for node in redis_cluster.masters]
            return all(after > begun + 3 for begun, after in zip(before, now, strict=True))

        until(renewed, "all are renewed, again and again")
        for lease in leases:
            lease.check()
    company.close()


def test_a_node_that_did_not_answer_is_asked_last(redis_cluster: RedisCluster) -> None:
    """Who needs the map does not wait for it first."""
    store = ClusterStore(redis_cluster.url)
    with closing(Leasehold(store)) as hold:
        hold.lock("job").try_acquire()
        cluster = store._server
        first = cluster.candidates(None)[0]
        cluster.doubt(first)
        assert cluster.candidates(None)[-1] is first
