"""Loss under an all: one part is enough, the body hears of it, and the rest is given back after it, not before."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold._core.ops import Evict, Group, Release
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, StillClock, look, nothing_left, once, only, reply_lost, tick, unreachable
from tests.support.parties import FLAVOURS, Party
from tests.support.waiting import PATIENCE, until, until_async


class Stage:
    """One holder in one flavour over a spied store, on a clock that the test turns."""

    def __init__(self, flavour: str, clock: ManualClock) -> None:
        self.clock = clock
        self.spy = Spy(MemoryStore(clock))
        self.party: Party = FLAVOURS[flavour](self.spy)

    def all(self, **options: Any) -> Any:
        """Two locks, given in the order of b and a."""
        hold = self.party.hold
        return hold.all(hold.lock("b", ttl=6), hold.lock("a", ttl=6), **options)

    def acquire(self) -> Any:
        """Both."""
        return self.party.do(lambda _: self.all().acquire(wait=0))

    def do(self, call: Any) -> Any:
        """A call of the party's own, awaited where it must be."""
        return self.party.do(lambda _: call())

    def evict(self, lease: Any) -> None:
        """An operator throws the holder out; its next renewal finds out."""
        if self.party.hold._engine.watchdog.holder_pushes is not None:
            self.party.hold._engine.watchdog.holder_pushes.close()
        self.spy.inner.execute(Evict(lease.resource, lease.owner, lease.fence, lease.owner, delay_ms=0, force=True))

    def free(self, *names: str) -> None:
        """Nothing is left of them."""
        for name in names:
            until(lambda: nothing_left(self.spy, name), f"nothing left of {name}")  # noqa: B023  # called at once


def stage_of(flavour: str, clock: ManualClock) -> Iterator[Stage]:
    """From the beginning to the end, whatever a test has broken."""
    made = Stage(flavour, clock)
    yield made
    made.spy.heal()
    made.party.close()


@pytest.fixture(params=FLAVOURS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """In each flavour, on a clock that nobody watches by himself."""
    yield from stage_of(request.param, StillClock())


@pytest.fixture(params=FLAVOURS)
def turning(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The same on a clock that everybody watches: for those who wait."""
    yield from stage_of(request.param, ManualClock())


# ---------------------------------------------------------------- who hears of it


def test_one_lost_part_is_the_loss_of_all(stage: Stage) -> None:
    """State, check, remaining, event and callback say so; the callback once, though the second is lost too."""
    leases = stage.acquire()
    heard: list[LeaseLost] = []
    stage.do(lambda: leases.on_lost(heard.append))
    lost = stage.do(lambda: leases.lost)
    assert not lost.is_set()
    stage.evict(leases[1])
    tick(stage.party.hold, 2.1)
    until(lambda: lost.is_set() and heard, "everybody hears of it")
    assert leases.state == "lost" and leases.remaining() == 0 and leases[0].state == "held"
    stage.evict(leases[0])
    tick(stage.party.hold, 2.1)
    assert leases[0].state == "lost" and [error.resource for error in heard] == ["a"]
    assert stage.do(leases.release) is False


def test_who_asks_late_hears_at_once(stage: Stage) -> None:
    """An event and a callback that are asked for after the loss."""
    leases = stage.acquire()
    stage.evict(leases[0])
    tick(stage.party.hold, 2.1)
    heard: list[LeaseLost] = []
    stage.do(lambda: leases.on_lost(heard.append))
    assert stage.do(lambda: leases.lost).is_set()
    until(lambda: heard, "it is called")


def test_a_revocation_of_one_part(stage: Stage) -> None:
    """Somebody asks for one of them: the whole is asked to end, and is still held."""
    leases = stage.acquire()
    asked = stage.do(lambda: leases.revoked)
    called: list[str] = []
    stage.do(lambda: leases.on_revoked(lambda: called.append("asked")))
    leases[1]._held.revoke()
    leases[0]._held.revoke()
    until(asked.is_set, "it hears of it")
    until(lambda: called == ["asked"], "and its callback does, once")
    assert leases.state == "held" and stage.do(leases.release) is True


def test_idle_parts_are_kept_by_a_beat(stage: Stage) -> None:
    """``beat`` reaches those that have a max_idle."""
    hold = stage.party.hold
    both = hold.all(hold.lock("a", ttl=6, max_idle=2), hold.lock("b", ttl=6))
    leases = stage.do(lambda: both.acquire(wait=0))
    tick(hold, 1.5)
    leases.beat()
    tick(hold, 1.5)
    assert leases.state == "held"
    tick(hold, 1)
    assert leases.state == "lost" and leases[0].state == "lost"


# ---------------------------------------------------------------- the body


def test_a_body_that_lost_a_part_raises(stage: Stage) -> None:
    """Leaving raises LeaseLost of that part, and gives back the rest then, not before (traps 28, 34)."""
    seen: list[bool] = []

    def body(leases: Any) -> Any:
        stage.evict(leases[1])
        tick(stage.party.hold, 2.1)
        seen.append(bool(look(stage.spy, "b").holders))

    error = stage.party.within(lambda _: stage.all(wait=0), body).exception(60)
    assert isinstance(error, LeaseLost) and error.resource == "a" and seen == [True]
    stage.free("a", "b")


def test_what_the_body_raises_stays_the_error(stage: Stage) -> None:
    """The loss is attached to it (trap 29)."""

    def body(leases: Any) -> Any:
        stage.evict(leases[1])
        tick(stage.party.hold, 2.1)
        raise ValueError("mine")

    error = stage.party.within(lambda _: stage.all(wait=0), body).exception(60)
    assert isinstance(error, ValueError) and "lost (evicted)" in "".join(error.__notes__)
    stage.free("a", "b")


def test_a_release_that_is_not_confirmed(stage: Stage) -> None:
    """It goes on in the background and may be repeated; a body is left without an error."""
    leases = stage.acquire()
    stage.spy.after = only(Group, reply_lost)
    with pytest.raises(OutcomeUnknown):
        stage.do(leases.release)
    stage.spy.heal()
    stage.free("a", "b")
    assert stage.do(leases.release) is True
    stage.spy.before = only(Group, lambda op: unreachable(op) if isinstance(op.steps[0], Release) else None)  # type: ignore[union-attr]  # so
    stage.party.within(lambda _: stage.all(wait=0), lambda _: None).result(60)
    stage.spy.heal()
    tick(stage.party.hold, 1)
    stage.free("a", "b")


def test_a_claim_whose_reply_is_lost(turning: Stage) -> None:
    """What it may have won is withdrawn, and all are claimed one by one."""
    turning.spy.after = once(Group, reply_lost)
    waiting = turning.party.start(lambda _: turning.all().acquire(wait=60))

    def done() -> bool:
        turning.clock.advance(0.2)
        return waiting.done()

    until(done, "they are had in the end")
    leases = waiting.result()
    assert leases.state == "held" and turning.do(leases.release) is True
    turning.free("a", "b")


def test_a_store_that_is_away(stage: Stage) -> None:
    """StoreUnavailable, and nothing is held."""
    stage.spy.before = only(Group, unreachable)
    with pytest.raises(StoreUnavailable):
        stage.acquire()
    stage.spy.heal()
    stage.free("a", "b")
    assert not stage.party.hold._engine.pending and stage.acquire() is not None


# ---------------------------------------------------------------- asyncio


def lose(hold: leasehold.AsyncLeasehold, lease: leasehold.AsyncLease) -> None:
    """As if the store had said so."""
    lease._held.refused("evicted")
    hold._engine.watchdog.report_loss(lease._held)


ASYNC = pytest.mark.parametrize("both_lost", [False, True], ids=["one", "both"])


@ASYNC
def test_the_body_is_cancelled_once(both_lost: bool) -> None:
    """However many parts are lost, the task is cancelled once, and the cancellation becomes LeaseLost."""

    held_after: list[bool] = []

    async def body(hold: leasehold.AsyncLeasehold) -> None:
        async with hold.all(hold.lock("a"), hold.lock("b")) as leases:
            for lease in leases[: 1 + both_lost]:
                lose(hold, lease)
            try:
                await asyncio.sleep(20)
            finally:
                await asyncio.sleep(0.01)  # winding down, under what is left
                held_after.append(bool(look(hold._engine.store, "b").holders))

    async def main() -> None:
        async with leasehold.aio.connect(f"memory://cancelled-{both_lost}") as hold:
            with pytest.raises(LeaseLost, match="evicted"):
                await body(hold)
            task = asyncio.current_task()
            assert held_after == [True] and task is not None and task.cancelling() == 0
            assert both_lost or nothing_left(hold._engine.store, "b")

    asyncio.run(main())


def test_somebody_elses_cancellation_stays_one() -> None:
    """A task that is cancelled by others too ends cancelled, with the loss attached."""

    async def body(hold: leasehold.AsyncLeasehold, begun: asyncio.Event) -> None:
        async with hold.all(hold.lock("a"), hold.lock("b")) as leases:
            begun.set()
            try:
                await asyncio.sleep(20)
            finally:
                lose(hold, leases[0])
                await asyncio.sleep(0)

    async def main() -> None:
        async with leasehold.aio.connect("memory://loss-2") as hold:
            begun = asyncio.Event()
            task = asyncio.create_task(body(hold, begun))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled() and nothing_left(hold._engine.store, "b")

    asyncio.run(main())


def test_explicit_leases_cancel_nobody() -> None:
    """Only ``async with`` cancels; afterwards its interrupt is gone."""

    async def main() -> None:
        async with leasehold.aio.connect("memory://loss-3") as hold:
            leases = await hold.all(hold.lock("a"), hold.lock("b")).acquire()
            assert leases is not None
            lose(hold, leases[0])
            await asyncio.sleep(0.01)
            assert leases.lost.is_set()
            with pytest.raises(LeaseLost):
                async with leases:
                    pytest.fail("what is lost is not entered")
            assert await leases.release() is False and nothing_left(hold._engine.store, "b")

    asyncio.run(main())


def test_a_loss_of_what_was_entered_before_reaches_the_outer_body() -> None:
    """The inner all gives back its own and lets the cancellation pass; the outer body turns it into LeaseLost."""

    async def body(hold: leasehold.AsyncLeasehold) -> None:
        async with hold.rlock("a") as lease, hold.all(hold.lock("b"), hold.rlock("a")):
            lose(hold, lease)
            await asyncio.sleep(20)

    async def main() -> None:
        async with leasehold.aio.connect("memory://loss-4") as hold:
            with pytest.raises(LeaseLost) as info:
                await body(hold)
            assert info.value.resource == "a" and nothing_left(hold._engine.store, "b")

    asyncio.run(main())


def test_a_cancelled_wait_leaves_nothing() -> None:
    """Cancelled while it waits for the second: the first is given back, and nobody stands in line."""

    async def main() -> None:
        async with leasehold.aio.connect("memory://c") as hold, leasehold.aio.connect("memory://c") as other:
            theirs = await other.lock("b").acquire()
            task = asyncio.create_task(hold.all(hold.lock("a"), hold.lock("b")).acquire())
            await until_async(lambda: look(hold._engine.store, "b").queue, "it waits")
            assert look(hold._engine.store, "a").holders
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until_async(lambda: nothing_left(hold._engine.store, "a"), "a is free")
            await until_async(lambda: not look(hold._engine.store, "b").queue, "nobody waits")
            assert theirs is not None and await theirs.release() and not hold._engine.pending

    asyncio.run(main())


# ---------------------------------------------------------------- while waiting


def test_what_is_lost_while_waiting_is_claimed_anew(turning: Stage) -> None:
    """Somebody evicts the first while the second is waited for: in the end both are held, with a newer fence."""
    stage = turning
    rival = FLAVOURS["sync"](stage.spy)
    theirs = rival.do(lambda hold: hold.lock("b", ttl=600).acquire(wait=0))
    waiting = stage.party.start(lambda _: stage.all().acquire(wait=None))
    until(lambda: look(stage.spy, "b").queue, "it waits")
    early = look(stage.spy, "a").holders[0]
    stage.spy.inner.execute(Evict("a", early.owner, early.fence, "request", delay_ms=0, force=True))

    def heard() -> bool:
        tick(stage.party.hold, 0.2)
        return not stage.party.hold._engine.watchdog.leases()

    until(heard, "the loss is known")
    assert rival.do(lambda _: theirs.release())
    leases = waiting.result(60)
    assert leases.state == "held" and leases[1].fence > early.fence
    assert look(stage.spy, "a").holders[0].owner == leases[1].owner
    assert len(stage.party.hold._engine.registry) == 2 and stage.do(leases.release) is True
    stage.free("a", "b")
    rival.close()


# ---------------------------------------------------------------- who can use them


def test_leases_that_nobody_refers_to() -> None:
    """They are not renewed, and somebody is told; those of an all that is referred to are."""
    spy = Spy(MemoryStore(StillClock()))
    with leasehold.connect(spy) as hold:
        kept = hold.all(hold.lock("a", ttl=6), hold.lock("b", ttl=6))
        assert kept.acquire() is not None
        gc.collect()
        tick(hold, 8)
        assert kept.owned() and kept.release()


def test_a_thread_that_ends_gives_back() -> None:
    """What it acquired through an all that is still there is free when it has ended (trap 3)."""
    with leasehold.connect("memory://loss-5") as hold:
        both = hold.all(hold.lock("a", ttl=0.3), hold.lock("b", ttl=0.3))
        thread = threading.Thread(target=both.acquire)
        thread.start()
        thread.join()
        assert both.acquire(wait=PATIENCE) is not None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # it is what this test is about
def test_fork(tmp_path: Path) -> None:
    """The child's leases are lost (forked) and it gives back nothing of its parent's (trap 32)."""
    with leasehold.connect(f"sqlite:///{tmp_path}/leases.db") as hold:
        both = hold.all(hold.lock("a"), hold.lock("b"))
        leases = both.acquire()
        assert leases is not None
        lost = leases.lost
        child = os.fork()
        if child == 0:
            fine = leases.state == "lost" and lost.is_set() and not leases.release() and both.try_acquire() is None
            os._exit(0 if fine and leases[0]._held.reason == "forked" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert leases.state == "held" and leases.release() is True
