"""Renewals of many holdings at once: which are plain, and what a confirmation or a failure does to each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leasehold._core import ops
from leasehold._core.holding import Holding, LocalGrant
from leasehold._core.renewals import confirm_plain, fail, last_try_at, plain
from leasehold._core.rules import READ, SEMAPHORE, WRITE
from leasehold.errors import OutcomeUnknown
from tests.support.tables import each
from tests.unit.core.play import NAME, Latch

OWNER = "host:7:secret.1"
TTL = 30_000
SENT, AT = 100.0, 100.5


def hold(rule: str = "mutex", ttl_ms: int = TTL, **limits: Any) -> Holding:
    """A lease asked for at 100.0, granted in full, known at 100.5."""
    return Holding(NAME, LocalGrant(OWNER, 7, ttl_ms, SENT, ttl_ms, AT, False, rule), Latch(), **limits)


def extend(holding: Holding) -> None:
    """Without a reply."""
    holding.begin_extension(60_000, 101.0)
    holding.end_change()


def belief(holding: Holding) -> tuple[object, ...]:
    """All that a holder believes."""
    return (holding.phase, holding.reason, holding.deadline, holding.stop_at, holding.renew_at, holding.ttl_ms)


# ---------------------------------------------------------------- what is plain

CHANGES: dict[str, Callable[[Holding], object]] = {
    "extended": lambda one: one.begin_extension(60_000, 101.0),
    "extended, and that is over": extend,
    "to be given away": lambda one: one.begin_transfer("nonce", 101.0),
    "new metadata": lambda one: one.begin_meta_change("{}", 101.0),
    "entered again for longer": lambda one: one.enter_again(60_000, 101.0),
    "given back": lambda one: one.begin_release(101.0),
    "lost": lambda one: one.lose("closed"),
    "over": lambda one: one.settle(1000.0),
}


@each("change", CHANGES.values(), ids=CHANGES)
def test_what_was_changed_or_has_ended_is_not_plain(change: Callable[[Holding], object]) -> None:
    """Its renewal must carry the change, or must not be sent at all."""
    holding = hold()
    assert plain([holding], 102.0, Latch()) == [holding]
    change(holding)
    assert plain([holding], 102.0, Latch()) == []


def test_what_is_held_beside_others_is_not_plain() -> None:
    """The record of readers and permits is another one."""
    shared = [hold(rule) for rule in (READ, WRITE, SEMAPHORE)]
    assert plain(shared, 102.0, Latch()) == []


def test_what_has_reached_its_stop_is_not_renewed() -> None:
    """No renewal is sent after the time to stop (trap 2)."""
    holding = hold()
    assert plain([holding], holding.stop_at - 0.001, Latch()) == [holding]
    assert plain([holding], holding.stop_at, Latch()) == []


def test_a_failed_renewal_and_a_shorter_reentry_leave_it_plain() -> None:
    """After an outage thousands are renewed together as before."""
    holding = hold()
    fail([holding], 110.0, OutcomeUnknown("no answer"), Latch())
    assert holding.enter_again(1_000, 111.0)
    assert holding.phase == "unsure" and plain([holding], 111.0, Latch()) == [holding]


# ---------------------------------------------------------------- confirmations


def unsure() -> Holding:
    """A lease whose last renewal failed."""
    holding = hold()
    holding.renewal_failed(108.0, OutcomeUnknown("no answer"))
    return holding


MADE: dict[str, Callable[[], Holding]] = {
    "usual": hold,
    "unsure": unsure,
    "max_hold": lambda: hold(max_hold=25),
    "max_hold is over at the reply": lambda: hold(max_hold=9.9),  # it counts from 100.5
    "max_idle": lambda: hold(max_idle=15),
}


@each("make", MADE.values(), ids=MADE)
def test_a_plain_confirmation_is_that_of_a_whole_ttl(make: Callable[[], Holding]) -> None:
    """The deadline counts from before the request, as for a Renew that was sent alone; limits stay."""
    together, alone = make(), make()
    confirm_plain([together], 110.0, 110.5, Latch())
    renew = alone.begin_renewal(110.0)
    assert renew is not None
    alone.apply_reply(renew, 110.0, ops.Renewed(alone.ttl_ms), 110.5)
    assert belief(together) == belief(alone)


def test_a_reply_that_came_too_late_finds_the_lease_over() -> None:
    """What the store confirmed may be over when the reply is read."""
    holding = hold(ttl_ms=60)
    confirm_plain([holding], 100.01, 101.0, Latch())
    assert (holding.phase, holding.reason) == ("lost", "expired")


@each("change", [*CHANGES.values(), lambda one: one.begin_extension(5_000, 101.0)])
def test_a_confirmation_changes_nothing_that_has_ended_or_was_changed_meanwhile(
    change: Callable[[Holding], object],
) -> None:
    """Loss is sticky; and a change that a caller sent may set a sooner end than the renewal did (trap 44)."""
    holding = hold()
    change(holding)
    before = belief(holding)
    assert list(confirm_plain([holding], 100.9, 102.0, Latch())) != [holding]
    assert belief(holding) == before


def test_those_with_one_ttl_and_no_limit_are_due_again_together() -> None:
    """Only those may be filed together."""
    usual = [hold() for _ in range(3)]
    other, limited, lost = hold(ttl_ms=9_000), hold(max_hold=100), hold()
    lost.lose("closed")
    found = confirm_plain([*usual, other, limited, lost], 105.0, 105.5, Latch())
    assert list(found) == usual
    assert [one.renew_at for one in (*usual, limited)] == [pytest.approx(115.0)] * 4
    assert other.renew_at == pytest.approx(108.0)


def test_a_lost_reply_leaves_the_confirmed_deadline() -> None:
    """Nobody knows whether it was renewed: what was confirmed before still holds, and it is tried again soon."""
    holdings = [hold(), hold()]
    before = [(one.deadline, one.stop_at) for one in holdings]
    error = OutcomeUnknown("no answer")
    assert fail(holdings, 110.0, error, Latch()) == holdings
    assert [(one.deadline, one.stop_at) for one in holdings] == before
    assert [one.phase for one in holdings] == ["unsure"] * 2
    assert all(110.0 < one.renew_at <= 111.0 for one in holdings)
    assert holdings[0].settle(holdings[0].stop_at) == "lost"
    assert str(holdings[0].loss().__cause__) == str(error)


def test_the_last_try_can_take_its_whole_budget() -> None:
    """Half a second before the time to stop, less for short leases."""
    assert last_try_at(hold()) == pytest.approx(hold().stop_at - 0.5)
    assert last_try_at(hold(ttl_ms=600)) == pytest.approx(hold(ttl_ms=600).stop_at - 0.1)
