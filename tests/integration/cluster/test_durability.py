"""``durability=`` in a Cluster: what confirms a renewal is the replica, or the disk, of the node that executed it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from leasehold._core.ops import Renew, Renewed
from leasehold.coordinator import Leasehold
from leasehold.errors import LeaseholdError, LeaseLost, StoreUnavailable, Unsupported
from leasehold.observe.events import NotRenewed
from leasehold.stores.redis import durable
from tests.support.parties import Step, mostly
from tests.support.redis.cluster import Company, acquiring, calls, releasing
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redis import RedisServer, redis_7, valkey
from tests.support.waiting import until

ONE = "replicas:1"


def owner_key(resource: str) -> bytes:
    """The record of its lease."""
    return f"lock:v1:{{{resource}}}:owner".encode()


def has(node: RedisServer, resource: str) -> bool:
    """Whether this node has the lease, master or replica."""
    client: Any = node.client()
    return owner_key(resource) in client.keys("lock:v1:*")


def extending(lease: Any, seconds: float) -> Step:
    """By a command of its own."""
    return lambda hold: lease.extend(seconds)


def replica_of(company: Company, resource: str) -> RedisServer:
    """The replica of the master that decides about it."""
    (replica,) = company.cluster.replicas_of(company.node(resource))
    return replica


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that lacks its replica answers WAIT soon."""
    monkeypatch.setattr(durable, "SHARE", 0.2)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that lacks its replica answers WAIT after all time is over."""
    monkeypatch.setattr(durable, "SHARE", 100.0)


def test_a_grant_that_the_replica_of_its_node_has(company: Company) -> None:
    """When the acquire returns the lease is there: no wait is needed to see it."""
    party = company.party()
    for number in range(12):
        lease = party.do(acquiring(f"job:{number}", durability=ONE))
        assert has(replica_of(company, f"job:{number}"), f"job:{number}")
        assert party.do(releasing(lease))
    assert all(calls(node, "wait") for node in company.cluster.masters)


@mostly("sync", "company")
@pytest.mark.usefixtures("brief")
def test_too_few_replicas(company: Company) -> None:
    """The lease is given back, and the error names the node, its replicas and how many are missing. The other nodes go
    on."""
    party = company.party()
    near, far = [company.resource_at(node) for node in company.cluster.masters[:2]]
    node = company.node(near)
    with pytest.raises(
        StoreUnavailable, match=rf"{node.port} has 1 replica that .*asks for 2: 1 replica missing"
    ) as short:
        party.do(acquiring(near, ttl=3, wait=0, durability="replicas:2"))
    assert f"replica 127.0.0.1:{replica_of(company, near).port} is online" in str(short.value)
    assert "1 of 2 is not connected" in str(short.value)
    company.cluster.cut_replication(node)
    with pytest.raises(StoreUnavailable, match=rf"{node.port} has no replicas that .*1 of 1 is not connected"):
        party.do(acquiring(near, ttl=3, wait=0, durability=ONE))
    until(lambda: not has(node, near), "it is given back")
    assert party.do(acquiring(near, ttl=5, wait=0))
    assert party.do(acquiring(far, ttl=5, wait=0, durability=ONE))


@mostly("asyncio", "company")
def test_only_confirmed_renewals_move_the_deadline(company: Company) -> None:
    """The node whose replica is cut off still renews its lease, and the holder does not believe that. Those of the
    other nodes go on, and so does one on the same node that asks for no confirmation."""
    party = company.party()
    masters = company.cluster.masters
    leases = [party.do(acquiring(company.resource_at(node), ttl=2, durability=ONE)) for node in masters]
    kept = party.do(acquiring(company.resource_at(masters[0], 1), ttl=2))
    until(lambda: all(calls(node, "wait") > 2 for node in masters), "all are renewed, and that is confirmed")
    company.cluster.cut_replication(masters[0])
    before = calls(masters[0], "pexpire")
    until(lambda: leases[0].state == "lost", "the lease of that node is lost")
    assert calls(masters[0], "pexpire") > before
    with pytest.raises(LeaseLost) as lost:
        leases[0].check()
    cause = lost.value.__cause__
    assert lost.value.reason == "renewal_failed" and isinstance(cause, LeaseholdError)
    assert str(masters[0].port) in str(cause)
    for lease in (*leases[1:], kept):
        lease.check()
    company.cluster.heal()
    again = party.do(acquiring(company.resource_at(masters[0]), ttl=5, durability=ONE, wait=30))
    assert again.fence > leases[0].fence


@mostly("sync", "company")
def test_scripts_that_are_forgotten(company: Company) -> None:
    """A renewal that has to be sent again in full is waited for again."""
    party = company.party()
    node = company.node("job:1")
    lease = party.do(acquiring("job:1", ttl=1.5, durability=ONE))
    for _ in range(3):
        node.client().script_flush()
        before = calls(node, "pexpire")
        until(lambda before=before: calls(node, "pexpire") > before, "it is renewed")  # type: ignore[misc]  # a lambda's default
    node.client().script_flush()
    party.do(extending(lease, 20))
    assert lease.state == "held" and has(replica_of(company, "job:1"), "job:1")


@mostly("asyncio", "company")
@pytest.mark.usefixtures("brief")
def test_several_locks_at_once(company: Company) -> None:
    """Each is confirmed; if one is not, none is held."""
    party = company.party("namespace", namespace="shop", durability=ONE)
    leases = party.do(lambda hold: hold.all(hold.lock("job", 1, ttl=5), hold.lock("job", 2, ttl=5)).acquire())
    party.do(releasing(leases))
    node = company.node("shop")
    company.cluster.cut_replication(node)
    with pytest.raises(StoreUnavailable, match="no replicas that confirmed"):
        party.do(lambda hold: hold.all(hold.lock("job", 1, ttl=3), hold.lock("job", 2, ttl=3)).acquire(wait=0))
    client: Any = node.client()
    until(lambda: not client.keys("lock:v1:*:owner"), "nothing is held")


# ---------------------------------------------------------------- slots that move


@pytest.mark.usefixtures("endless")
def test_a_slot_has_moved_to_a_node_whose_replica_answers(company: Company) -> None:
    """MOVED: the replica of the old node is cut off. Nobody waits for the reply to WAIT there, and the new node
    confirms."""
    party = company.party()
    lease = party.do(acquiring("job:1", ttl=60, durability=ONE))
    old, new = company.node("job:1"), company.other("job:1")
    company.move("job:1")
    company.cluster.cut_replication(old)
    party.do(extending(lease, 90))
    assert company.node("job:1") is new and has(replica_of(company, "job:1"), "job:1")
    assert lease.remaining() > 60 and lease.state == "held"


@mostly("sync", "company")
@pytest.mark.usefixtures("brief")
def test_a_slot_has_moved_to_a_node_without_a_replica(company: Company) -> None:
    """MOVED: the replica of the old node answers WAIT at once. That does not count: it did not renew the lease."""
    party = company.party()
    lease = party.do(acquiring("job:1", ttl=60, durability=ONE))
    new = company.other("job:1")
    company.move("job:1")
    company.cluster.cut_replication(new)
    with pytest.raises(StoreUnavailable, match=rf"{new.port} has no replicas that confirmed"):
        party.do(extending(lease, 90))
    assert lease.remaining() < 60 and lease.state == "unsure"
    company.cluster.heal()
    party.do(extending(lease, 90))
    assert lease.remaining() > 60 and lease.state == "held"


@mostly("asyncio", "company")
@pytest.mark.usefixtures("endless")
def test_the_watchdog_follows_a_slot_to_a_node_whose_replica_answers(company: Company) -> None:
    """The same for its renewals, in one round."""
    failed: list[Any] = []
    party = company.party(observers=[lambda event: failed.append(event) if isinstance(event, NotRenewed) else None])
    watchdog = party.hold._engine.watchdog
    lease = party.do(acquiring("job:1", ttl=6, durability=ONE))
    watchdog.pause()
    old, new = company.node("job:1"), company.other("job:1")
    company.move("job:1")
    company.cluster.cut_replication(old)
    watchdog.pause(False)
    until(lambda: calls(new, "pexpire") or failed, "it is renewed at the new node")
    lease.check()
    assert calls(new, "wait") and not failed


@mostly("sync", "company")
def test_the_watchdog_follows_a_slot_to_a_node_without_a_replica(company: Company) -> None:
    """It is renewed there, not confirmed, and lost. A lease that stays at the old node is confirmed."""
    party = company.party()
    stays = company.resource_at(company.node("job:1"), 2)  # never job:1 itself
    lease, kept = [party.do(acquiring(name, ttl=2, durability=ONE)) for name in ("job:1", stays)]
    new = company.other("job:1")
    company.cluster.cut_replication(new)
    company.move("job:1")
    until(lambda: lease.state == "lost", "it is lost")
    assert calls(new, "pexpire") > 0
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    assert str(new.port) in str(lost.value.__cause__)
    kept.check()


@mostly("asyncio", "company")
def test_a_lease_is_confirmed_while_its_slot_moves(company: Company) -> None:
    """A renewal needs one key: it is confirmed at the old owner, then at the new one (ASK), then there as its own."""
    party = company.party()
    lease = party.do(acquiring("job:1", ttl=2, durability=ONE))
    move = company.cluster.begin_move(company.slot("job:1"), company.node("job:1"), company.other("job:1"))
    (new,) = company.cluster.replicas_of(move.target)
    before = calls(move.source, "pexpire")
    until(lambda: calls(move.source, "pexpire") > before + 1, "it is renewed at the old owner")
    move.keys()
    until(lambda: calls(move.target, "pexpire") > 1, "it is renewed at the new owner")
    assert calls(move.target, "wait") > 0 and has(new, "job:1")
    lease.check()
    move.end()
    before = calls(move.target, "pexpire")
    until(lambda: calls(move.target, "pexpire") > before + 1, "and goes on there")
    lease.check()
    assert party.do(releasing(lease))


@mostly("asyncio", "company")
@pytest.mark.usefixtures("brief")
def test_a_node_that_takes_the_slot_over_confirms_too(company: Company) -> None:
    """ASK: the Renew, and what waits for it, go to the node in one write behind ASKING."""
    party = company.party()
    party.do(acquiring("job:1", ttl=30))
    (held,) = party.hold._engine.watchdog.leases()
    renew = Renew("job:1", held.owner, held.fence, 30_000, budget_ms=3000, durability=ONE)
    assert party.do(partial(asking, renew)) == Renewed(30_000)
    node = company.node("job:1")
    assert calls(node, "asking") and calls(node, "wait")
    company.cluster.cut_replication(node)
    with pytest.raises(StoreUnavailable, match="no replicas that confirmed"):
        party.do(partial(asking, renew))


def asking(renew: Renew, hold: Any) -> Any:
    """As one that was sent on by another node."""
    store = hold._engine.store
    node = store._server.owner(store._server.slot(renew.resource))
    give_up = time.monotonic() + renew.budget_ms / 1000
    if isinstance(hold, Leasehold):
        with closing(store.connection()) as connection:
            return connection.at(node).send(renew, True, give_up)

    async def ask() -> Any:
        with closing(store.listen(lambda push: None)) as connection:
            return await connection._node(node).send(renew, True, give_up)

    return ask()


# ---------------------------------------------------------------- failover and disks


@mostly("sync", "company")
def test_a_confirmed_lease_outlives_its_node(company: Company) -> None:
    """Nothing else waits for the replica: it has the lease when the node dies right after the acquire."""
    party, other = company.party(), company.party()
    lease = party.do(acquiring("job:1", ttl=20, durability=ONE))
    node = company.node("job:1")
    company.cluster.kill(node)
    assert other.do(lambda hold: hold.lock("job", 1).try_acquire()) is None
    lease.check()
    company.cluster.restart(node)  # the new master has a replica again
    party.do(extending(lease, 30))
    assert party.do(releasing(lease))


@mostly("asyncio")
def test_a_disk_that_confirms(flavour: str) -> None:
    """``fsync``: kill -9 right after the acquire, and the lease is there. Valkey writes its file every second."""
    options = ("--appendonly", "yes", "--appendfsync", "everysec")
    with RedisCluster(3, 0, *options, executable=valkey(), node_timeout_ms=60_000) as cluster:
        company = Company(flavour, cluster)
        party = company.party()
        names = [company.resource_at(node) for node in cluster.masters]
        leases = [party.do(acquiring(name, ttl=60, durability="fsync")) for name in names]
        party.do(extending(leases[0], 60))
        node = company.node(names[0])
        node.kill()
        node.start()
        assert has(node, names[0])
        company.close()


@pytest.mark.parametrize(("executable", "why"), [(redis_7, "has no WAITAOF"), (valkey, "appendonly yes")])
@mostly("sync")
def test_a_node_that_cannot(executable: Callable[[], str], why: str, flavour: str) -> None:
    """No WAITAOF before 7.2, and none without an append-only file: Unsupported, and the lease is given back."""
    with RedisCluster(executable=executable()) as cluster:
        company = Company(flavour, cluster)
        party = company.party()
        with pytest.raises(Unsupported, match=why):
            party.do(acquiring("job:1", durability="fsync"))
        until(lambda: not has(company.node("job:1"), "job:1"), "it is given back")
        company.close()
