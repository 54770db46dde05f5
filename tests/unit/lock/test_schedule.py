"""The schedule of the watchdog: when each lease is checked, never late, and never in step with other processes."""

from __future__ import annotations

import random
from typing import Any

import pytest

import leasehold
from leasehold._core.holding import NEVER
from leasehold._core.policy import retry_renewal_after
from leasehold._runtime import schedule
from leasehold._runtime.schedule import STEPS, Schedule, early
from leasehold.stores.memory import MemoryStore
from tests.support.lock import StillClock
from tests.support.tables import each


class FakeLease:
    """What the schedule knows of a lease."""

    def __init__(self, ttl_ms: int, at: float) -> None:
        self.ttl_ms = ttl_ms
        self.at = at
        self.stop = at + ttl_ms / 1000
        self.phase = "held"
        self.bucket: set[Any] = set()

    def check_at(self) -> float:
        """When it must be checked."""
        return self.at

    @property
    def stop_at(self) -> float:
        """When it is lost."""
        return self.stop


@pytest.fixture(params=range(3))
def draws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """Random numbers, for the test and for the schedule."""
    source = random.Random(request.param)
    monkeypatch.setattr(schedule, "drawn", source.random)
    return source


def file(filed: Schedule, *leases: FakeLease) -> list[float]:
    """Their moments."""
    return [filed.add(lease) for lease in leases]  # type: ignore[arg-type]  # all that it needs


def test_a_lease_is_filed_at_most_two_steps_before_its_time_and_never_after(draws: random.Random) -> None:
    """Later would cost the lease; much earlier would cost renewals."""
    for _ in range(500):
        filed = Schedule()
        ttl_ms = draws.choice([50, 333, 1_000, 30_000, 3_600_000, 86_400_000])
        at = draws.uniform(0, 10_000_000)
        (moment,) = file(filed, FakeLease(ttl_ms, at))
        assert at - early(ttl_ms) - 1e-6 <= moment <= at + 1e-6
        filed.draw()
        (again,) = file(filed, FakeLease(ttl_ms, at))
        assert at - early(ttl_ms) - 1e-6 <= again <= at + 1e-6


def test_a_renewal_comes_after_a_quarter_of_the_ttl_at_the_earliest() -> None:
    """Two steps before a third."""
    assert 30 / 3 - early(30_000) == pytest.approx(30 / 4)


def test_thousands_of_leases_share_a_few_moments(draws: random.Random) -> None:
    """Acquired at any time in a third of the ttl, and with two lengths: whoever is due next is found at once."""
    filed = Schedule()
    leases = [FakeLease(draws.choice([30_000, 31_000]), 1_000 + draws.random() * 10) for _ in range(5_000)]
    assert len(set(file(filed, *leases))) <= STEPS
    assert sorted(map(id, filed.leases())) == sorted(map(id, leases))


def test_a_fleet_does_not_renew_in_step(draws: random.Random) -> None:
    """Hundred processes that acquired at the same moment, each with one lease: their renewals spread over more than a
    step, and each process does so anew in every round."""
    fleet = [Schedule() for _ in range(100)]
    for _ in range(3):
        moments = [file(one, FakeLease(30_000, 1_000.0))[0] for one in fleet]
        assert max(moments) - min(moments) > early(30_000) / 2
        assert len(set(moments)) > 90
        for one in fleet:
            one.draw()


@each("ttl_ms", [1_000, 12_000, 30_000, 3_600_000])
def test_the_retries_of_a_fleet_spread_as_well(ttl_ms: int, draws: random.Random) -> None:
    """All fail at the same moment, and try again after the same pause: some after half of it, none later."""
    pause = retry_renewal_after(ttl_ms / 1000)
    moments = []
    for one in [Schedule() for _ in range(100)]:
        lease = FakeLease(ttl_ms, 1_000.0)
        file(one, lease)
        lease.at = 1_000.0 + pause
        moments.append(one.move([lease], 1_000.0))  # type: ignore[list-item]
    assert all(1_000.0 < moment <= 1_000.0 + pause for moment in moments)
    assert len(set(moments)) > 90 and max(moments) - min(moments) > pause / 4


def test_the_time_to_stop_is_filed_exactly(draws: random.Random) -> None:
    """A loss is declared when it happens, not at the next step, and the watchdog does not wake again and again."""
    filed = Schedule()
    lease = FakeLease(30_000, 1_000.0)
    lease.stop = 1_000.0
    (moment,) = file(filed, lease)
    assert filed.move([lease], moment) == 1_000.0  # type: ignore[list-item]
    assert filed.next_at() == 1_000.0 and filed.until(999.9) == [] and len(filed.until(1_000.0)) == 1


def test_what_has_ended_or_was_removed_is_not_filed_again(draws: random.Random) -> None:
    """The thread that renews may be about to file a lease that another thread gives back."""
    filed = Schedule()
    ended, removed = FakeLease(30_000, 1_000.0), FakeLease(30_000, 1_000.0)
    file(filed, ended, removed)
    ended.phase = "releasing"
    filed.remove(removed)  # type: ignore[arg-type]
    ended.at = removed.at = 2_000.0
    assert filed.move([ended, removed], 900.0) == NEVER  # type: ignore[list-item]
    filed.remove(ended)  # type: ignore[arg-type]
    assert filed.leases() == [] and filed.next_at() == NEVER


@each("count, shared", [(1, 0), (1, 1), (3, 0), (3, 1), (10, 1)])
def test_buckets_move_together_and_leave_others_behind(count: int, shared: int, draws: random.Random) -> None:
    """Only what holds nothing but the renewed ones is moved as it is; nothing is lost, and nothing is filed twice."""
    filed = Schedule()
    renewed = [FakeLease(30_000, 1_000.0 + number) for number in range(count)]
    other, far, there = FakeLease(30_000, 1_000.0), FakeLease(600_000, 5_000.0), FakeLease(30_000, 1_020.0)
    file(filed, *renewed, *[other] * shared, far, there)
    for lease in renewed:
        lease.at = 1_020.0
    now = 1_010.5
    moved: Any = filed.move_together(set(renewed), 30_000, 1_020.0, now)  # type: ignore[arg-type]
    assert shared or moved
    rest: Any = [lease for lease in (*renewed, other) if lease.bucket is not moved]
    filed.move(rest, now)
    found: list[Any] = filed.leases()
    assert sorted(map(id, found)) == sorted(map(id, [*renewed, *[other] * shared, far, there]))
    assert all(lease in lease.bucket for lease in found)
    assert {id(lease.bucket) for lease in (*renewed, there)} == {id(there.bucket)}
    due: list[Any] = filed.until(now)
    soon: list[Any] = filed.until(1_020.0)
    assert due == [other] * shared and far not in soon
    filed.remove(renewed[0])  # type: ignore[arg-type]
    assert len(filed.until(1_020.0)) == count + shared


@each("ended", [True, False])
def test_an_interrupted_move_keeps_the_lease_and_no_thread_awake(ended: bool) -> None:
    """Ctrl-C in the middle of a move leaves the lease under two moments. When the wrong one comes, it is dropped there;
    else the watchdog would find it due for ever."""
    clock = StillClock()
    with leasehold.connect(MemoryStore(clock)) as hold:
        lease = hold.lock("job", ttl=30).acquire()
        assert lease is not None
        watchdog = hold._engine.watchdog
        wrong: set[Any] = {lease._held}
        watchdog._schedule._files[clock.now() + 1] = wrong
        if ended:
            lease.release()
        clock.advance(1)
        watchdog.round()
        assert not wrong and watchdog.next_at() > clock.now()
        assert watchdog.leases() == ([] if ended else [lease._held])
        clock.advance(10)
        watchdog.round()
        assert lease.state == ("released" if ended else "held")


def test_a_lease_that_is_given_back_leaves_no_trace() -> None:
    """However many are acquired and given back, the schedule stays small."""
    with leasehold.connect("memory://") as hold:
        for number in range(300):
            with hold.lock("job", number, ttl=30 + number % 7):
                pass
        watchdog = hold._engine.watchdog
        assert watchdog.leases() == []
        watchdog.next_at()
        assert not watchdog._schedule._files
