"""Cancellation and interrupts at every await of a flow (trap 9).

Each scenario is a script. For every k the flow is played up to its k-th op, and there an exception is thrown, as a
cancelled task or a Ctrl-C would. From then on the flow may ask for nothing but background work that cleans up, and
the very exception that was thrown must come out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from leasehold._core import flows, ops
from leasehold._core.policy import tombstone_ms
from leasehold.errors import OutcomeUnknown
from tests.support.tables import each
from tests.unit.core.play import DOWN, NAME, STILL_WAITING, TTL, UNKNOWN, WAITING, Owners, Play, Step, ask, hold, push

GRANTED = Step(ops.Claim, ops.Granted(9, TTL), 0.1)
PARK, LATER = Step(ops.Park), Step(ops.Defer)
TOO_LATE = Step(ops.Claim, ops.Granted(9, TTL), 28.0)
GIVEN_BACK = Step(ops.Withdraw, ops.Withdrawn("held"))

ACQUIRE: dict[str, tuple[flows.AcquireRequest, list[Step]]] = {
    "free": (ask(), [GRANTED]),
    "one try": (ask(wait=0), [GRANTED]),
    "waits": (ask(), [WAITING, PARK, STILL_WAITING, Step(ops.Park, push(beat=2), 0.1)]),
    "gives up": (ask(wait=0.5), [WAITING, PARK, STILL_WAITING, Step(ops.Withdraw, ops.Withdrawn("queued"))]),
    "gives up, store down": (ask(wait=0.5), [WAITING, PARK, STILL_WAITING, Step(ops.Withdraw, DOWN), LATER]),
    "at least": (ask(at_least_ms=500), [GRANTED, Step(ops.Renew, ops.Renewed(TTL))]),
    "at least, pushed": (
        ask(at_least_ms=500),
        [WAITING, Step(ops.Park, push(beat=1), 0.1), Step(ops.Renew, ops.Renewed(TTL))],
    ),
    "at least, refused": (
        ask(at_least_ms=500),
        [GRANTED, Step(ops.Renew, ops.NotYours("taken")), GRANTED, Step(ops.Renew, ops.Renewed(TTL))],
    ),
    "at least, too late": (
        ask(at_least_ms=500),
        [GRANTED, Step(ops.Renew, ops.Renewed(TTL), 29.0), GIVEN_BACK, GRANTED, Step(ops.Renew, ops.Renewed(TTL))],
    ),
    "ambiguous": (ask(), [Step(ops.Claim, UNKNOWN, 0.5), PARK, GRANTED]),
    "ambiguous, then waits": (ask(), [Step(ops.Claim, UNKNOWN, 0.5), PARK, WAITING, PARK, STILL_WAITING, PARK]),
    "ambiguous, then gone": (
        ask(),
        [Step(ops.Claim, UNKNOWN, 0.5), PARK, Step(ops.Claim, ops.NoClaim("expired")), LATER, WAITING, PARK],
    ),
    "too late": (ask(), [TOO_LATE, GIVEN_BACK, GRANTED]),
    "gone": (ask(), [WAITING, PARK, Step(ops.Beat, ops.NoClaim("unknown")), WAITING, PARK, STILL_WAITING, PARK]),
    "in trouble": (ask(), [WAITING, PARK, Step(ops.Beat, UNKNOWN, 0.5), PARK, Step(ops.Beat, DOWN, 0.5), PARK]),
}


class Interrupted(BaseException):
    """Something that no flow can know of."""


ERRORS: list[Callable[[], BaseException]] = [asyncio.CancelledError, KeyboardInterrupt, SystemExit, Interrupted]
MOMENTS = [(name, k) for name, (_, script) in ACQUIRE.items() for k in range(len(script))]


def interrupt(flow: Coroutine[Any, Any, object], script: list[Step], k: int, error: BaseException) -> Play:
    """Play to the k-th op and throw there; what was asked for is in the play."""
    play = Play(*script[:k], Step(script[k].kind, error, 0.1))

    def answer(op: ops.Op) -> Step:
        return play.scripted(op) if play.script else Step(ops.Defer)

    with pytest.raises(type(error)) as caught:
        play.follow(flow, answer)
    assert caught.value is error
    return play


def left_behind(asked: list[ops.Op], script: list[Step]) -> dict[str, bool]:
    """Owners that the store may still know after these ops, and whether a claim of theirs may still arrive."""
    known: dict[str, bool] = {}
    for op, step in zip(asked, script, strict=False):
        owner = getattr(op, "owner", "")
        in_doubt = isinstance(step.reply, BaseException)
        if isinstance(op, ops.Claim) and (in_doubt or isinstance(step.reply, ops.Granted | ops.Queued)):
            known[owner] = known.get(owner, False) or in_doubt
        elif isinstance(step.reply, ops.NoClaim | ops.NotYours):
            if not known.get(owner):
                known.pop(owner, None)
        elif isinstance(op, ops.Withdraw) and not in_doubt:
            known.pop(owner, None)
        elif isinstance(op, ops.Defer):
            known.pop(op.op.owner, None)
    return known


@each("new_error", ERRORS)
@each(("name", "k"), MOMENTS)
def test_trap_9_acquire_interrupted_at_every_await(name: str, k: int, new_error: Callable[[], BaseException]) -> None:
    """Only background withdrawals follow, for exactly what may be left, with a tombstone where a claim is in doubt."""
    wanted, script = ACQUIRE[name]
    error = new_error()
    play = interrupt(flows.acquire(wanted, Owners(), lambda: 0, 100.0), script, k, error)
    follows = play.ops[k + 1 :]
    thrown = [*script[:k], Step(script[k].kind, error)]
    if isinstance(play.ops[k], ops.Defer):  # a driver keeps what it is given, before anything can be thrown
        thrown[k] = script[k]
    cleaned = {}
    for later in follows:
        assert isinstance(later, ops.Defer)
        assert isinstance(later.op, ops.Withdraw)
        assert later.op.resource == NAME.text
        assert later.seconds >= TTL / 1000
        cleaned[later.op.owner] = later.op.forget_ms >= tombstone_ms(TTL)
    expected = left_behind(play.ops, thrown)
    if isinstance(play.ops[k], ops.Defer):
        assert {owner: cleaned[owner] for owner in expected} == expected  # to ask twice is harmless
    else:
        assert cleaned == expected
        assert len(follows) == len(cleaned)


@each("name", ACQUIRE)
def test_the_scenarios_are_what_they_say(name: str) -> None:
    """Uninterrupted, each script is played to its end: no await is missed."""
    wanted, script = ACQUIRE[name]
    play = Play(*script)

    def answer(op: ops.Op) -> Step:
        return play.scripted(op) if play.script else Step(ops.Defer, Interrupted())

    with contextlib.suppress(OutcomeUnknown, TimeoutError, Interrupted):
        play.follow(flows.acquire(wanted, Owners(), lambda: 0, 100.0), answer)
    assert not play.script
    assert [type(op) for op in play.ops[: len(script)]] == [step.kind for step in script]


def test_every_kind_of_await_is_interrupted_somewhere() -> None:
    """Claim, park, beat, leave, at_least, and the background op itself."""
    kinds = {step.kind for _, script in ACQUIRE.values() for step in script}
    assert kinds == {ops.Claim, ops.Park, ops.Beat, ops.Withdraw, ops.Renew, ops.Defer}


@each("new_error", ERRORS)
@each("unanswered", [False, True])
def test_trap_9_release_interrupted(new_error: Callable[[], BaseException], unanswered: bool) -> None:
    """The release goes on in the background as a repetition, and the lease can be released again."""
    holding = hold(unanswered=unanswered)
    play = interrupt(flows.release(holding, 100.0), [Step(ops.Release)], 0, new_error())
    sent, later = play.ops
    assert isinstance(sent, ops.Release)
    assert later == ops.Defer(sent._replace(again=True), TTL / 1000)
    assert sent.forget_ms == (60_000 if unanswered else 0)
    assert holding.phase == "releasing"
    again = Play(Step(ops.Release, ops.Released()))
    assert again.run(flows.release(holding, 101.0)) is True
    assert again.last(ops.Release).again


@each("new_error", ERRORS)
def test_trap_9_the_background_release_interrupted(new_error: Callable[[], BaseException]) -> None:
    """A second Ctrl-C while the first is being handled comes out as it is."""
    script = [Step(ops.Release, UNKNOWN), Step(ops.Defer)]
    play = interrupt(flows.release(hold(), 100.0), script, 1, new_error())
    assert len(play.ops) == 2


@each("new_error", ERRORS)
@each("ttl_ms", [6_000, 60_000])
def test_extend_interrupted(new_error: Callable[[], BaseException], ttl_ms: int) -> None:
    """Nothing more is sent, the shorter end is believed, and the watchdog renews before it."""
    holding = hold()
    play = interrupt(flows.extend(holding, ttl_ms, 101.0), [Step(ops.Renew)], 0, new_error())
    assert len(play.ops) == 1
    assert holding.deadline <= 101 + ttl_ms / 1000
    assert holding.check_at() < holding.stop_at
    renewal = holding.begin_renewal(holding.check_at())
    assert renewal is not None
    assert renewal.ttl_ms == ttl_ms


@each("new_error", ERRORS)
def test_renew_interrupted(new_error: Callable[[], BaseException]) -> None:
    """Nothing is known of it: the lease is what it was, and can be renewed."""
    holding = hold()
    interrupt(flows.renew(holding, 110.0), [Step(ops.Renew)], 0, new_error())
    assert holding.phase == "held"
    assert holding.begin_renewal(110.5) is not None
