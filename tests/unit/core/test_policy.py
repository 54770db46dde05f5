"""The numbers of the protocol, and how they stand to one another."""

from __future__ import annotations

import pytest

from leasehold._core import policy
from tests.support.tables import each

TTLS = [policy.MIN_TTL_MS, 200, 1_000, 3_000, 30_000, policy.MAX_TTL_MS]


@each(("ttl_ms", "patience"), [(50, 50), (2_999, 2_999), (3_000, 3_000), (30_000, 3_000)])
def test_patience_is_the_ttl_and_at_most_three_seconds(ttl_ms: int, patience: int) -> None:
    """L of the design."""
    assert policy.patience_ms(ttl_ms) == patience
    assert policy.forgotten_after_ms(ttl_ms) == 10 * patience


@each("ttl_ms", TTLS)
def test_two_beats_may_be_lost_before_a_waiter_is_skipped(ttl_ms: int) -> None:
    """Three intervals fit into L."""
    assert 3 * policy.beat_every_ms(ttl_ms) <= policy.patience_ms(ttl_ms)
    assert policy.beat_every_ms(ttl_ms) >= policy.SHORT_BEAT_MS


@each(("ttl_ms", "kept"), [(50, 60_000), (60_000, 60_000), (60_001, 60_001)])
def test_a_tombstone_stands_for_the_ttl_and_at_least_a_minute(ttl_ms: int, kept: int) -> None:
    """A claim in a socket buffer can be that late."""
    assert policy.tombstone_ms(ttl_ms) == kept


@each("ttl_ms", TTLS)
def test_renewal_comes_before_the_margin_and_the_margin_before_the_deadline(ttl_ms: int) -> None:
    """There is time for a first try, a second, and for winding down."""
    ttl = ttl_ms / 1000
    deadline = ttl - policy.drift(ttl)
    stop = deadline - policy.margin(ttl)
    second = policy.renew_after(ttl) + policy.retry_renewal_after(ttl)
    assert 0 < policy.renew_after(ttl) < second < stop < deadline < ttl


def test_the_drift_is_one_percent_and_two_milliseconds() -> None:
    """Of the stretch that is measured."""
    assert policy.drift(0) == pytest.approx(0.002)
    assert policy.drift(100) == pytest.approx(1.002)


def test_the_head_looks_when_the_holders_time_ends() -> None:
    """Only the head: else every waiter would wake for one grant."""
    assert policy.next_beat_ms(30_000, ahead=0, free_in_ms=400, pushable=True) == 400
    assert policy.next_beat_ms(30_000, ahead=1, free_in_ms=400, pushable=True) == 1_000
    assert policy.next_beat_ms(30_000, ahead=0, free_in_ms=20_000, pushable=True) == 1_000


def test_trap_24_a_head_that_cannot_be_pushed_looks_often() -> None:
    """Every 20 to 50 ms; one behind it has time."""
    assert 20 <= policy.next_beat_ms(30_000, ahead=0, free_in_ms=20_000, pushable=False) <= 50
    assert policy.next_beat_ms(30_000, ahead=1, free_in_ms=20_000, pushable=False) == 1_000


@each("ttl_ms", TTLS)
@each("ahead", [0, 1])
@each("free_in_ms", [0, 1, 10_000])
@each("pushable", [True, False])
def test_trap_24_every_park_is_bounded(ttl_ms: int, ahead: int, free_in_ms: int, pushable: bool) -> None:
    """Never zero, which would spin; never longer than a third of the patience."""
    pause = policy.next_beat_ms(ttl_ms, ahead, free_in_ms, pushable)
    assert 0 < pause <= policy.patience_ms(ttl_ms) // 3


def test_fences_fit_into_a_float() -> None:
    """2**53 is where Lua and JavaScript stop counting by one; a day of room is left below it."""
    assert float(policy.MAX_FENCE + policy.DAY_US) == policy.MAX_FENCE + policy.DAY_US
    assert policy.MAX_FENCE + policy.DAY_US <= 2**53
