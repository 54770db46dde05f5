"""What becomes of each lock of a batch, whatever becomes of the others: on threads and on asyncio."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold._core.many import MOST_TOGETHER
from leasehold._core.ops import Claim, Release, Renew, StoreOp, Withdraw
from leasehold.errors import InvalidRequest, LeaseLost, NotAcquired, OutcomeUnknown, StoreUnavailable
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Hook, Spy, look, nothing_left, only, reply_lost, unreachable
from tests.support.parties import FLAVOURS, Party
from tests.support.scene import fails
from tests.support.waiting import until


@pytest.fixture
def spy() -> Spy:
    """A store that remembers what is asked of it, on a clock that the test turns."""
    return Spy(MemoryStore(ManualClock()))


@pytest.fixture(params=FLAVOURS)
def party(request: pytest.FixtureRequest, spy: Spy) -> Iterator[Party]:
    """Somebody on it, in each flavour."""
    made: Party = FLAVOURS[request.param](spy)
    yield made
    spy.heal()
    made.close()


def take(party: Party, *names: str, **options: Any) -> Any:
    """One try at each."""
    return party.do(lambda hold: hold.acquire_many([hold.lock(name, **options) for name in names]))


def at(resource: str, kind: type, hook: Hook) -> Hook:
    """The hook, for ops of that kind on this resource alone."""
    return only(kind, lambda op: hook(op) if op.resource == resource else None)


def given_back(spy: Spy, *resources: str) -> None:
    """In the background: what was tried in vain is tried again after a while, on the clock of the test."""

    def gone() -> bool:
        spy.clock.advance(0.05)  # type: ignore[attr-defined]  # a clock that is turned
        return all(nothing_left(spy, resource) for resource in resources)

    until(gone, "all are given back")


# ---------------------------------------------------------------- what it costs


def test_one_round_trip_each_way(spy: Spy, party: Party) -> None:
    """A hundred claims are one batch, and so are a hundred releases."""
    batch = take(party, *[f"job{number}" for number in range(100)])
    assert batch.complete and [len(one) for one in spy.batches] == [100]
    assert party.do(lambda hold: hold.release_many(batch)) == [True] * 100
    assert [len(one) for one in spy.batches] == [100, 100]
    assert len(spy.of(Claim)) == len(spy.of(Release)) == len(spy.ops) / 2 == 100


def test_nothing_waits(spy: Spy, party: Party) -> None:
    """No claim of a batch enters a queue, whatever the wait of its lock."""
    batch = take(party, "a", "b", wait=60)
    assert batch.complete and not any(claim.enqueue for claim in spy.of(Claim))


def test_more_than_fit_into_one_request(spy: Spy, party: Party) -> None:
    """They are sent in parts, in order, and are one batch to the caller."""
    count = 2 * MOST_TOGETHER + 7
    batch = party.do(lambda hold: hold.acquire_many([hold.lock("job", number) for number in range(count)]))
    assert batch.complete and [lease.resource for lease in batch] == [f"job:{number}" for number in range(count)]
    assert [len(one) for one in spy.batches] == [MOST_TOGETHER, MOST_TOGETHER, 7]
    assert party.do(lambda _: batch.release()) is True


def test_at_least_costs_a_second_batch(spy: Spy, party: Party) -> None:
    """The doors of all are closed in one further round trip."""
    batch = take(party, "a", "b", "c", at_least=5)
    assert batch.complete and [[type(op) for op in one] for one in spy.batches] == [[Claim] * 3, [Renew] * 3]
    assert all(renew.closed_ms == 5000 for renew in spy.of(Renew))
    assert party.do(lambda _: batch.release()) is True and not party.do(lambda hold: hold.lock("a").try_acquire())


def test_entering_again_costs_nothing(spy: Spy, party: Party) -> None:
    """What the caller holds already is not claimed, and not released before the outermost release."""
    outer = party.do(lambda hold: hold.rlock("a").acquire())
    spy.batches.clear()
    batch = party.do(lambda hold: hold.acquire_many([hold.rlock("a")]))
    assert batch[0] is outer and party.do(lambda _: batch.release()) is True
    assert spy.batches == [] and outer.state == "held" and party.do(lambda _: outer.release()) is True


# ---------------------------------------------------------------- some fail


def test_one_that_cannot_be_reached(spy: Spy, party: Party) -> None:
    """It failed, and nothing of it was taken; the others are granted."""
    spy.before = at("b", Claim, unreachable)
    batch = take(party, "a", "b", "c")
    assert [lease is not None for lease in batch] == [True, False, True] and not batch.complete
    assert list(batch.failed) == ["b"] and isinstance(batch.failed["b"], StoreUnavailable) and batch.refused == {}
    assert batch.failed["b"].resource == "b" and not spy.of(Withdraw)


def test_one_whose_reply_is_lost(spy: Spy, party: Party) -> None:
    """It is unknown what became of it: the error says so, and what was taken is given back in the background."""
    spy.after = at("b", Claim, reply_lost)
    batch = take(party, "a", "b", "c")
    assert list(batch.failed) == ["b"] and isinstance(batch.failed["b"], OutcomeUnknown)
    given_back(spy, "b")
    (withdrawal,) = spy.of(Withdraw)
    assert withdrawal.forget_ms >= 60_000, "a claim that arrives later gets nothing"
    assert [lease.state for lease in batch.acquired] == ["held", "held"]


def test_all_of_them_fail(spy: Spy, party: Party) -> None:
    """An outage is an error, as for a single lock, and not a batch that looks as if all were busy."""
    spy.before = only(Claim, unreachable)
    error = fails(StoreUnavailable, party.start(lambda hold: hold.acquire_many([hold.lock("a"), hold.lock("b")])))
    assert error.resource == "a"
    spy.heal()
    spy.after = only(Claim, reply_lost)
    fails(OutcomeUnknown, party.start(lambda hold: hold.acquire_many([hold.lock("a"), hold.lock("b")])))
    given_back(spy, "a", "b")
    assert not party.hold._engine.pending


def test_one_is_refused_and_the_other_fails(spy: Spy, party: Party) -> None:
    """Then something is known, and the batch tells the two apart."""
    theirs = party.do(lambda hold: hold.lock("a").acquire())
    spy.before = at("b", Claim, unreachable)
    batch = take(party, "a", "b")
    assert list(batch.refused) == ["a"] and list(batch.failed) == ["b"] and batch.acquired == ()
    assert isinstance(batch.refused["a"], NotAcquired) and theirs.state == "held"


def test_a_silent_store_is_asked_once(spy: Spy, party: Party) -> None:
    """When a whole request goes unanswered, the rest is not sent: a hundred requests would take minutes."""
    spy.after = only(Claim, reply_lost)
    count = MOST_TOGETHER + 50

    def step(hold: Any) -> Any:
        return hold.acquire_many([hold.lock("job", number) for number in range(count)])

    fails(OutcomeUnknown, party.start(step))
    assert len(spy.of(Claim)) == MOST_TOGETHER
    given_back(spy, *[f"job:{number}" for number in range(count)])


def test_a_second_request_that_goes_unanswered(spy: Spy, party: Party) -> None:
    """What the first one got is kept."""
    count = MOST_TOGETHER + 50
    late = {f"job:{number}" for number in range(MOST_TOGETHER, count)}
    spy.before = only(Claim, lambda op: unreachable(op) if op.resource in late else None)
    batch = party.do(lambda hold: hold.acquire_many([hold.lock("job", number) for number in range(count)]))
    assert len(batch.acquired) == MOST_TOGETHER and set(batch.failed) == late
    spy.heal()
    assert party.do(lambda _: batch.release()) is True


def test_a_confirmation_that_is_lost(spy: Spy, party: Party) -> None:
    """With at_least the second round trip may fail for one of them: that one is given back."""
    spy.after = at("b", Renew, reply_lost)
    batch = take(party, "a", "b", "c", at_least=5)
    assert [lease.resource for lease in batch.acquired] == ["a", "c"] and list(batch.failed) == ["b"]
    given_back(spy, "b")


def test_a_reply_that_takes_longer_than_the_ttl(spy: Spy, party: Party) -> None:
    """A grant whose time is over when it is known is not entered: that lock is refused, and given back."""

    def slow(op: StoreOp) -> None:
        spy.clock.advance(0.3)  # type: ignore[attr-defined]  # a clock that is turned

    spy.after = at("b", Claim, slow)
    batch = party.do(lambda hold: hold.acquire_many([hold.lock("a", ttl=0.2), hold.lock("b", ttl=60)]))
    assert [lease.resource for lease in batch.acquired] == ["b"] and list(batch.refused) == ["a"]
    given_back(spy, "a")


def test_what_the_store_rejects(spy: Spy, party: Party) -> None:
    """More permits than there ever will be: an error of that one alone."""
    party.do(lambda hold: hold.semaphore("pool", limit=3).resize(1))
    batch = party.do(lambda hold: hold.acquire_many([hold.semaphore("pool", limit=3, permits=2), hold.lock("a")]))
    assert list(batch.failed) == ["pool"] and isinstance(batch.failed["pool"], InvalidRequest)
    assert [lease.resource for lease in batch.acquired] == ["a"]


def test_a_lost_lease_that_was_to_be_entered_again(spy: Spy, party: Party) -> None:
    """It failed with its loss; the others are granted."""
    outer = party.do(lambda hold: hold.rlock("a", ttl=1, renew=False).acquire())
    spy.clock.advance(2)  # type: ignore[attr-defined]  # a clock that is turned
    batch = party.do(lambda hold: hold.acquire_many([hold.rlock("a", ttl=1), hold.rlock("b")]))
    assert isinstance(batch.failed["a"], LeaseLost) and outer.state == "lost"
    assert [lease.resource for lease in batch.acquired] == ["b"]


# ---------------------------------------------------------------- releasing


def test_a_release_whose_reply_is_lost(spy: Spy, party: Party) -> None:
    """The others are released; this one goes on in the background, and may be repeated."""
    batch = take(party, "a", "b", "c")
    spy.after = at("b", Release, reply_lost)
    error = fails(OutcomeUnknown, party.start(lambda hold: hold.release_many(batch)))
    assert "1 of 3 releases" in str(error) and error.resource == "b" and error.fence == batch[1].fence
    assert nothing_left(spy, "a") and nothing_left(spy, "c")
    spy.heal()
    assert party.do(lambda hold: hold.release_many([batch[1]])) == [True]


def test_a_body_that_ends_while_the_store_is_away(spy: Spy, party: Party) -> None:
    """Nothing is raised: the releases go on in the background."""
    batch = take(party, "a", "b")
    spy.before = only(Release, unreachable)
    if hasattr(batch, "__aenter__"):

        async def awaited(_: Any) -> None:
            async with batch:
                pass

        party.do(awaited)
    else:

        def entered(_: Any) -> None:
            with batch:
                pass

        party.do(entered)
    spy.heal()
    given_back(spy, "a", "b")


def test_a_silent_store_is_asked_once_for_releases(spy: Spy, party: Party) -> None:
    """What was not sent goes on in the background with the rest."""
    count = MOST_TOGETHER + 5
    batch = party.do(lambda hold: hold.acquire_many([hold.lock("job", number) for number in range(count)]))
    spy.before = only(Release, unreachable)
    spy.ops.clear()
    watchdog = party.hold._engine.watchdog
    watchdog.pause()
    fails(OutcomeUnknown, party.start(lambda hold: hold.release_many(batch)))
    assert len(spy.of(Release)) == MOST_TOGETHER
    spy.heal()
    watchdog.pause(False)
    given_back(spy, *[f"job:{number}" for number in range(count)])


def test_leases_of_anywhere(spy: Spy, party: Party) -> None:
    """Of a single acquire, of a batch and of an all, in one call."""
    single = party.do(lambda hold: hold.lock("a").acquire())
    both = party.do(lambda hold: hold.all(hold.lock("b"), hold.lock("c")).acquire())
    batch = take(party, "d")
    assert party.do(lambda hold: hold.release_many([single, *both, *batch, None])) == [True] * 4 + [False]
    assert not any(look(spy, name).holders for name in "abcd")


# ---------------------------------------------------------------- its leases are like any other


def test_the_lock_can_release_what_its_batch_got(spy: Spy, party: Party) -> None:
    """As after lock.acquire(): owned() and release() of the lock know the lease."""
    locks: list[Any] = []

    def step(hold: Any) -> Any:
        locks.extend([hold.lock("a"), hold.lock("b")])
        return hold.acquire_many(locks)

    batch = party.do(step)
    assert party.do(lambda _: locks[0].owned()) and party.do(lambda _: locks[0].release()) is True
    assert [lease.state for lease in batch.acquired] == ["released", "held"]


def test_errors_keep_nothing_alive(spy: Spy, party: Party) -> None:
    """A batch that is kept for its errors does not keep the frames of the call, nor a lease that was dropped."""
    spy.before = at("b", Claim, unreachable)
    batches = [take(party, "a", "b")]
    lease = weakref.ref(batches[0][0])
    failed = batches[0].failed["b"]
    assert failed.__traceback__ is None
    party.do(lambda _: batches[0].release())
    batches.clear()
    gc.collect()
    assert lease() is None and isinstance(failed, StoreUnavailable)


def test_a_lease_that_is_dropped(spy: Spy, party: Party) -> None:
    """One that nobody refers to is no longer renewed: a batch is not a registry."""
    batch = take(party, "a", "b")
    kept = batch[0]
    watchdog = party.hold._engine.watchdog
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("leasehold._runtime.watchdog._warn_abandoned", lambda held: None)
        del batch
        gc.collect()
        until(lambda: (watchdog.round(), len(watchdog._expiring))[1] == 1, "it is noticed")
    assert kept.state == "held" and party.do(lambda _: kept.release()) is True


def test_a_batch_that_is_dropped_while_its_locks_are_kept(spy: Spy, party: Party) -> None:
    """As after lock.acquire(): the lock can still release the lease, so that is renewed."""
    locks: list[Any] = []

    def step(hold: Any) -> Any:
        locks.append(hold.lock("a"))
        return hold.acquire_many(locks)

    party.do(step)
    gc.collect()
    watchdog = party.hold._engine.watchdog
    watchdog.round()
    assert not watchdog._expiring and party.do(lambda _: locks[0].release()) is True
