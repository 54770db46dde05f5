"""The lock in asyncio: ownership by task, loss that cancels the body, and cancellation at every await."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import AsyncLease, LeaseLost, NotAcquired, NotHeld, StoreUnavailable
from leasehold._core.holding import ALIVE
from leasehold._core.ops import Beat, Claim, Evict, Evicted, Release, Renew, StoreOp
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import (
    STORES,
    Spy,
    StillClock,
    async_scene,
    look,
    nothing_left,
    once,
    open_store,
    tick,
    waiting,
    watchdogs,
)
from tests.support.waiting import PATIENCE, until, until_async

MANY = 100
Scene = tuple[Spy, Any]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A spied store whose clock only the test turns, and a coordinator over it."""
    spy, hold = async_scene(StillClock())
    async with hold:
        yield spy, hold


@pytest.fixture
async def real() -> AsyncIterator[Scene]:
    """The same on the real clock."""
    spy, hold = async_scene()
    async with hold:
        yield spy, hold


def got(lease: AsyncLease | None) -> AsyncLease:
    """A lease that must be there."""
    assert lease is not None
    return lease


def lose(spy: Spy, hold: Any, resource: str = "job") -> None:
    """Somebody evicts the holder, and the next renewal hears of it."""
    grant = look(spy, resource).holders[0]
    reply = spy.inner.execute(Evict(resource, grant.owner, grant.fence, "test", delay_ms=0, force=True))
    assert isinstance(reply, Evicted)
    tick(hold, grant.ttl_ms / 1000 / 2, step=grant.ttl_ms / 1000 / 10)


def cancelling() -> int:
    """How many cancellations of this task are pending."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def ended(coroutine: Coroutine[Any, Any, Any]) -> BaseException | None:
    """Run it as a task and say which error ended it."""
    task = asyncio.create_task(coroutine)
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.done(), "it never ended"
    return asyncio.CancelledError() if task.cancelled() else task.exception()


# ---------------------------------------------------------------- many tasks


@pytest.mark.parametrize("kind", STORES)
async def test_a_hundred_tasks_one_at_a_time(kind: str, tmp_path: Path) -> None:
    """A hundred tasks on one lock: one holder at a time, in the order in which they came, fences growing."""
    store = open_store(kind, tmp_path)
    inside = 0
    order: list[int] = []
    fences: list[int | None] = []
    async with leasehold.aio.connect(store) as hold:
        first = got(await hold.lock("job", ttl=60).acquire())

        async def work(number: int) -> None:
            nonlocal inside
            async with hold.lock("job", ttl=60) as lease:
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                order.append(number)
                fences.append(lease.fence)
                inside -= 1

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for number in range(MANY):
                group.create_task(work(number))
            await until_async(lambda: waiting(store, "job") == MANY, "all wait")
            await first.release()
        if kind == "memory":  # one loop, one op at a time: they came in the order in which they were made
            assert order == list(range(MANY))
        assert sorted(order) == list(range(MANY))
        assert fences == sorted({fence for fence in fences if fence is not None}) and len(fences) == MANY
        assert nothing_left(store, "job")
        assert not hold._driver.connection(asyncio.get_running_loop()).pushes


@pytest.mark.parametrize("kind", STORES)
async def test_a_hundred_tasks_try_and_one_wins(kind: str, tmp_path: Path) -> None:
    """A hundred tasks try once: exactly one winner."""
    async with leasehold.aio.connect(open_store(kind, tmp_path)) as hold:
        leases = await asyncio.gather(*[hold.lock("job").try_acquire() for _ in range(MANY)])
        assert len([lease for lease in leases if lease]) == 1


async def test_acquiring_in_a_task_group(real: Scene) -> None:
    """One child fails: the others are cancelled wherever they are, and nothing is left of them."""
    spy, hold = real

    async def fails() -> None:
        async with hold.lock("job", ttl=60):
            await asyncio.sleep(0.01)
            raise KeyError("the child's own")

    async def waits() -> None:
        async with hold.lock("job", ttl=60):
            await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup) as info:
        await group_of(fails(), *[waits() for _ in range(5)])
    assert info.group_contains(KeyError) and len(info.value.exceptions) == 1
    await until_async(lambda: nothing_left(spy, "job"), "nothing is left")


async def group_of(*children: Coroutine[Any, Any, Any]) -> None:
    """All of them in one TaskGroup."""
    async with asyncio.TaskGroup() as group:
        for child in children:
            group.create_task(child)


# ---------------------------------------------------------------- ownership


async def test_trap_12_a_child_task_is_not_the_owner(scene: Scene) -> None:
    """A task that the holder starts owns nothing: neither ``owned``, nor release, nor re-entry."""
    spy, hold = scene
    lock = hold.rlock("job")

    async def child() -> None:
        assert lock.owned() is False and await lock.locked() is True
        assert await lock.try_acquire() is None
        with pytest.raises(NotHeld):
            await lock.release()
        with pytest.raises(NotAcquired):
            async with hold.rlock("job", wait=0):
                pytest.fail("entered what its parent holds")

    async with lock as lease:
        sent = len(spy.ops)
        async with hold.rlock("job") as inner:
            assert inner.fence == lease.fence and len(spy.ops) == sent
        await asyncio.create_task(child())
        await asyncio.gather(child(), child())
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
        assert lock.owned() and lease.state == "held"
    assert nothing_left(spy, "job")


async def test_trap_08_a_shared_lock_object_releases_ones_own(scene: Scene) -> None:
    """A task that lost its lease does not release the lease of the task that has it now."""
    spy, hold = scene
    lock = hold.lock("job", ttl=1, renew=False)
    old = await lock.acquire()
    hold._engine.clock.advance(2)
    new = await asyncio.create_task(lock.acquire())
    assert await lock.release() is False
    assert new.state == "held" and look(spy, "job").holders[0].owner == new.owner and old.state == "lost"


async def test_trap_03_a_task_that_ends_gives_back(scene: Scene) -> None:
    """A task that ends without release: its lease is given back, not renewed for ever."""
    spy, hold = scene
    lock = hold.lock("job", ttl=30)

    async def careless() -> bool:
        return bool(await lock.acquire())

    assert await asyncio.create_task(careless())
    gc.collect()
    hold._engine.watchdog.round()
    await until_async(lambda: nothing_left(spy, "job"), "given back long before its ttl")


async def test_a_lease_that_moved_outlives_its_task(scene: Scene) -> None:
    """A lease that another task has is renewed after the first has ended, and released there."""
    spy, hold = scene
    lease = await asyncio.create_task(hold.lock("job", ttl=1).acquire())
    gc.collect()
    tick(hold, 5)
    assert lease.state == "held"
    async with lease:
        lease.check()
    assert lease.state == "released" and nothing_left(spy, "job")


async def test_releasing_inside_the_body_is_no_error(scene: Scene) -> None:
    """A body may give its lease back early; leaving it then raises nothing, and nobody is cancelled."""
    spy, hold = scene
    async with hold.lock("job") as lease:
        assert await lease.release() is True
    async with hold.lock("job"):
        assert await hold.lock("job").release() is True
    await asyncio.sleep(0)
    assert nothing_left(spy, "job") and cancelling() == 0


# ---------------------------------------------------------------- loss reaches the body


async def test_loss_cancels_the_body_and_becomes_lease_lost(scene: Scene) -> None:
    """The body is cancelled at its await, and the cancellation becomes LeaseLost, as ``asyncio.timeout`` does."""
    spy, hold = scene
    reached: list[str] = []

    async def body() -> None:
        async with hold.lock("job", ttl=1):
            lose(spy, hold)
            await asyncio.sleep(10)
            reached.append("the end")

    with pytest.raises(LeaseLost) as info:
        await body()
    assert info.value.reason == "evicted" and isinstance(info.value.__cause__, asyncio.CancelledError)
    assert not reached and cancelling() == 0
    await asyncio.sleep(0)  # no stray cancellation arrives


async def test_a_body_that_ends_before_the_cancellation_arrives(scene: Scene) -> None:
    """No await between the loss and the end: LeaseLost, and no CancelledError at the next await."""
    spy, hold = scene

    async def body() -> None:
        async with hold.lock("job", ttl=1):
            lose(spy, hold)

    with pytest.raises(LeaseLost):
        await body()
    assert cancelling() == 0
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_body_that_swallows_the_cancellation(scene: Scene) -> None:
    """A body that catches the cancellation and ends well still learns of its loss."""
    spy, hold = scene

    async def body() -> None:
        async with hold.lock("job", ttl=1):
            lose(spy, hold)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(10)

    with pytest.raises(LeaseLost):
        await body()
    assert cancelling() == 0


async def test_trap_29_the_bodys_error_stays(scene: Scene) -> None:
    """An error that the body raises while it is cancelled is what is seen; the loss is chained to it."""
    spy, hold = scene

    async def body() -> None:
        async with hold.lock("job", ttl=1):
            lose(spy, hold)
            try:
                await asyncio.sleep(10)
            finally:
                raise KeyError("the body's own")

    with pytest.raises(KeyError) as info:
        await body()
    chain = [info.value.__context__, getattr(info.value.__context__, "__context__", None)]
    assert any(isinstance(one, LeaseLost) for one in chain)
    assert cancelling() == 0
    await asyncio.sleep(0)


async def test_an_outside_cancel_wins(scene: Scene) -> None:
    """Lost and cancelled from outside at once: the task ends cancelled, with the loss in the chain."""
    spy, hold = scene
    seen: list[BaseException] = []

    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with hold.lock("job", ttl=1):
                lose(spy, hold)
                asyncio.get_running_loop().call_soon(task.cancel)
                await asyncio.sleep(10)
        except BaseException as error:
            seen.append(error)
            raise

    assert isinstance(await ended(body()), asyncio.CancelledError)
    assert isinstance(seen[0].__context__, LeaseLost)
    assert nothing_left(spy, "job")


async def test_an_outside_cancel_that_comes_while_leaving_wins(scene: Scene) -> None:
    """The body has swallowed the loss's cancellation; an outside one that arrives on exit is not swallowed too."""
    spy, hold = scene

    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with hold.lock("job", ttl=1):
            lose(spy, hold)
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.sleep(10)

    error = await ended(survive_loss(body()))
    assert isinstance(error, asyncio.CancelledError)


async def survive_loss(coroutine: Coroutine[Any, Any, Any]) -> None:
    """What a program does that goes on after a loss."""
    try:
        await coroutine
    except LeaseLost:
        await asyncio.sleep(0.05)


async def test_asyncio_timeout_and_loss_together(scene: Scene) -> None:
    """A timeout that fires together with the loss is a TimeoutError for whoever set it."""
    spy, hold = scene

    async def body() -> None:
        async with asyncio.timeout(None) as timer, hold.lock("job", ttl=1):
            lose(spy, hold)
            timer.reschedule(asyncio.get_running_loop().time())
            await asyncio.sleep(10)

    error = await ended(body())
    assert isinstance(error, (TimeoutError, LeaseLost))
    assert not isinstance(error, asyncio.CancelledError)


@pytest.mark.parametrize("lost", ["outer", "inner"])
async def test_nested_locks_with_one_lost(scene: Scene, lost: str) -> None:
    """Two locks, one lost: the LeaseLost names that one, both are given back, no cancellation is left."""
    spy, hold = scene

    async def body() -> None:
        async with hold.lock("outer", ttl=1), hold.lock("inner", ttl=1):
            lose(spy, hold, lost)
            await asyncio.sleep(10)

    with pytest.raises(LeaseLost) as info:
        await body()
    assert info.value.resource == lost and cancelling() == 0
    assert nothing_left(spy, "outer") and nothing_left(spy, "inner")


async def test_nested_locks_with_both_lost(scene: Scene) -> None:
    """Both lost at once: one LeaseLost leaves, and no cancellation is left."""
    spy, hold = scene

    async def body() -> None:
        async with hold.lock("outer", ttl=1), hold.lock("inner", ttl=1):
            hold._engine.clock.advance(5)
            hold._engine.watchdog.round()
            await asyncio.sleep(10)

    with pytest.raises(LeaseLost):
        await body()
    assert cancelling() == 0
    await asyncio.sleep(0)
    assert nothing_left(spy, "outer") and nothing_left(spy, "inner")


async def test_reentered_and_lost(scene: Scene) -> None:
    """The loss of a re-entered lease leaves both bodies as one LeaseLost."""
    spy, hold = scene

    async def body() -> None:
        async with hold.rlock("job", ttl=1), hold.rlock("job", ttl=1):
            lose(spy, hold)
            await asyncio.sleep(10)

    with pytest.raises(LeaseLost):
        await body()
    assert cancelling() == 0
    async with hold.rlock("job") as lease:
        assert lease.state == "held"
        await asyncio.sleep(0)


async def test_explicit_leases_cancel_nobody(scene: Scene) -> None:
    """Who acquired explicitly watches for himself: the task is not cancelled."""
    spy, hold = scene
    lease = await hold.lock("job", ttl=1).acquire()
    event = lease.lost
    lose(spy, hold)
    await asyncio.sleep(0.01)
    assert event.is_set() and lease.state == "lost" and cancelling() == 0
    with pytest.raises(LeaseLost):
        lease.check()


async def test_who_asks_late_finds_the_event_set(scene: Scene) -> None:
    """``lease.lost`` is set at once when it is first looked at after the loss, not a tick later."""
    spy, hold = scene
    lease = await hold.lock("job", ttl=1).acquire()
    lose(spy, hold)
    await asyncio.sleep(0.01)
    assert lease.lost.is_set()


async def test_an_explicit_lease_that_is_entered_cancels(scene: Scene) -> None:
    """``async with lease`` asks for it; after leaving, nobody is cancelled any more."""
    spy, hold = scene
    lease = await hold.lock("job", ttl=1).acquire()

    async def body() -> None:
        async with lease:
            lose(spy, hold)
            await asyncio.sleep(10)

    with pytest.raises(LeaseLost):
        await body()
    assert cancelling() == 0


async def test_loss_wakes_those_who_wait_for_it(scene: Scene) -> None:
    """``await lease.lost.wait()`` returns at the loss, in any task of the loop."""
    spy, hold = scene
    lease = await hold.lock("job", ttl=1).acquire()
    waiters = [asyncio.create_task(lease.lost.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    lose(spy, hold)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*waiters)


async def test_callbacks_are_functions_or_coroutine_functions(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Both run on the loop that acquired the lease; one that raises harms nobody and is logged."""
    spy, hold = scene
    lease = await hold.lock("job", ttl=1).acquire()
    heard: list[tuple[str, str, threading.Thread]] = []

    def function(error: LeaseLost) -> None:
        heard.append(("function", error.reason, threading.current_thread()))

    async def coroutine(error: LeaseLost) -> None:
        await asyncio.sleep(0)
        heard.append(("coroutine", error.reason, threading.current_thread()))

    async def harmful(error: LeaseLost) -> None:
        raise ValueError("a callback that raises")

    for callback in (harmful, function, coroutine):
        lease.on_lost(callback)
    lose(spy, hold)
    await until_async(lambda: len(heard) == 2, "both are called")
    me = threading.current_thread()
    assert sorted(heard) == [("coroutine", "evicted", me), ("function", "evicted", me)]
    assert "a callback that raises" in caplog.text
    late: list[str] = []
    lease.on_lost(lambda error: late.append(error.reason))
    await until_async(lambda: late == ["evicted"], "who asks late is told at once")


# ---------------------------------------------------------------- cancellation


class Gate:
    """An await before and after each op; the k-th of them cancels the task under test."""

    def __init__(self, k: int) -> None:
        self.left = k
        self.task: asyncio.Task[Any] | None = None

    async def __call__(self) -> None:
        """One suspension."""
        self.left -= 1
        if self.left == 0 and self.task is not None:
            self.task.cancel()
        await asyncio.sleep(0)


async def cancelled_at(spy: Spy, k: int, coroutine: Coroutine[Any, Any, Any]) -> bool:
    """Run it with a cancellation at its k-th suspension; False when it was over before that."""
    gate = Gate(k)
    spy.suspend = gate
    gate.task = asyncio.create_task(coroutine)
    await asyncio.wait([gate.task], timeout=PATIENCE)
    spy.suspend = None
    assert gate.task.done(), f"it never ended after a cancellation at suspension {k}"
    if gate.left > 0:
        gate.task.result()
        return False
    assert gate.task.cancelled(), f"suspension {k}: {gate.task.exception()!r} in place of CancelledError"
    return True


async def free_attempt(k: int) -> bool:
    """An acquire of a free lock with a minimum hold: claim, then the door."""
    spy, hold = async_scene()
    async with hold:
        cancelled = await cancelled_at(spy, k, keep(hold.lock("job", ttl=60, at_least="1ms").acquire()))
        if cancelled:
            await until_async(lambda: nothing_left(spy, "job"), f"nothing is left after suspension {k}")
            assert not [held for held in hold._engine.watchdog.leases() if held.phase in ALIVE], "it is not renewed"
        return cancelled


async def keep(acquiring: Awaitable[AsyncLease | None]) -> None:
    """Acquire, and give back at once."""
    await got(await acquiring).release()


async def waiting_attempt(k: int) -> bool:
    """An acquire that waits behind somebody, beats, and is handed the lock."""
    spy, hold = async_scene()
    async with hold, leasehold.aio.connect(spy.inner) as other:
        holder = got(await other.lock("job", ttl=60).acquire())
        over = asyncio.Event()
        handing_on = asyncio.create_task(hand_on_after_a_beat(spy, holder, over))
        cancelled = await cancelled_at(spy, k, keep(hold.lock("job", ttl=0.1).acquire()))
        over.set()
        await handing_on
        await until_async(lambda: nothing_left(spy, "job"), f"nothing is left after suspension {k}")
        await until_async(lambda: not hold._engine.watchdog._background_ops, "no errand is left")
        assert not hold._driver.connection(asyncio.get_running_loop()).pushes
        return cancelled


async def hand_on_after_a_beat(spy: Spy, lease: AsyncLease, over: asyncio.Event) -> None:
    """Release when the waiter has begun its second beat, so that it heard of its first, or has gone away."""
    await until_async(lambda: over.is_set() or len(spy.of(Beat)) >= 2, "the waiter beats")
    await lease.release()


async def timed_out_attempt(k: int) -> bool:
    """An acquire whose wait runs out, so that it withdraws."""
    spy, hold = async_scene()
    async with hold, leasehold.aio.connect(spy.inner) as other:
        holder = got(await other.lock("job", ttl=60).acquire())
        cancelled = await cancelled_at(spy, k, hold.lock("job", ttl=60).acquire(wait=0.01))
        await until_async(lambda: not look(spy, "job").queue, f"no waiter is left after suspension {k}")
        assert holder.state == "held"
        return cancelled


async def releasing_attempt(k: int) -> bool:
    """A release, explicit."""
    spy, hold = async_scene()
    async with hold:
        lease = got(await hold.lock("job", ttl=60).acquire())
        cancelled = await cancelled_at(spy, k, lease.release())
        await until_async(lambda: nothing_left(spy, "job"), f"given back after suspension {k}")
        assert lease.state == "released"
        return cancelled


async def leaving_attempt(k: int) -> bool:
    """``async with`` from end to end."""
    spy, hold = async_scene()

    async def body() -> None:
        async with hold.lock("job", ttl=60):
            pass

    async with hold:
        cancelled = await cancelled_at(spy, k, body())
        await until_async(lambda: nothing_left(spy, "job"), f"given back after suspension {k}")
        return cancelled


async def extending_attempt(k: int) -> bool:
    """An extend: the lease stays, whatever became of the call, and is renewed on."""
    spy, hold = async_scene()
    async with hold:
        lease = got(await hold.lock("job", ttl=60).acquire())
        cancelled = await cancelled_at(spy, k, lease.extend(30))
        assert lease.state in ("held", "unsure") and lease.deadline <= hold._engine.clock.now() + 30
        await lease.extend(60)
        assert lease.state == "held" and await lease.release() is True
        return cancelled


@pytest.mark.parametrize(
    ("attempt", "least"),
    [
        (free_attempt, 4),
        (waiting_attempt, 4),
        (timed_out_attempt, 4),
        (releasing_attempt, 2),
        (leaving_attempt, 4),
        (extending_attempt, 2),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
async def test_trap_09_cancellation_at_every_await(attempt: Callable[[int], Awaitable[bool]], least: int) -> None:
    """Cancelled at any await: nothing is held, nobody is queued, and the error is CancelledError."""
    points = 0
    while await attempt(points + 1):
        points += 1
        assert points < 100
    assert points >= least


@pytest.mark.slow
async def test_a_cancelled_release_piles_nothing_up(real: Scene) -> None:
    """When the background has given it back, nothing of the lease is kept."""
    spy, hold = real
    for number in range(5):
        lease = got(await hold.lock("job", number, ttl=3).acquire())  # forgotten when it would be renewed
        assert await cancelled_at(spy, 2, lease.release())
        del lease
        await until_async(lambda: not hold._engine.watchdog._background_ops, "the errand is done")
    gc.collect()
    await until_async(lambda: not hold._engine.watchdog.leases(), "nothing is kept")


async def test_trap_25_a_timeout_around_a_waiting_acquire(real: Scene) -> None:
    """``asyncio.timeout`` around an acquire that waits: TimeoutError, and no waiter is left."""
    spy, hold = real
    lease = got(await hold.lock("job", ttl=60).acquire())

    async def impatient() -> None:
        async with asyncio.timeout(0.02):
            await hold.lock("job", ttl=60).acquire()

    for error in await asyncio.gather(*[impatient() for _ in range(10)], return_exceptions=True):
        assert isinstance(error, TimeoutError)
    await until_async(lambda: not look(spy, "job").queue, "no waiter is left")
    assert await lease.release() is True
    assert await hold.lock("job").try_acquire() is not None


async def test_wait_for_around_a_waiting_acquire(real: Scene) -> None:
    """The same for ``asyncio.wait_for``, and for a wait of the lock's own."""
    spy, hold = real
    lease = got(await hold.lock("job", ttl=60).acquire())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(hold.lock("job").acquire(), 0.02)
    assert await hold.lock("job").acquire(wait=0.02) is None
    await until_async(lambda: not look(spy, "job").queue, "no waiter is left")
    assert lease.state == "held"


# ---------------------------------------------------------------- the loop


async def test_trap_04_a_blocked_event_loop_keeps_its_lease() -> None:
    """Somebody blocks the loop for five ttls: the watchdog is a thread, so the lease is renewed meanwhile."""
    clock = ManualClock()
    spy, hold = async_scene(clock)

    def turn() -> None:
        for count in range(1, 16):
            clock.advance(1)
            until(lambda count=count: len(spy.of(Renew)) >= count, "the watchdog renews")  # type: ignore[misc]

    async with hold, hold.lock("job", ttl=3) as lease:
        turner = threading.Thread(target=turn)
        turner.start()
        turner.join()  # the loop stands still until five ttls are over
        assert lease.state == "held" and look(spy, "job").holders[0].owner == lease.owner
        await asyncio.sleep(0)
    assert lease.state == "released"


async def test_two_loops_in_two_threads_share_one_store() -> None:
    """A loop in another thread is woken by a release in this one, and the other way round."""
    store = MemoryStore()
    async with leasehold.aio.connect(store) as hold:
        await passes(store, hold, hold)


async def test_two_coordinators_on_two_loops() -> None:
    """The same with a coordinator for each loop."""
    store = MemoryStore()
    async with leasehold.aio.connect(store) as one, leasehold.aio.connect(store) as two:
        await passes(store, one, two)


async def passes(store: MemoryStore, here: Any, there: Any) -> None:
    """Pass a lock between this loop and another one, many times, by direct handoff alone."""
    fences: list[int] = []

    async def turns(hold: Any) -> None:
        for _ in range(20):
            async with hold.lock("job", ttl=60) as lease:
                fences.append(lease.fence)
                await asyncio.sleep(0.001)

    began = time.monotonic()
    await asyncio.gather(turns(here), asyncio.to_thread(asyncio.run, turns(there)))
    assert time.monotonic() - began < 20  # 40 wake-ups; each that is missed costs a second
    assert fences == sorted(set(fences)) and len(fences) == 40 and nothing_left(store, "job")


def test_trap_37_one_coordinator_for_many_loops() -> None:
    """A coordinator that is used by loop after loop keeps nothing of the loops that are over."""
    store = MemoryStore()
    hold = leasehold.aio.connect(store)

    async def once() -> None:
        async with hold.lock("job"):
            pass

    for _ in range(30):
        asyncio.run(once())
    gc.collect()
    assert len(hold._driver._connections) < 10 and len(store._connections) < 10
    asyncio.run(hold.close())


@pytest.mark.slow
async def test_trap_37_a_push_that_crosses_a_beat_is_not_kept(real: Scene) -> None:
    """The grant is known from the beat's reply, and its push arrives afterwards: the loop's mailbox keeps none."""
    spy, hold = real
    for number in range(5):
        spy.inner.execute(Claim("job", f"other:1:{number}", 60_000))

        def release(op: StoreOp, owner: str = f"other:1:{number}") -> None:
            spy.inner.execute(Release("job", owner, look(spy, "job").holders[0].fence))

        spy.before = once(Beat, release)
        lease = got(await asyncio.wait_for(hold.lock("job", ttl=0.15).acquire(), PATIENCE))
        await lease.release()
        await asyncio.sleep(0.01)
    assert not hold._driver.connection(asyncio.get_running_loop()).pushes


async def test_trap_24_a_push_that_overtakes_the_reply_is_not_lost(real: Scene) -> None:
    """The grant is pushed while the claim's reply is still on its way: who then parks is granted at once."""
    spy, hold = real
    spy.inner.execute(Claim("job", "other:1:x", 60_000))
    suspended: list[int] = []

    async def suspend() -> None:
        suspended.append(1)
        if len(suspended) == 2:  # the claim stands in the queue, and its reply is not here yet
            spy.inner.execute(Release("job", "other:1:x", look(spy, "job").holders[0].fence))
            await asyncio.sleep(0.02)

    spy.suspend = suspend
    lease = got(await hold.lock("job", ttl=60).acquire())
    assert not spy.of(Beat) and await lease.release()


async def test_no_thread_before_the_first_lease(real: Scene) -> None:
    """Looking, waiting and being refused need no helper thread; the first lease starts one."""
    spy, hold = real
    before = len(watchdogs())
    async with leasehold.aio.connect(spy.inner) as other:
        lease = got(await other.lock("job").acquire())
        before += 1
        assert await hold.lock("job").try_acquire() is None and await hold.lock("job").locked()
        assert await hold.lock("job").acquire(wait=0.01) is None
        assert len(watchdogs()) == before
        await lease.release()
    assert len(watchdogs()) == before - 1


# ---------------------------------------------------------------- closing


@pytest.mark.parametrize("kind", STORES)
async def test_closing_ends_those_who_wait(kind: str, tmp_path: Path) -> None:
    """``close()`` while tasks wait: each ends soon with StoreUnavailable that says closed, and delays nobody."""
    store = open_store(kind, tmp_path)
    async with leasehold.aio.connect(store) as holder:
        hold = leasehold.aio.connect(store if kind == "memory" else open_store(kind, tmp_path))
        lease = got(await holder.lock("job", ttl=60).acquire())
        tasks = [asyncio.create_task(hold.lock("job", ttl=0.3).acquire()) for _ in range(5)]
        await until_async(lambda: waiting(hold._engine.store, "job") == 5, "they wait")
        await hold.close()
        done, late = await asyncio.wait(tasks, timeout=PATIENCE)
        assert not late and len(done) == 5
        for task in done:
            assert isinstance(task.exception(), StoreUnavailable) and "closed" in str(task.exception())
        assert lease.state == "held"
        await lease.release()
        assert await holder.lock("job").try_acquire() is not None


async def test_closing_inside_the_body_is_a_loss() -> None:
    """``close()`` while the body runs: LeaseLost (closed) on leaving, and no cancellation is left."""
    spy, hold = async_scene()

    async def body() -> None:
        async with hold.lock("job"):
            await asyncio.shield(asyncio.create_task(hold.close()))
            await asyncio.sleep(10)

    with pytest.raises(LeaseLost) as info:
        await body()
    assert info.value.reason == "closed" and cancelling() == 0
    await until_async(lambda: nothing_left(spy, "job"), "it is given back")


async def test_closing_cancels_bodies_in_other_tasks() -> None:
    """Whoever is inside hears of it: the body's task is cancelled and ends with LeaseLost."""
    _, hold = async_scene()
    inside = asyncio.Event()

    async def body() -> None:
        async with hold.lock("job"):
            inside.set()
            await asyncio.sleep(2 * PATIENCE)

    task = asyncio.create_task(body())
    await asyncio.wait_for(inside.wait(), PATIENCE)
    await hold.close()
    with pytest.raises(LeaseLost) as info:
        await asyncio.wait_for(task, PATIENCE)
    assert info.value.reason == "closed"


async def test_a_waiter_is_served_on_a_clock_that_tests_turn() -> None:
    """A waiting task sees a clock that somebody else turns: the holder's time is over, and it is granted."""
    clock = ManualClock()
    spy, hold = async_scene(clock)
    async with hold, leasehold.aio.connect(spy.inner) as other:
        old = got(await other.lock("job", ttl=1, renew=False).acquire())
        waiting = asyncio.create_task(hold.lock("job").acquire())
        await until_async(lambda: look(spy, "job").queue, "it waits")
        clock.advance(1.1)
        new = got(await asyncio.wait_for(waiting, PATIENCE))
        assert new.fence > old.fence
