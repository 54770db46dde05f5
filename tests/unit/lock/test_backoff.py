"""Backoff: how many tries, how long the pauses, which errors, and that it is a value."""

from __future__ import annotations

import asyncio
import copy
import pickle
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import leasehold
from leasehold import Backoff, InvalidRequest, LeaseLost, NotAcquired, OutcomeUnknown, StoreUnavailable
from tests.support.tables import each
from tests.support.waiting import PATIENCE, until_async

QUICK = Backoff(base=1e-6, cap=1e-6, attempts=3)  # real sleeps that nobody notices


class Flaky:
    """Raises the errors it was given, one a call, then returns how often it was called."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        """One try."""
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls

    async def awaited(self) -> int:
        """One try, on a loop."""
        await asyncio.sleep(0)
        return self()


Way = Callable[..., int]


def on_thread(retry: Backoff, flaky: Flaky, **more: Any) -> int:
    """Through ``call``."""
    return retry.call(flaky, **more)


def on_loop(retry: Backoff, flaky: Flaky, **more: Any) -> int:
    """Through ``acall``."""
    return asyncio.run(retry.acall(flaky.awaited, **more))


both = pytest.mark.parametrize("way", [on_thread, on_loop])


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are asked for, on both ways; none is taken."""
    taken: list[float] = []
    asleep = asyncio.sleep

    async def nap(seconds: float) -> None:
        if seconds:
            taken.append(seconds)
        await asleep(0)

    monkeypatch.setattr(time, "sleep", taken.append)
    monkeypatch.setattr(asyncio, "sleep", nap)
    return taken


def test_the_pauses_double_up_to_the_cap() -> None:
    """Pause n lies in [s/2, s] with s = min(cap, base × 2**n), and they do vary."""
    retry = Backoff(base=0.1, cap=1, attempts=8)
    drawn = [list(retry) for _ in range(200)]
    for n, most in enumerate([0.1, 0.2, 0.4, 0.8, 1, 1, 1]):
        column = [pauses[n] for pauses in drawn]
        assert most / 2 <= min(column) < most * 0.6 and most * 0.9 < max(column) <= most
    assert {len(pauses) for pauses in drawn} == {7}


def test_the_cap_wins() -> None:
    """Also over a base that is longer."""
    assert all(0.5 <= pause <= 1 for pause in Backoff(base=60, cap=1, attempts=50))


def test_seeds_do_not_line_up_the_pauses() -> None:
    """Workers that seed ``random`` alike do not come back at the same moment, and we draw none of its numbers."""
    random.seed(1)
    first = list(Backoff())
    after = random.random()
    random.seed(1)
    assert list(Backoff()) != first
    assert random.random() == after


def test_one_attempt_has_no_pause() -> None:
    """``attempts=1`` tries once."""
    assert list(Backoff(attempts=1)) == []
    with pytest.raises(NotAcquired):
        Backoff(attempts=1).call(Flaky(NotAcquired("busy")))


@both
def test_it_tries_until_it_succeeds(way: Way, naps: list[float]) -> None:
    """Busy and unreachable pass; there is a pause after each, and none after success."""
    retry = Backoff(base=10, cap=100, attempts=5)
    assert way(retry, Flaky(NotAcquired("busy", retry_in=0.001), StoreUnavailable("away"))) == 3
    assert len(naps) == 2
    assert 5 <= naps[0] <= 10 and 10 <= naps[1] <= 20  # whatever retry_in says


@both
def test_the_last_error_is_raised(way: Way, naps: list[float]) -> None:
    """``attempts`` tries, and then the error of the last one, itself."""
    errors = [NotAcquired(str(n)) for n in range(9)]
    flaky = Flaky(*errors)
    with pytest.raises(NotAcquired) as raised:
        way(Backoff(attempts=4), flaky)
    assert raised.value is errors[3] and raised.value.__context__ is None
    assert flaky.calls == 4 and len(naps) == 3


@both
@each("error", [OutcomeUnknown("perhaps"), LeaseLost("gone"), InvalidRequest("bad"), TimeoutError(), KeyError(1)])
def test_nothing_else_is_tried_again(way: Way, naps: list[float], error: Exception) -> None:
    """What may have happened, and what will not get better, comes out at once."""
    flaky = Flaky(error)
    with pytest.raises(type(error)) as raised:
        way(Backoff(), flaky)
    assert raised.value is error and flaky.calls == 1 and not naps


@both
def test_the_errors_can_be_chosen(way: Way) -> None:
    """A class or several."""
    assert way(QUICK, Flaky(KeyError(1)), on=LookupError) == 2
    assert way(QUICK, Flaky(KeyError(1), OSError()), on=(LookupError, OSError)) == 3
    with pytest.raises(NotAcquired):
        way(QUICK, Flaky(NotAcquired("busy")), on=LookupError)


@both
@each("on", [BaseException, KeyboardInterrupt, asyncio.CancelledError, (), None, "all", [KeyError]])
def test_what_is_no_error_is_never_tried_again(way: Way, on: Any) -> None:
    """Interrupts and cancellation end it; asking otherwise is refused before the first try."""
    flaky = Flaky()
    with pytest.raises(InvalidRequest, match="Exception"):
        way(QUICK, flaky, on=on)
    assert flaky.calls == 0


async def test_cancelling_ends_the_pause() -> None:
    """A task that is cancelled while it pauses tries no more."""
    flaky = Flaky(*[NotAcquired("busy")] * 9)
    task = asyncio.create_task(Backoff(base=3600, cap=3600).acall(flaky.awaited))
    await until_async(lambda: flaky.calls, "the first try")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert flaky.calls == 1


def test_a_coroutine_function_needs_acall() -> None:
    """``call`` would return a coroutine whose errors nobody tries again."""
    awaited: Callable[[], Any] = Flaky().awaited
    with pytest.raises(InvalidRequest, match="acall"):
        QUICK.call(awaited)


def test_with_a_lock() -> None:
    """As people use it: a lock that is busy twice, and free at the third try."""
    with leasehold.connect("memory://backoff") as hold:
        lease = hold.lock("job").acquire(wait=0)
        tries = []

        def work() -> str:
            tries.append(1)
            if len(tries) == 3:
                assert lease and lease.release()
            with hold.lock("job", wait=0):
                return "done"

        assert QUICK.call(work) == "done" and len(tries) == 3


@each("short", [0.7, "700ms", timedelta(milliseconds=700)])
def test_it_is_a_value(short: Any) -> None:
    """Equal, hashed, shown, copied and pickled by what it says; a duration may be written in any way."""
    retry = Backoff(short, "5s", 3)
    same = Backoff(base=0.7, cap=5, attempts=3)
    assert retry == same and hash(retry) == hash(same) and repr(retry) == "Backoff(base=0.7, cap=5, attempts=3)"
    assert (retry.base, retry.cap, retry.attempts) == (0.7, 5.0, 3)
    assert retry != Backoff(0.7, 5, 4) and retry != Backoff(0.7, 6, 3) and retry != (0.7, 5.0, 3)
    assert copy.deepcopy(retry) == copy.copy(retry) == pickle.loads(pickle.dumps(retry)) == retry  # noqa: S301 - ours


def test_it_is_never_changed() -> None:
    """One value serves many callers."""
    retry: Any = Backoff()
    with pytest.raises(AttributeError, match="make another"):
        retry.base = 1
    with pytest.raises(AttributeError, match="make another"):
        retry.other = 1
    with pytest.raises(AttributeError, match="make another"):
        del retry.cap
    assert retry == Backoff(base=0.05, cap=2, attempts=5)


@each("bad", [0, -1, float("nan"), float("inf"), "soon", "", None, True, b"1s", [], 1e-12, "25h"])
@each("which", ["base", "cap"])
def test_bad_durations_are_refused(which: str, bad: Any) -> None:
    """With the name of the parameter."""
    with pytest.raises(InvalidRequest, match=which):
        Backoff(**{which: bad})


@each("bad", [0, -1, 10_001, 2.0, "5", None, True])
def test_bad_attempts_are_refused(bad: Any) -> None:
    """At least one try, and an end."""
    with pytest.raises(InvalidRequest, match="attempts"):
        Backoff(attempts=bad)
    assert len(list(Backoff(attempts=10_000))) == 9_999
