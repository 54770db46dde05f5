"""Failovers: while a lease is held, renewed or waited for; what is lost when a primary dies with the last writes."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest

from leasehold import LeaseLost, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.memory import FenceGuard
from leasehold.stores.redis.sentinel import CONFIRM_EVERY
from tests.integration.sentinel.service import RECOVERY, TTL, Service
from tests.support.parties import Party, mostly
from tests.support.servers.clock import WallClock
from tests.support.servers.redis import RedisServer
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow


def acquire_soon(party: Party, resource: str = "job", ttl: float = TTL) -> Any:
    """As soon as there is a primary; what was asked for while there was none is asked for again."""
    end = time.monotonic() + RECOVERY
    while True:
        try:
            return party.do(lambda hold: hold.lock(resource, ttl=ttl).acquire(wait=RECOVERY))
        except (StoreUnavailable, OutcomeUnknown):
            assert time.monotonic() < end, "no grant after a failover"


def release(party: Party, lease: Any) -> None:
    """By the party that holds it."""
    party.do(lambda _: lease.release())


def renewed_at(service: Service, lease: Any, server: RedisServer) -> None:
    """Wait until the lease is confirmed by this server."""
    deadline = lease.deadline
    until(lambda: lease.deadline > deadline, "it is renewed", within=RECOVERY)
    assert lease.state == "held" and service.holder(server=server) == lease.owner


def reason(lease: Any) -> str:
    """Why it was lost, as soon as it is known."""
    until(lambda: lease.state == "lost", "its loss is known", within=TTL + RECOVERY)
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    return str(caught.value.reason)


# ---------------------------------------------------------------- planned


@mostly("sync", "service")
def test_a_failover_while_a_lease_is_held_and_renewed(service: Service) -> None:
    """Renewals go on at the new primary, with the same fence, and it is released there."""
    party, lease = service.acquire()
    service.replicated()
    new = service.servers.failover()
    renewed_at(service, lease, new)
    party.do(lambda _: lease.check())
    assert party.do(lambda _: lease.release()) is True
    assert service.holder() == ""


@mostly("asyncio", "service")
def test_a_failover_while_others_wait(service: Service) -> None:
    """Waiters keep their places, get their grants at the new primary in their order, and are pushed to there."""
    party, lease = service.acquire()
    waiting = service.queue(2)
    before = service.queued()
    until(lambda: service.queued(server=service.servers.replicas[0]) == before, "the replica knows the queue")
    service.servers.failover()
    until(lambda: service.queued() == before, "they have their places")
    assert party.do(lambda _: lease.release()) is True
    first = waiting[0].result(RECOVERY)
    assert first.owner.encode() == before[0] and first.fence > lease.fence
    assert not waiting[1].done()
    party.do(lambda hold: hold.evict("job", fence=first.fence, reason="next", force=True, delay=0))
    assert waiting[1].result(RECOVERY).owner.encode() == before[1]


@mostly("sync", "service")
def test_an_old_primary_is_left_by_everybody(service: Service) -> None:
    """After a failover nobody is connected to the server that is a replica now, and acquiring needs no error."""
    party, lease = service.acquire()
    old = service.servers.primary
    party.do(lambda _: lease.release())
    new = service.servers.failover()
    second = party.do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=10))
    assert second.fence > lease.fence and service.holder(server=new) == second.owner
    until(lambda: old.ask("PUBSUB CHANNELS lock:v1:push:*") == b"*0\r\n", "nobody listens there")


# ---------------------------------------------------------------- crashes


@mostly("asyncio", "service")
def test_kill_9_of_the_primary_while_held_and_while_waiting(service: Service) -> None:
    """What was replicated goes on: the holder holds, and the waiter gets it from the holder."""
    party, lease = service.acquire(ttl=9)
    (waiting,) = service.queue(1)
    service.replicated()
    new = service.servers.kill_primary()
    renewed_at(service, lease, new)
    party.do(lambda _: lease.release())
    assert waiting.result(RECOVERY).fence > lease.fence


@mostly("sync", "service")
def test_kill_9_of_the_primary_while_acquiring(service: Service) -> None:
    """The first grant comes within twice the time that a failover takes."""
    party, lease = service.acquire()
    party.do(lambda _: lease.release())
    service.servers.primary.kill()
    began = time.monotonic()
    assert acquire_soon(party).fence > lease.fence
    assert time.monotonic() - began < RECOVERY


def grant_on_the_dying_primary(service: Service) -> tuple[Party, Any, RedisServer]:
    """The replica is cut off, a lease is granted, and the primary dies: nobody else knows of that lease."""
    party, first = service.acquire()
    service.replicated()
    party.do(lambda _: first.release())
    service.servers.cut_replication()
    lease = party.do(lambda hold: hold.lock("job", ttl=12).acquire(wait=10))
    old = service.servers.primary
    old.kill()
    service.servers.await_another(old)
    return party, lease, old


@pytest.mark.soak  # tests/integration/guarantees/test_sentinel.py shows the same each time
@mostly("sync", "service")
def test_the_link_is_cut_and_the_lock_is_granted_on_the_dying_primary(service: Service) -> None:
    """I1 is lost: a second owner is granted what the first still believes in. Its fence is higher, so that a guard
    refuses the first (I2, I3), and the first learns of its loss."""
    _, lease, _ = grant_on_the_dying_primary(service)
    second = acquire_soon(service.party())
    assert lease.state in ("held", "unsure") and lease.remaining() > 0, "both believe that they hold"
    assert second.fence > lease.fence
    guard = FenceGuard()
    guard.check(second)
    with pytest.raises(StaleOwner):
        guard.check(lease)
    assert reason(lease) in ("taken", "deleted")


@pytest.mark.soak  # tests/integration/guarantees/test_sentinel.py shows the same each time
@mostly("sync", "service")
def test_a_promoted_replica_whose_clock_is_behind(service: Service) -> None:
    """It lacks the last grant, so its fences are lower: the guard refuses, and from that refusal the coordinator
    learns the floor of its next fence."""
    for replica in service.servers.replicas:
        assert isinstance(replica.clock, WallClock)
        replica.clock.set_off(-60)  # more than the failover takes; 5 s would have passed on a busy machine
    _, lease, _ = grant_on_the_dying_primary(service)
    guard = FenceGuard()
    guard.check(lease)
    late = service.party()
    second = acquire_soon(late)
    assert second.fence < lease.fence
    with pytest.raises(StaleOwner):
        guard.check(second)
    late.do(lambda _: second.release())
    third = acquire_soon(late)
    assert third.fence > lease.fence
    guard.check(third)
    with pytest.raises(StaleOwner):
        guard.check(lease)


# ---------------------------------------------------------------- a primary that stands still, or is cut off


@mostly("sync", "service")
def test_a_primary_that_is_stopped_and_comes_back(service: Service) -> None:
    """The claim that it answers when it comes back is not believed: another is the primary by then."""
    party, lease = service.acquire("other")
    service.replicated("other")
    old = service.servers.primary
    old.freeze()
    began: Future[Any] = party.start(lambda hold: hold.lock("job", ttl=30).acquire(wait=20))
    new = service.servers.await_another(old)
    old.thaw()
    granted = began.result(PATIENCE)
    assert service.holder(server=new) == granted.owner
    renewed_other = lease.deadline
    until(lambda: lease.deadline > renewed_other, "the lease of before is renewed", within=RECOVERY)


@mostly("asyncio", "service")
def test_a_stopped_primary_that_comes_back_grants_nobody_who_waits(service: Service) -> None:
    """The lease of a holder that is gone ends while the primary stands still. The grant that it pushes when it comes
    back is not believed: the waiter is granted by the new primary."""
    _, lease = service.acquire(ttl=2, renew=False)
    (waiting,) = service.queue(1, ttl=30)
    service.replicated()
    old = service.servers.primary
    old.freeze()
    new = service.servers.await_another(old)
    old.thaw()
    granted = waiting.result(PATIENCE)
    assert service.holder(server=new) == granted.owner and granted.fence > lease.fence


@mostly("asyncio", "service")
def test_a_primary_that_comes_back_before_anybody_has_told_it_grants_nothing(service: Service) -> None:
    """It takes itself for the primary, and answers at once. What a Sentinel said before the failover does not count any
    more, and so one is asked first."""
    old = service.servers.primary
    party, _ = service.acquire()
    service.replicated()
    service.servers.isolate(old)
    old.freeze()
    new = service.servers.await_another(old)
    time.sleep(CONFIRM_EVERY)
    old.thaw()
    other = acquire_soon(party, "other")
    assert b"master" in old.ask("ROLE")
    assert service.holder("other", new) == other.owner and not service.holder("other", old)


@mostly("sync", "service")
def test_an_old_primary_that_the_sentinels_cannot_reach_is_left(service: Service) -> None:
    """It never becomes a replica and closes no connection. Clients that can reach it are told by the Sentinels."""
    old = service.servers.primary
    party, lease = service.acquire()
    service.replicated()
    service.servers.isolate(old)
    new = service.servers.replace(old)
    assert b"master" in old.ask("ROLE")
    renewed_at(service, lease, new)
    other = acquire_soon(party, "other")
    assert service.holder("other", new) == other.owner and not service.holder("other", old)


@mostly("asyncio", "service")
def test_a_busy_connection_leaves_an_old_primary_that_the_sentinels_cannot_reach(service: Service) -> None:
    """It asks the Sentinels now and then, also when it is never idle."""
    old = service.servers.primary
    party = service.party()
    release(party, acquire_soon(party))
    service.servers.isolate(old)
    new = service.servers.replace(old)
    began = time.monotonic()
    while True:
        lease = acquire_soon(party)
        if service.holder(server=new) == lease.owner:
            break
        release(party, lease)
        assert time.monotonic() - began < RECOVERY, "it stays with the old primary"
    assert b"master" in old.ask("ROLE")


# ---------------------------------------------------------------- patterns


@mostly("sync", "service")
def test_results_of_patterns_after_a_failover(service: Service) -> None:
    """What ``once`` has kept is found at the new primary, and new work is done and kept there."""
    party = service.party()
    runs: list[str] = []

    def work(key: str) -> str:
        runs.append(key)
        return f"done {key}"

    async def work_async(key: str) -> str:
        return work(key)

    def call(hold: Any, key: str) -> Any:
        return hold.once("work", key)(work_async if service.flavour == "asyncio" else work)(key)

    def outcome(key: str) -> Any:
        return party.do(lambda hold: call(hold, key))

    assert outcome("1") == "done 1"
    replica = service.servers.replicas[0]
    until(lambda: replica.ask("DBSIZE") == service.servers.primary.ask("DBSIZE"), "it is replicated")
    service.servers.kill_primary()
    assert [outcome(key) for key in ("1", "2", "2")] == ["done 1", "done 2", "done 2"]
    assert runs == ["1", "2"]
