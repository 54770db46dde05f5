"""The lock in threads: one winner, ownership by thread, re-entry, and what is left when people just go away."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import Lease, LeaseLost, NotAcquired, NotHeld, StoreUnavailable
from leasehold._core.ops import Beat, Claim, Release, Renew, StoreOp
from leasehold._core.ports import Store
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import (
    STORES,
    Spy,
    StillClock,
    elsewhere,
    in_thread,
    look,
    nothing_left,
    open_store,
    sync_scene,
    tick,
    waiting,
    watchdogs,
)
from tests.support.tables import each
from tests.support.waiting import PATIENCE, until

MANY = 100


@pytest.fixture
def scene() -> Iterator[tuple[Spy, Any]]:
    """A spied store whose clock only the test turns, and a coordinator over it."""
    spy, hold = sync_scene(StillClock())
    with hold:
        yield spy, hold


@pytest.fixture
def turning() -> Iterator[tuple[Spy, Any, ManualClock]]:
    """The same for tests in which other threads wait and must see the clock turn."""
    clock = ManualClock()
    spy, hold = sync_scene(clock)
    with hold:
        yield spy, hold, clock


def got(lease: Lease | None) -> Lease:
    """A lease that must be there."""
    assert lease is not None
    return lease


def queue_longer_than(store: Store, count: int) -> bool:
    """Do more than that wait?"""
    return waiting(store, "job") > count


def acquire_and_go(lock: Any) -> bool:
    """What a careless thread does."""
    return bool(lock.acquire())


# ---------------------------------------------------------------- many threads


@pytest.mark.parametrize("kind", STORES)
def test_a_hundred_threads_one_at_a_time(kind: str, tmp_path: Path) -> None:
    """A hundred threads on one lock: one holder at a time, everybody's turn comes, nobody overtakes."""
    store = open_store(kind, tmp_path)
    inside: list[int] = []
    most: list[int] = []
    order: list[int] = []
    fences: list[int | None] = []
    with leasehold.connect(store) as hold:
        first = got(hold.lock("job", ttl=60).acquire())

        def work(number: int) -> None:
            with hold.lock("job", ttl=60) as lease:
                inside.append(number)
                most.append(len(inside))
                order.append(number)
                fences.append(lease.fence)
                inside.remove(number)

        threads = []
        for number in range(MANY):
            threads.append(threading.Thread(target=work, args=[number], daemon=True))
            threads[-1].start()
            if number < 10:  # these arrive in a known order; the others in any
                until(partial(queue_longer_than, store, number), "the thread waits")
                until(lambda: bool(hold._engine.cohorts), "the first one leads")  # else the second would claim, too
        until(lambda: waiting(store, "job") == MANY, "all wait")
        first.release()
        for thread in threads:
            thread.join(PATIENCE)
        assert max(most) == 1 and sorted(order) == list(range(MANY)) and order[:10] == list(range(10))
        assert fences == sorted({fence for fence in fences if fence is not None}) and len(fences) == MANY
        assert nothing_left(store, "job")


@pytest.mark.parametrize("kind", STORES)
def test_a_hundred_threads_try_and_one_wins(kind: str, tmp_path: Path) -> None:
    """A hundred threads try once before the lease is over: exactly one winner."""
    gate = threading.Barrier(MANY)
    winners: list[Lease] = []
    tried: list[int] = []
    with leasehold.connect(open_store(kind, tmp_path)) as hold:
        lock = hold.lock("job", ttl=60)

        def work() -> None:
            gate.wait(PATIENCE)
            lease = lock.try_acquire()
            tried.append(1)
            if lease is not None:
                winners.append(lease)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(MANY)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(winners) == 1 and len(tried) == MANY and winners[0].state == "held"


# ---------------------------------------------------------------- whose lease is it


def test_trap_08_a_shared_lock_object_releases_ones_own(scene: tuple[Spy, Any]) -> None:
    """Two threads share one lock object: the one that lost its lease does not release the other's."""
    spy, hold = scene
    lock = hold.lock("job", ttl=1, renew=False)
    old = lock.acquire()
    spy.clock.advance(2)  # type: ignore[attr-defined]
    new = in_thread(lock.acquire)
    assert lock.release() is False
    assert new.state == "held" and look(spy, "job").holders[0].owner == new.owner and old.state == "lost"


def test_release_from_another_thread_is_not_held(scene: tuple[Spy, Any]) -> None:
    """``lock.release()`` gives back the calling thread's lease and nobody else's; ``owned()`` says whose it is."""
    spy, hold = scene
    lock = hold.lock("job")
    lease = lock.acquire()
    with pytest.raises(NotHeld, match=r"lease\.release"):
        in_thread(lock.release)
    assert in_thread(lock.owned) is False and in_thread(lock.locked) is True
    assert lock.owned() is True and lease.state == "held"
    assert in_thread(lease.release) is True
    assert lock.owned() is False and nothing_left(spy, "job")


def test_a_lease_that_moved_outlives_its_thread(scene: tuple[Spy, Any]) -> None:
    """A lease passed to another thread is renewed after the first thread has ended, and released there."""
    spy, hold = scene
    lease = in_thread(lambda: hold.lock("job", ttl=1).acquire())
    gc.collect()
    tick(hold, 5)
    assert lease.state == "held" and look(spy, "job").holders[0].owner == lease.owner
    with lease:
        lease.check()
    assert lease.state == "released" and nothing_left(spy, "job")


def test_trap_12_a_new_thread_is_not_taken_for_an_old_one(scene: tuple[Spy, Any]) -> None:
    """A thread object at the address of one that is gone owns nothing of what that one acquired."""
    _, hold = scene
    lock = hold.rlock("job", ttl=60)
    lease = in_thread(lock.acquire)
    by_id = hold._engine.registry._by_id
    (_, held) = by_id.popitem()
    by_id[id(threading.current_thread())] = held  # as if this thread had got the other's address
    assert lock.owned() is False and lock.try_acquire() is None and lease.state == "held"
    with pytest.raises(NotHeld):
        lock.release()


def test_trap_03_a_thread_that_ends_gives_back(scene: tuple[Spy, Any]) -> None:
    """A thread that ends without release: its lease is given back, not renewed for ever."""
    spy, hold = scene
    lock = hold.lock("job", ttl=30)
    in_thread(lambda: bool(lock.acquire()))
    gc.collect()
    tick(hold, 10.1)  # when it would be renewed
    until(lambda: nothing_left(spy, "job"), "the lease is given back long before its ttl")
    assert not hold._engine.watchdog.leases()


def test_trap_03_a_thread_that_ends_after_reentry_gives_back(scene: tuple[Spy, Any]) -> None:
    """The same when the thread had entered it again with ``with`` in between."""
    spy, hold = scene
    lock = hold.rlock("job", ttl=30)

    def work() -> None:
        lease = lock.acquire()
        with lock:
            lease.check()

    in_thread(work)
    gc.collect()
    tick(hold, 60, step=1)
    until(lambda: nothing_left(spy, "job"), "the lease is given back")


def test_trap_03_a_dropped_lease_is_not_renewed(scene: tuple[Spy, Any], caplog: pytest.LogCaptureFixture) -> None:
    """A Lease that nobody refers to is no longer renewed: it is warned about, and expires."""
    spy, hold = scene
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hold.lock("job", ttl=1).acquire()
        gc.collect()
        until(lambda: [one for one in caught if one.category is ResourceWarning], "it is warned about")
    tick(hold, 0.5)
    assert look(spy, "job").holders
    tick(hold, 0.6)
    assert nothing_left(spy, "job") and not spy.of(Renew)


def test_a_lease_that_is_being_handed_out_is_in_use(scene: tuple[Spy, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog finds it due before its Lease object is made, as with a short ttl: it is renewed, not let go."""
    spy, hold = scene
    made = leasehold.Lease.__init__

    def late(self: leasehold.Lease, *rest: Any) -> None:
        tick(hold, 0.4)
        made(self, *rest)

    monkeypatch.setattr(leasehold.Lease, "__init__", late)
    with hold.lock("job", ttl=1) as lease:
        assert spy.of(Renew)
        tick(hold, 2)
        assert lease.state == "held"


def test_a_dropped_lease_is_given_back_when_its_thread_ends(
    scene: tuple[Spy, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Dropped while its thread goes on, it is let expire; once the thread has ended, nobody can be at work under it."""
    spy, hold = scene
    dropped, end = threading.Event(), threading.Event()

    def careless() -> None:
        hold.lock("job", ttl=3600).acquire()
        dropped.set()
        end.wait(PATIENCE)

    thread = threading.Thread(target=careless)
    thread.start()
    assert dropped.wait(PATIENCE)
    until(lambda: "dropped without release" in caplog.text, "the watchdog has heard of it")
    assert look(spy, "job").holders
    end.set()
    thread.join(PATIENCE)
    until(lambda: nothing_left(spy, "job"), "given back long before its ttl")


def test_a_dropped_lease_warns_in_the_log_where_warnings_are_errors(
    scene: tuple[Spy, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The watchdog's thread has nobody to raise a warning to: it is logged, and the watchdog lives on."""
    _, hold = scene
    hold.lock("job", ttl=1).acquire()
    gc.collect()
    tick(hold, 0.5)
    until(lambda: "dropped without release" in caplog.text, "it is logged, by whichever thread heard of it")
    assert watchdogs()


def test_a_lease_held_through_its_lock_is_renewed(scene: tuple[Spy, Any]) -> None:
    """While the lock object and the thread live, ``lock.release()`` can reach it: it is renewed."""
    spy, hold = scene
    lock = hold.lock("job", ttl=1)
    lock.acquire()
    gc.collect()
    tick(hold, 5)
    assert lock.owned() and look(spy, "job").holders
    assert lock.release() is True and nothing_left(spy, "job")


def test_a_lease_held_through_its_first_lock_is_renewed(
    scene: tuple[Spy, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Entered again through another lock object, which is released and dropped: the first one still holds it."""
    spy, hold = scene
    lock = hold.rlock("job", ttl=1)
    lock.acquire()
    for _ in range(3):
        another = hold.rlock("job", ttl=1)
        another.acquire()
        another.acquire()
        assert another.release() and another.release()
        del another
        gc.collect()
        tick(hold, 5)
    assert lock.owned() and look(spy, "job").holders and "dropped" not in caplog.text
    assert lock.release() is True and nothing_left(spy, "job")


def test_a_lease_that_was_entered_again_is_dropped_once(
    scene: tuple[Spy, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """However many Lease objects stood for it, there is one warning."""
    spy, hold = scene
    lock = hold.rlock("job", ttl=1)
    lock.acquire()
    hold.rlock("job", ttl=1).acquire()
    hold.rlock("job", ttl=1).acquire()
    del lock
    tick(hold, 2)
    until(lambda: nothing_left(spy, "job"), "it expires")
    assert caplog.text.count("dropped without release") == 1


def test_a_dropped_lease_does_not_poison_its_thread(scene: tuple[Spy, Any]) -> None:
    """After a re-entrant lease was dropped and is over, the thread can acquire it anew."""
    _, hold = scene
    hold.rlock("job", ttl=1, renew=False).acquire()
    gc.collect()
    tick(hold, 2)
    lease = hold.rlock("job", ttl=1).acquire(wait=0)
    assert lease is not None and lease.state == "held"
    tick(hold, 3)
    assert lease.state == "held"


# ---------------------------------------------------------------- interrupts


class Stop(KeyboardInterrupt):
    """The interrupt of these tests."""


class Countdown:
    """Raises at the k-th time that anything is about to happen, or has."""

    def __init__(self, spy: Spy, k: int) -> None:
        self.left = k
        self.thread = threading.current_thread()
        spy.before = spy.after = lambda op: self.count()
        spy.on_take = self.count

    def count(self) -> None:
        """One more point; only those of the thread under test count."""
        if threading.current_thread() is self.thread:
            self.left -= 1
            if self.left == 0:
                raise Stop


def interrupted(spy: Spy, k: int, step: Any) -> bool:
    """Take the step with an interrupt at its k-th point; False when it was over before that."""
    countdown = Countdown(spy, k)
    try:
        step()
    except Stop:
        return True
    finally:
        spy.heal()
        spy.on_take = lambda: None
    assert countdown.left > 0
    return False


@pytest.mark.slow
def test_trap_09_an_interrupt_at_every_point_of_acquire_leaves_nothing() -> None:
    """Ctrl-C before or after any op, or while waiting: no holder and no waiter is left of that acquire."""
    points = 0
    while interrupt_acquire(points + 1):
        points += 1
        assert points < 200
    assert points >= 6


def interrupt_acquire(k: int) -> bool:
    """An acquire that waits, is handed the lock and closes its door; False when it was over before point k."""
    spy, hold = sync_scene()
    with hold, leasehold.connect(spy.inner) as other:
        holder = got(other.lock("job", ttl=60).acquire())
        over = threading.Event()
        waiting = hold.lock("job", ttl=0.15, at_least="1ms")
        with elsewhere(lambda: give_back_after_a_beat(spy, holder, over)):
            try:
                if not interrupted(spy, k, lambda: waiting.acquire(wait=PATIENCE)):
                    return False
            finally:
                over.set()
        until(lambda: nothing_left(spy, "job"), f"nothing is left after an interrupt at point {k}")
        until(lambda: not hold._engine.watchdog._background_ops, "no errand is left")
        until(lambda: not hold._engine.watchdog.leases(), "the watchdog forgets it")
        assert not hold._engine.registry
    return True


def give_back_after_a_beat(spy: Spy, lease: Lease, over: threading.Event) -> None:
    """Hand the lock on when the waiter has begun its second beat, so that it heard of its first, or has gone away."""
    until(lambda: over.is_set() or len(spy.of(Beat)) >= 2, "the waiter beats")
    lease.release()


@each("k", [1, 2, 3])
def test_an_interrupt_at_every_point_of_release_leaves_nothing(k: int) -> None:
    """Ctrl-C in the middle of a release: it goes on in the background, and may be repeated."""
    spy, hold = sync_scene()
    with hold:
        lease = got(hold.lock("job", ttl=60).acquire())
        done = not interrupted(spy, k, lease.release)
        assert done == (k == 3)
        until(lambda: nothing_left(spy, "job"), f"given back after an interrupt at point {k}")
        assert lease.state == "released" and lease.release() is (not done)
        assert not hold._engine.watchdog.leases() and not hold._engine.registry


@pytest.mark.slow
def test_an_interrupted_release_that_is_not_repeated_piles_nothing_up() -> None:
    """When the background has given it back, nothing of the lease is kept."""
    spy, hold = sync_scene()
    with hold:
        for number in range(20):
            with pytest.raises(Stop):
                interrupt_release(spy, hold, number)
        until(lambda: nothing_left(spy, "job:19"), "given back")
        gc.collect()
        until(lambda: not hold._engine.watchdog.leases(), "nothing is kept of what was given back")


def interrupt_release(spy: Spy, hold: Any, number: int) -> None:
    """Release with an interrupt after the op. What is kept of the lease is dropped when it would be renewed."""
    lease = hold.lock("job", number, ttl=3).acquire()
    Countdown(spy, 2)
    try:
        lease.release()
    finally:
        spy.heal()


# ---------------------------------------------------------------- the watchdog's thread


def test_no_thread_before_the_first_lease() -> None:
    """Looking and being refused need no helper thread; the first lease starts one; close() ends it."""
    before = len(watchdogs())
    spy, hold = sync_scene()
    spy.inner.execute(Claim("job", "somebody:1:x", 60_000))
    assert hold.lock("job").locked() is True
    assert hold.lock("job").try_acquire() is None
    assert hold.lock("job").acquire(wait=0.01) is None
    assert len(watchdogs()) == before
    got(hold.lock("other").acquire())
    assert len(watchdogs()) == before + 1
    got(hold.lock("third").acquire())
    assert len(watchdogs()) == before + 1
    hold.close()
    assert len(watchdogs()) == before


def test_a_forgotten_coordinator_leaves_no_thread() -> None:
    """A coordinator that nobody refers to any more: its watchdog's thread ends at once."""
    hold = leasehold.connect(MemoryStore())
    with hold.lock("job"):
        pass
    watchdog = hold._engine.watchdog
    del hold
    thread = watchdog._thread
    gc.collect()
    assert thread is not None
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_closing_is_quick() -> None:
    """``close()`` never waits for a watchdog that missed the call to stop: two hundred take no time."""
    for _ in range(200):
        with leasehold.connect(MemoryStore()) as hold:
            got(hold.lock("job").acquire())
            began = time.monotonic()
        assert time.monotonic() - began < 4  # a call that was missed costs 5


@pytest.mark.parametrize("kind", STORES)
def test_trap_37_a_thousand_leases_leave_nothing_behind(kind: str, tmp_path: Path) -> None:
    """Nothing grows with the number of acquisitions: registry, watchdog, mailboxes, the store's waiters."""
    store = open_store(kind, tmp_path)
    with leasehold.connect(store) as hold:
        lock = hold.lock("job")
        for number in range(1000):
            with lock:
                pass
            if number % 4 == 0:
                got(hold.lock("each", number).acquire()).release()
        engine = hold._engine
        assert not engine.registry and not engine.watchdog.leases() and not engine.watchdog._background_ops
        assert len(engine.connections._idle) <= 1 and len(store._connections) <= 2  # type: ignore[attr-defined]


def test_trap_37_old_names_leave_the_store(scene: tuple[Spy, Any]) -> None:
    """A name that was used once is forgotten when its fence is a day old: memory does not grow with every name."""
    spy, hold = scene
    for number in range(200):
        got(hold.lock("job", number).acquire()).release()
    assert isinstance(spy.inner, MemoryStore) and len(spy.inner._states) == 200
    hold._engine.clock.advance(2 * 24 * 3600)
    for _ in range(250):
        hold.lock("another").locked()
    assert len(spy.inner._states) < 5


def test_trap_37_lost_leases_pile_up_nowhere(scene: tuple[Spy, Any]) -> None:
    """A long-lived thread that loses lease after lease, each of another name, keeps none of them."""
    _, hold = scene
    for number in range(500):
        lease = hold.lock("job", number, ttl=1, renew=False).acquire()
        hold._engine.clock.advance(2)
        hold._engine.watchdog.round()
        assert lease.state == "lost"
        del lease
    assert len(hold._engine.registry) < 200 and not hold._engine.watchdog.leases()


def test_trap_37_threads_that_went_away_pile_up_nowhere(scene: tuple[Spy, Any]) -> None:
    """The same for threads that come, acquire and go."""
    spy, hold = scene
    for number in range(200):
        in_thread(partial(acquire_and_go, hold.lock("job", number, ttl=1)))
        hold._engine.clock.advance(0.5)
        hold._engine.watchdog.round()
    tick(hold, 2)
    got(hold.lock("last").acquire())
    assert len(hold._engine.registry) < 140 and len(hold._engine.watchdog.leases()) == 1
    assert nothing_left(spy, "job:0")


def test_a_thousand_leases_are_renewed_in_one_batch(scene: tuple[Spy, Any]) -> None:
    """However many fall due together: one batch, an answer for each, and none is lost but the one that was taken."""
    spy, hold = scene
    leases = [got(hold.lock("job", number, ttl=3).acquire()) for number in range(1000)]
    spy.inner._states.pop("job:500")  # type: ignore[attr-defined]
    tick(hold, 1.2)
    renewed = [len(batch) for batch in spy.batches if any(isinstance(op, Renew) for op in batch)]
    assert renewed == [1000]
    assert [number for number, lease in enumerate(leases) if lease.state != "held"] == [500]
    tick(hold, 2.5)
    assert all(lease.remaining() > 1 for number, lease in enumerate(leases) if number != 500)


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(("limit", "reason"), [("max_hold", "max_hold"), ("max_idle", "max_idle")])
def test_trap_05_hung_work_is_told(scene: tuple[Spy, Any], limit: str, reason: str) -> None:
    """``max_hold`` and ``max_idle`` end a lease that is renewed well: callbacks run, and others get it."""
    spy, hold = scene
    heard: list[LeaseLost] = []
    lease = hold.lock("job", ttl=3, **{limit: 5}).acquire()
    lease.on_lost(heard.append)
    tick(hold, 4.9)
    assert lease.state == "held" and lease.remaining() == pytest.approx(0.1) and spy.of(Renew)
    tick(hold, 0.2)
    until(lambda: heard, "the callback runs")
    assert heard[0].reason == reason and heard[0].fence == lease.fence and lease.lost.is_set()
    renewals = len(spy.of(Renew))
    tick(hold, 4)
    assert len(spy.of(Renew)) == renewals and nothing_left(spy, "job")


def test_beats_keep_it_and_max_hold_ends_it(scene: tuple[Spy, Any]) -> None:
    """Work that beats is not idle; ``max_hold`` ends it in any case."""
    _, hold = scene
    lease = hold.lock("job", ttl=3, max_idle=1, max_hold=5).acquire()
    for _ in range(6):
        tick(hold, 0.8)
        lease.beat()
    tick(hold, 0.3)
    with pytest.raises(LeaseLost) as info:
        lease.check()
    assert info.value.reason == "max_hold"


def test_a_lease_without_renewal_ends_at_its_deadline(scene: tuple[Spy, Any]) -> None:
    """``renew=False``: nothing is sent, and the whole ttl but the drift is there to work in."""
    spy, hold = scene
    lease = hold.lock("job", ttl=10, renew=False).acquire()
    assert lease.remaining() == pytest.approx(10 * 0.99 - 0.002)
    tick(hold, 9.85)
    assert lease.state == "held"
    tick(hold, 0.1)
    assert lease.state == "lost" and not spy.of(Renew)


# ---------------------------------------------------------------- with


def test_with_a_lease(scene: tuple[Spy, Any]) -> None:
    """A lease is a context manager too: it releases on exit, also after an error."""
    spy, hold = scene
    with pytest.raises(KeyError), hold.lock("job").acquire() as lease:
        raise KeyError("the body's own")
    assert lease.state == "released" and nothing_left(spy, "job")


def test_nested_with_of_different_locks(scene: tuple[Spy, Any]) -> None:
    """Several locks at once, each with its own fence, given back in any order."""
    spy, hold = scene
    with hold.lock("a") as a, hold.lock("b") as b, hold.lock("c") as c:
        assert a.state == b.state == c.state == "held" and hold.lock("b").owned()
    assert all(nothing_left(spy, name) for name in "abc")


def test_trap_28_with_does_not_enter_without_the_lock(scene: tuple[Spy, Any]) -> None:
    """A plain lock is not re-entrant: with wait=0 the second ``with`` of one thread is refused, the first stays."""
    _, hold = scene
    with hold.lock("job") as lease:
        with pytest.raises(NotAcquired), hold.lock("job", wait=0):
            pytest.fail("entered without the lock")
        assert lease.state == "held"


def test_releasing_inside_the_body_is_no_error(scene: tuple[Spy, Any]) -> None:
    """A body may give its lease back early; leaving it then raises nothing."""
    spy, hold = scene
    with hold.lock("job") as lease:
        assert lease.release() is True
    with hold.lock("job"):
        assert hold.lock("job").release() is True
    assert nothing_left(spy, "job")


def test_trap_29_releasing_inside_the_body_hides_no_error(scene: tuple[Spy, Any]) -> None:
    """The body's own error is what is seen, also when the lease was given back before."""
    _, hold = scene

    def work() -> None:
        with hold.lock("job") as lease:
            lease.release()
            raise KeyError("the body's own")

    with pytest.raises(KeyError):
        work()


def test_closing_inside_the_body_is_a_loss(scene: tuple[Spy, Any]) -> None:
    """``close()`` while the body runs: the lease is lost (closed), and leaving says so."""
    spy, hold = scene
    with pytest.raises(LeaseLost) as info, hold.lock("job"):
        hold.close()
    assert info.value.reason == "closed" and nothing_left(spy, "job")


def test_trap_29_closing_inside_the_body_hides_no_error(scene: tuple[Spy, Any]) -> None:
    """The body's own error stays; the loss is chained to it."""
    _, hold = scene

    def work() -> None:
        with hold.lock("job"):
            hold.close()
            raise KeyError("the body's own")

    with pytest.raises(KeyError) as info:
        work()
    assert isinstance(info.value.__context__, LeaseLost)


def test_trap_28_a_body_that_acquired_anew_still_learns_of_its_loss(scene: tuple[Spy, Any]) -> None:
    """The lease of the ``with`` was lost, and the body took the lock again: the ``with`` says so on exit, and does
    not release the new lease in place of its own (trap 8)."""
    spy, hold = scene
    leases: list[Lease] = []

    def work() -> None:
        with hold.lock("job", ttl=1, renew=False) as old:
            hold._engine.clock.advance(2)
            leases.extend([old, hold.lock("job").acquire()])

    with pytest.raises(LeaseLost) as info:
        work()
    old, new = leases
    assert info.value.fence == old.fence
    assert new.state == "held" and look(spy, "job").holders[0].owner == new.owner


def test_trap_28_nested_with_after_a_loss(scene: tuple[Spy, Any]) -> None:
    """The same with a nested ``with``: the inner one is fine, the outer one is lost."""
    spy, hold = scene
    done: list[int | None] = []

    def work() -> None:
        with hold.lock("job", ttl=1, renew=False):
            hold._engine.clock.advance(2)
            with hold.lock("job") as inner:
                done.append(inner.fence)
            done.append(None)

    with pytest.raises(LeaseLost):
        work()
    assert len(done) == 2 and nothing_left(spy, "job")


def test_one_lock_object_is_used_again_and_again(scene: tuple[Spy, Any]) -> None:
    """A lock object is no one-shot."""
    _, hold = scene
    lock = hold.lock("job")
    fences = []
    for _ in range(5):
        with lock as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


# ---------------------------------------------------------------- re-entry


def test_reentry_across_lock_objects(scene: tuple[Spy, Any]) -> None:
    """Two lock objects of one coordinator are one lock: no op is sent, the fence stays (trap 13)."""
    spy, hold = scene
    with hold.rlock("job") as outer:
        sent = len(spy.ops)
        with hold.rlock("job") as inner, hold.rlock("job"):
            assert inner.fence == outer.fence and len(spy.ops) == sent
        assert outer.state == "held" and len(spy.ops) == sent
    assert outer.state == "released" and nothing_left(spy, "job")


def test_trap_12_reentry_is_by_thread(scene: tuple[Spy, Any]) -> None:
    """Another thread is another owner, with the same lock object too."""
    _, hold = scene
    lock = hold.rlock("job")
    with lock:
        assert in_thread(lock.try_acquire) is None
        assert in_thread(hold.rlock("job").try_acquire) is None


def test_reentry_is_by_coordinator() -> None:
    """Another coordinator of the same process is another owner."""
    store = MemoryStore()
    with leasehold.connect(store) as one, leasehold.connect(store) as two, one.rlock("job"):
        assert two.rlock("job").try_acquire() is None


def test_a_plain_lock_does_not_reenter(scene: tuple[Spy, Any]) -> None:
    """Only ``rlock`` re-enters; a plain lock of the same thread is refused."""
    _, hold = scene
    with hold.rlock("job"):
        assert hold.lock("job").try_acquire() is None


def test_reentry_of_a_lost_lease(scene: tuple[Spy, Any]) -> None:
    """Entering again what was lost raises LeaseLost: the outer work must stop first."""
    _, hold = scene

    def work() -> None:
        with hold.rlock("job", ttl=1, renew=False):
            hold._engine.clock.advance(2)
            with pytest.raises(LeaseLost), hold.rlock("job"):
                pytest.fail("entered a lost lease")
            with pytest.raises(LeaseLost):
                hold.rlock("job").try_acquire()

    with pytest.raises(LeaseLost) as info:
        work()
    assert info.value.reason == "expired"
    with hold.rlock("job") as lease:
        assert lease.state == "held"


def test_trap_06_a_longer_inner_ttl_is_used_by_later_renewals(scene: tuple[Spy, Any]) -> None:
    """A shorter inner ttl changes nothing; a longer one is what the next renewal asks for."""
    spy, hold = scene
    with hold.rlock("job", ttl=3) as outer:
        with hold.rlock("job", ttl=1):
            tick(hold, 1.5)
        assert {renew.ttl_ms for renew in spy.of(Renew)} == {3000}
        with hold.rlock("job", ttl=9):
            tick(hold, 1.5)
            assert spy.of(Renew)[-1].ttl_ms == 9000
        tick(hold, 5)
        assert outer.ttl == 9 and {renew.ttl_ms for renew in spy.of(Renew)} == {3000, 9000}


def test_explicit_releases_count(scene: tuple[Spy, Any]) -> None:
    """As many releases as acquisitions; the one after the last answers False."""
    spy, hold = scene
    lock = hold.rlock("job")
    lease = lock.acquire()
    assert lock.acquire() is lease and lock.acquire() is lease
    assert lease.release() is True and lock.release() is True
    assert lease.state == "held" and look(spy, "job").holders
    assert lease.release() is True
    assert lease.state == "released" and nothing_left(spy, "job")
    assert lease.release() is False
    with pytest.raises(NotHeld):
        lock.release()


def test_an_explicit_release_inside_a_nested_body(scene: tuple[Spy, Any]) -> None:
    """Levels are left in any order: what was acquired explicitly inside is released inside."""
    spy, hold = scene
    with hold.rlock("job") as outer:
        inner = hold.rlock("job").acquire()
        assert inner.release() is True and outer.state == "held"
        with hold.rlock("job"):
            pass
        assert outer.state == "held"
    assert outer.state == "released" and nothing_left(spy, "job")


def test_an_inner_release_of_a_lost_lease_says_so(scene: tuple[Spy, Any]) -> None:
    """Leaving an inner level of a lease that is no longer ours answers False, as the last level does."""
    _, hold = scene
    lock = hold.rlock("job", ttl=1, renew=False)
    lease = lock.acquire()
    lock.acquire()
    hold._engine.clock.advance(2)
    assert lease.release() is False and lease.release() is False


def test_leaving_the_inner_body_of_a_lost_lease_raises(scene: tuple[Spy, Any]) -> None:
    """Loss is told at the first exit; the outer exit lets that error through."""
    _, hold = scene
    reached: list[str] = []

    def work() -> None:
        with hold.rlock("job", ttl=1, renew=False):
            with hold.rlock("job"):
                hold._engine.clock.advance(2)
            reached.append("after the inner body")

    with pytest.raises(LeaseLost):
        work()
    assert not reached
    assert hold.rlock("job").try_acquire() is not None


# ---------------------------------------------------------------- waiting and closing


@pytest.mark.parametrize("kind", STORES)
def test_closing_ends_those_who_wait(kind: str, tmp_path: Path) -> None:
    """``close()`` while a thread waits: it ends soon with an error of ours, and its place delays nobody."""
    store = open_store(kind, tmp_path)
    with leasehold.connect(store) as holder:
        hold = leasehold.connect(store if kind == "memory" else open_store(kind, tmp_path))
        lease = got(holder.lock("job", ttl=60).acquire())
        with elsewhere(hold.lock("job", ttl=0.3).acquire) as result:
            until(lambda: look(store, "job").queue, "the thread waits")
            hold.close()
            with pytest.raises(StoreUnavailable, match="closed"):
                result()
        lease.release()
        assert holder.lock("job").try_acquire() is not None


def test_closing_overtakes_a_release(caplog: pytest.LogCaptureFixture) -> None:
    """``close()`` gives back what another thread is just giving back: that thread is told that it was its own."""
    spy, hold = sync_scene()
    lease = got(hold.lock("job").acquire())
    under_way, go_on, answers = threading.Event(), threading.Event(), list[bool]()

    def hold_up(op: StoreOp) -> None:
        if isinstance(op, Release) and not op.again:
            under_way.set()
            assert go_on.wait(PATIENCE)

    def let_go(op: StoreOp) -> None:
        if isinstance(op, Release) and op.again:
            go_on.set()
            until(lambda: answers, "the thread is answered before the store is closed")

    spy.before, spy.after = hold_up, let_go
    with elsewhere(lambda: answers.append(lease.release())) as released:
        assert under_way.wait(PATIENCE)
        hold.close()
        released()
    assert answers == [True] and lease.state == "released" and not caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
def test_closing_the_holder_and_then_its_waiter_leaves_nothing(kind: str, tmp_path: Path) -> None:
    """As at the end of the interpreter: what the first gives back is handed to a waiter of the second, which is
    closed in the same moment; nobody holds it afterwards."""
    for number in range(10):
        store = open_store(kind, tmp_path)
        one = leasehold.connect(store if kind == "memory" else open_store(kind, tmp_path))
        two = leasehold.connect(store if kind == "memory" else open_store(kind, tmp_path))
        got(one.lock("job", number, ttl=600).acquire())
        close_both(store, one, two, number)
        store.close()


def close_both(store: Store, one: Any, two: Any, number: int) -> None:
    """Close the holder and then the coordinator whose thread waits."""
    name = f"job:{number}"
    with elsewhere(two.lock("job", number, ttl=600).acquire):
        until(lambda: look(store, name).queue, "the thread waits")
        one.close()
        two.close()
    until(lambda: not look(store, name).holders, "nobody holds it")


def test_a_waiter_that_gives_up_leaves_at_once(turning: tuple[Spy, Any, ManualClock]) -> None:
    """Trap 25: when the wait is over the place in the queue is gone, and those behind move up."""
    spy, hold, clock = turning
    lease = hold.lock("job", ttl=60).acquire()
    with (
        elsewhere(lambda: hold.lock("job").acquire(wait=1)) as first,
        elsewhere(lambda: hold.lock("job", ttl=60).acquire()) as second,
    ):
        until(lambda: len(look(spy, "job").queue) == 2, "both wait")
        clock.advance(1.1)
        assert first() is None
        until(lambda: len(look(spy, "job").queue) == 1, "one waits")
        lease.release()
        assert second().state == "held"
