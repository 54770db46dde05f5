"""Watching as a client: what is asked for and when, what counts as a change, and how trouble is borne."""

from __future__ import annotations

import pytest

from leasehold._core import ops, resource_flows
from leasehold._core.policy import WATCH_EVERY_MS, WATCH_MS, WATCH_POLL_MS
from leasehold._core.resource_flows import WatchRequest, end_watch, next_change
from leasehold._core.types import Grant
from leasehold.errors import StoreUnavailable
from tests.support.tables import each
from tests.unit.core.desk import Desk
from tests.unit.core.play import DOWN, NAME, UNKNOWN, Play, Step
from tests.unit.core.test_flows_cancel import Interrupted, interrupt

EYE = WatchRequest(NAME.text, "host:7:eye", "@eye")
BLIND = EYE._replace(address="")
NOW_MS = 5_000_000
GRANT = Grant("a", 7, 30_000, NOW_MS + 30_000)
CHANGED = ops.Push("@eye", "changed", NAME.text, EYE.owner, 8, 0, 0)


def view(*holders: Grant) -> ops.View:
    """What the store shows."""
    return ops.View(holders, (), 7, 0, NOW_MS)


def look(*holders: Grant) -> Step:
    """One look at it."""
    return Step(ops.Watch, view(*holders), 0.01)


PARK, LATER = Step(ops.Park), Step(ops.Defer)


def test_the_first_look_answers_at_once() -> None:
    """Nothing is known yet, so whatever there is is new; also that nobody holds it."""
    assert Play(look(GRANT)).run(next_change(EYE, None, 100.0)).holders == (GRANT,)
    assert Play(look()).run(next_change(EYE, None, 100.0)).holders == ()


def test_it_waits_until_others_hold_it() -> None:
    """A look that shows the same is followed by a park, one that does not by its result."""
    play = Play(look(GRANT), PARK, look(GRANT), PARK, look())
    assert play.run(next_change(EYE, (GRANT,), 100.0)).holders == ()


def test_a_push_wakes_it() -> None:
    """It looks at once, and not only at its next beat."""
    play = Play(look(GRANT), Step(ops.Park, CHANGED, 0.05), look())
    play.run(next_change(EYE, (GRANT,), 100.0))
    assert play.now < 100.1


@each(
    "other",
    [
        GRANT._replace(owner="b"),
        GRANT._replace(fence=8),
        GRANT._replace(rule="read"),
        GRANT._replace(meta="leader"),
    ],
)
def test_what_is_a_change(other: Grant) -> None:
    """Another holder, another term, another rule, another word."""
    assert Play(look(other)).run(next_change(EYE, (GRANT,), 100.0)).holders == (other,)


def test_a_renewal_is_no_change() -> None:
    """Nor is anything else that only its holder cares for."""
    renewed = GRANT._replace(expires_ms=NOW_MS + 40_000, renewals=3, ticket="nonce", closed_until_ms=9)
    play = Play(look(renewed), PARK, look())
    assert play.run(next_change(EYE, (GRANT,), 100.0)).holders == ()


def test_i13_without_a_push_a_change_is_seen_within_a_beat() -> None:
    """And the store has not forgotten the watcher by then."""
    play = Play(look(GRANT), PARK, look())
    play.run(next_change(EYE, (GRANT,), 100.0))
    assert play.of(ops.Park)[0].until == pytest.approx(100.01 + WATCH_EVERY_MS / 1000)
    assert 10 * WATCH_EVERY_MS <= WATCH_MS


def test_who_cannot_be_told_looks_more_often() -> None:
    """Nobody will tell it."""
    play = Play(look(GRANT), PARK, look())
    play.run(next_change(BLIND, (GRANT,), 100.0))
    assert play.of(ops.Park)[0].until == pytest.approx(100.01 + WATCH_POLL_MS / 1000)


def test_it_looks_when_a_lease_ends() -> None:
    """Nobody tells of an expiry unless somebody looks: the first of them counts."""
    soon = GRANT._replace(owner="b", fence=8, expires_ms=NOW_MS + 120)
    play = Play(look(GRANT, soon), PARK, look(GRANT))
    play.run(next_change(EYE, (GRANT, soon), 100.0))
    assert play.of(ops.Park)[0].until == pytest.approx(100.01 + 0.12)


def test_a_lease_at_its_very_end_makes_no_busy_loop() -> None:
    """There is a pause before each look."""
    over = GRANT._replace(expires_ms=NOW_MS)
    play = Play(look(over), PARK, look())
    play.run(next_change(EYE, (over,), 100.0))
    assert play.of(ops.Park)[0].until > 100.01


def test_trouble_is_borne_for_a_while() -> None:
    """A store that is back within seconds is not worth an error."""
    play = Play(Step(ops.Watch, UNKNOWN, 1.0), PARK, Step(ops.Watch, DOWN, 1.0), PARK, look())
    assert play.run(next_change(EYE, (GRANT,), 100.0)).holders == ()


def test_trouble_that_lasts_is_told() -> None:
    """Within a bound, with what the store said."""
    play = Play()
    with pytest.raises(StoreUnavailable) as caught:
        play.follow(
            next_change(EYE, (GRANT,), 100.0), lambda op: Step(type(op), UNKNOWN if isinstance(op, ops.Watch) else None)
        )
    assert caught.value.__cause__ is UNKNOWN
    assert resource_flows.BEARABLE < play.now - 100 < resource_flows.BEARABLE + 2


def test_trouble_counts_from_the_last_answer() -> None:
    """Two short ones are not a long one."""
    play = Play()
    looks = 0

    def answer(op: ops.Op) -> Step:
        nonlocal looks
        if not isinstance(op, ops.Watch):
            return Step(type(op))
        looks += 1
        if looks == 30:
            return look()
        return look(GRANT) if looks % 8 == 0 else Step(ops.Watch, UNKNOWN, 0.1)

    assert play.follow(next_change(EYE, (GRANT,), 100.0), answer).holders == ()


@pytest.mark.parametrize("error", [UNKNOWN, DOWN])
def test_the_first_look_must_be_answered(error: Exception) -> None:
    """There is nothing to go by before it."""
    with pytest.raises(StoreUnavailable):
        Play(Step(ops.Watch, error)).run(next_change(EYE, None, 100.0))


@each("k", range(3))
def test_trap_9_watching_interrupted(k: int) -> None:
    """Nothing more is asked for: the watcher's own end sees to that."""
    play = interrupt(next_change(EYE, (GRANT,), 100.0), [look(GRANT), PARK, look()], k, Interrupted())
    assert len(play.ops) == k + 1


def test_the_end_of_watching_leaves_nothing() -> None:
    """In the background: nobody waits for it."""
    desk = Desk()
    desk.watch("eye")
    play = Play(LATER)

    async def end() -> None:
        await end_watch(WatchRequest("report:42", "eye", "@eye"))

    play.run(end())
    desk.ask(play.last(ops.Defer).op)
    assert desk.state == Desk().state
