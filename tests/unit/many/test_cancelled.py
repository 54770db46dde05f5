"""A cancellation at every await of a batch, also between its claims and their confirmations: nothing stays held."""

from __future__ import annotations

import asyncio
from threading import RLock
from typing import Any

import pytest

import leasehold
from leasehold._core.claims import AcquireRequest
from leasehold._core.holding import Holding, LocalGrant
from leasehold._core.many import acquire_many, release_many
from leasehold._core.names import make_name
from leasehold._core.ops import Claim, Release, Renew, StoreOp, TimedReply, Withdraw
from leasehold.stores.memory import MemoryStore
from tests.support.faults.suspensions import Suspensions
from tests.support.lock import Spy, nothing_left
from tests.support.tables import each
from tests.support.waiting import until

NAMES = ("a", "b", "c")
CONFIRMED = {"at_least": 0.001}
LOCKS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "confirmed": dict.fromkeys(NAMES, CONFIRMED),
    "mixed": {"b": CONFIRMED},  # the others are kept before it is confirmed
}


async def nap() -> None:
    """One turn of the loop."""
    await asyncio.sleep(0)


def cancelled_at(nth: int, options: dict[str, dict[str, Any]], entered: bool) -> bool:
    """Take a batch, and cancel it there; False when it was over before. Then nothing of it is left."""
    spy = Spy(MemoryStore())
    spy.suspend = nap
    suspensions = Suspensions(nth)

    async def batch(hold: leasehold.AsyncLeasehold) -> None:
        taken = await hold.acquire_many([hold.lock(name, ttl=600, **options.get(name, {})) for name in NAMES])
        if entered:
            async with taken:
                await nap()
        else:
            assert await hold.release_many(taken) == [True] * 3

    async def main() -> None:
        async with leasehold.aio.connect(spy) as hold:
            task = asyncio.create_task(suspensions(batch(hold)))
            await asyncio.wait([task])
            assert task.cancelled() == bool(suspensions.cancelled)
            await asyncio.to_thread(until, lambda: all(nothing_left(spy, name) for name in NAMES), "all are free")
            assert not hold._engine.pending and not any(one.pushes for one in hold._driver._connections.values())

    asyncio.run(main())
    return bool(suspensions.cancelled)


@each(("lock", "entered"), [(name, entered) for name in LOCKS for entered in (True, False)])
def test_a_cancellation_at_every_await(lock: str, entered: bool) -> None:
    """Whatever has been granted, confirmed or released by then."""
    places = 0
    while cancelled_at(places + 1, LOCKS[lock], entered):
        places += 1
    assert places >= (4 if lock == "plain" else 6)


def test_a_flow_leaves_nothing_by_itself() -> None:
    """Whoever drives it: what is thrown into the flow of a batch makes it withdraw every claim, and repeat every
    release, in the background."""
    grant = LocalGrant("owner", 1, 600_000, 0.0, 600_000, 0.0, unanswered=False)
    holdings = [Holding(make_name("", name, ()), grant, RLock()) for name in NAMES]
    deferred: list[Any] = []
    for flow in (claiming(), release_many(holdings, 0.0)):
        assert len(flow.send(None).steps) == 3
        deferred.append(flow.throw(asyncio.CancelledError()).op)
        deferred.extend([flow.send(TimedReply(None, 0.0)).op for _ in range(2)])
        with pytest.raises(asyncio.CancelledError):
            flow.send(TimedReply(None, 0.0))
    assert [(type(op), op.resource) for op in deferred] == [
        *[(Withdraw, name) for name in reversed(NAMES)],
        *[(Release, name) for name in NAMES],
    ]
    assert all(op.forget_ms >= 60_000 for op in deferred[:3]) and all(op.again for op in deferred[3:])


class Caller:
    """Numbers its owners, and keeps nothing."""

    def new_owner(self, place: int) -> str:
        """A name."""
        return f"owner:{place}"

    def keep(self, place: int, grant: LocalGrant) -> Holding:
        """It is never granted anything."""
        raise AssertionError(place)


def claiming() -> Any:
    """The flow that claims all three."""
    requests = [AcquireRequest(make_name("", name, ()), 600_000) for name in NAMES]
    return acquire_many(requests, Caller(), lambda: 0, 0.0)


@pytest.mark.parametrize("kind", [Claim, Renew])
def test_an_interrupt_of_the_store(kind: type) -> None:
    """What a signal handler raises inside a call comes out of it, and all that may have been taken is given back."""
    spy = Spy(MemoryStore())

    def strike(op: StoreOp) -> None:
        if isinstance(op, kind) and op.resource == "b":
            raise KeyboardInterrupt

    with leasehold.connect(spy) as hold:
        spy.after = strike
        with pytest.raises(KeyboardInterrupt):
            hold.acquire_many([hold.lock(name, ttl=600, at_least=0.001) for name in NAMES])
        spy.heal()
        until(lambda: all(nothing_left(spy, name) for name in NAMES), "all are free")
        assert not hold._engine.pending and not hold._engine.watchdog.leases()
