"""An op that was sent before its flow began: the flow goes on from what came of it as if it had sent the op itself."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from leasehold._core import flows, ops
from leasehold._core.flows import FirstClaim, FirstRelease
from leasehold._core.holding import LocalGrant
from tests.support.tables import each
from tests.unit.core.play import DOWN, TTL, UNKNOWN, Owners, Play, Step, ask, hold, push

QUEUED = ops.Queued(0, 20_000, "other:9")
ACQUIRES: dict[str, list[Step]] = {
    "granted": [Step(ops.Claim, ops.Granted(9, TTL), 0.5)],
    "granted too late": [
        Step(ops.Claim, ops.Granted(9, TTL), 29.0),
        Step(ops.Withdraw, ops.Withdrawn("held")),
        Step(ops.Claim, ops.Granted(10, TTL)),
    ],
    "queued": [Step(ops.Claim, QUEUED, 0.5), Step(ops.Park, push(1))],
    "no claim": [Step(ops.Claim, ops.NoClaim("expired")), Step(ops.Claim, ops.Granted(10, TTL))],
    "busy": [Step(ops.Claim, ops.Busy("other:9", 20_000))],
    "rejected": [Step(ops.Claim, ops.Rejected("no rule"))],
    "unavailable": [Step(ops.Claim, DOWN, 0.5)],
    "unknown": [
        Step(ops.Claim, UNKNOWN, 0.5),
        Step(ops.Park),
        Step(ops.Claim, ops.Granted(9, TTL)),
    ],
    "interrupted": [Step(ops.Claim, KeyboardInterrupt(), 0.5), Step(ops.Defer)],
}
RELEASES: dict[str, list[Step]] = {
    "released": [Step(ops.Release, ops.Released())],
    "not yours": [Step(ops.Release, ops.NotYours("taken"))],
    "unavailable": [Step(ops.Release, DOWN), Step(ops.Defer)],
    "unknown": [Step(ops.Release, UNKNOWN), Step(ops.Defer)],
    "interrupted": [Step(ops.Release, KeyboardInterrupt()), Step(ops.Defer)],
}


def outcome(play: Play, flow: Any) -> tuple[Any, ...]:
    """All that can be seen of a flow: what it asked for, how it ended, and when."""
    try:
        result: Any = play.run(flow)
    except BaseException as error:
        result = type(error), str(error)
    if isinstance(result, LocalGrant):
        result = result.owner, result.fence, result.deadline, result.at, result.unanswered
    return result, play.ops, play.now


def sent(play: Play) -> tuple[ops.TimedReply[Any] | None, BaseException | None]:
    """What came of the first op of a script, which is over then."""
    step = play.script.pop(0)
    play.now += step.takes
    if isinstance(step.reply, BaseException):
        return None, step.reply
    return ops.TimedReply(step.reply, play.now), None


@each("name", ACQUIRES)
@each("wait", [None, 0.0, 40.0])
def test_an_acquire_goes_on_from_a_claim_that_was_sent(name: str, wait: float | None) -> None:
    """The same ops, the same result, the same times."""
    usual, begun = Play(*ACQUIRES[name]), Play(*ACQUIRES[name])
    expected, asked, _ = outcome(usual, flows.acquire(ask(wait), Owners(), lambda: 0, 100.0))
    owners = Owners()
    first = FirstClaim(owners(), *sent(begun))
    found = outcome(begun, flows.acquire(ask(wait), owners, lambda: 0, 100.0, first))
    assert found[:2] == (expected, asked[1:]) and first.used


@each("name", RELEASES)
def test_a_release_goes_on_from_one_that_was_sent(name: str) -> None:
    """The same ops, the same result, the same state of the holding."""
    usual, begun = Play(*RELEASES[name]), Play(*RELEASES[name])
    one, other = hold(), hold()
    expected, asked, _ = outcome(usual, flows.release(one, 100.0))
    op = other.begin_release(100.0)
    assert op is not None
    found = outcome(begun, flows.release(other, 100.0, FirstRelease(op, *sent(begun))))
    assert found[:2] == (expected, asked[1:]) and other.phase == one.phase


def test_an_error_that_was_handed_over_keeps_nothing_alive() -> None:
    """Its frames lead to the lease of the caller, which must go with the last reference to it."""

    class Kept:
        """Stands for a lease."""

    kept = Kept()
    gone = weakref.ref(kept)

    def caller(kept: Kept) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            first = FirstClaim("host:7:secret.1", None, error)
        Play(Step(ops.Defer)).run(flows.acquire(ask(), Owners(), lambda: 0, 100.0, first))

    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            caller(kept)
        del kept, caught
        assert gone() is None
    finally:
        gc.enable()
