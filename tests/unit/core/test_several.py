"""All or nothing: what a client that wants several resources asks for, and that nothing of it stays when it fails."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from leasehold._core import claims, flows, group, ops
from leasehold._core.flows import AcquireRequest
from leasehold._core.holding import ALIVE, LOST, RELEASED, Holding
from leasehold.errors import InvalidRequest, LeaseholdError, NotAcquired, OutcomeUnknown, StoreUnavailable
from tests.support.tables import each
from tests.unit.core.stage import Stage, Us, at, delayed, lost_reply, lost_request, part
from tests.unit.core.test_flows_cancel import Interrupted

OURS = (flows.__file__, claims.__file__, group.__file__)
MOST_LINES = 2_000
Scene = Callable[[Stage], list[AcquireRequest]]


def free(stage: Stage) -> list[AcquireRequest]:
    """Nobody is in the way."""
    return [part("a"), part("b"), part("c")]


def second_busy(stage: Stage) -> list[AcquireRequest]:
    """Somebody holds the second one, and gives it back."""
    stage.parked = [lambda: None, stage.hold("b")]
    return [part("a"), part("b"), part("c")]


def all_busy(stage: Stage) -> list[AcquireRequest]:
    """One after the other is given back."""
    stage.parked = [stage.hold("a"), lambda: None, stage.hold("b"), stage.hold("c")]
    return [part("a"), part("b"), part("c")]


def one_try(stage: Stage) -> list[AcquireRequest]:
    """The last is held, and we do not wait."""
    stage.hold("c")
    return [part("a", 0), part("b", 0), part("c", 0)]


def out_of_time(stage: Stage) -> list[AcquireRequest]:
    """The last is held for longer than we wait."""
    stage.hold("c")
    return [part("a", 0.5), part("b", 0.5), part("c", 0.5)]


def mixed(stage: Stage) -> list[AcquireRequest]:
    """A mutex, a read side beside another reader, two of three permits."""
    stage.hold("b", rule="read")
    stage.parked = [stage.hold("c", rule="semaphore", limit=3, permits=2)]
    return [part("a"), part("b", rule="read"), part("c", rule="semaphore", limit=3, permits=2)]


def at_least(stage: Stage) -> list[AcquireRequest]:
    """The second one closes its door before the third is asked for."""
    return [part("a"), part("b", at_least_ms=500), part("c")]


def lost_while_waiting(stage: Stage) -> list[AcquireRequest]:
    """Nobody renews the first one here, and the second is held for longer than its ttl."""
    stage.parked = [lambda: stage.pass_by(14), lambda: stage.pass_by(14), stage.hold("b")]
    return [part("a"), part("b")]


def too_many(stage: Stage) -> list[AcquireRequest]:
    """The last can never be granted."""
    return [part("a"), part("b", rule="semaphore", limit=1, permits=2)]


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (free, second_busy, all_busy, one_try, out_of_time, mixed, at_least, lost_while_waiting, too_many)
}
FAILS: dict[str, type[LeaseholdError]] = {
    "one_try": NotAcquired,
    "out_of_time": NotAcquired,
    "too_many": InvalidRequest,
}


def take(stage: Stage, scene: Scene) -> list[Holding]:
    """Play a scene to its end."""
    asks = scene(stage)
    return stage.play(group.acquire_all(asks, Us(asks), lambda: 0, stage.now))


def nothing_is_left(stage: Stage) -> None:
    """Once the background has caught up, and what was under way has arrived (I6)."""
    stage.catch_up()
    assert stage.ours() == {}


def all_are_held(stage: Stage, held: list[Holding]) -> None:
    """Each by the owner that we believe in, and nothing else of ours is there."""
    stage.catch_up()
    assert stage.ours() == {one.name.text: [one.owner] for one in held}
    for one in held:
        (grant,) = [grant for grant in stage.states[one.name.text].holders if grant.owner == one.owner]
        assert (grant.fence, grant.slots, grant.rule) == (one.fence, one.slots, one.rule)
        assert one.settle(stage.now) in ALIVE
        assert one.deadline <= grant.expires_ms / 1000


@each("name", SCENES)
def test_every_one_of_them_or_none(name: str) -> None:
    """Uninterrupted: all are held, or an error says why none is."""
    stage = Stage()
    if name in FAILS:
        with pytest.raises(FAILS[name]):
            take(stage, SCENES[name])
        assert stage.ours() == {}, "nothing may be held when the caller hears that it got nothing"
        assert not stage.background
    else:
        held = take(stage, SCENES[name])
        all_are_held(stage, held)


def test_what_is_free_takes_one_round_trip() -> None:
    """However many there are; giving back takes another."""
    stage = Stage()
    held = take(stage, free)
    assert [type(op) for op in stage.ops] == [ops.Group]
    assert stage.play(group.release_all(held, stage.now)) == [True, True, True]
    assert [type(op) for op in stage.ops] == [ops.Group, ops.Group]
    assert stage.ours() == {}


def test_nobody_takes_what_stands_behind_the_one_that_it_waits_for() -> None:
    """That is why nobody stands in a circle."""
    stage = Stage()
    seen = []
    give_back = stage.hold("b")
    stage.parked = [lambda: seen.append(dict(stage.ours())), give_back]
    asks = [part("a"), part("b"), part("c")]
    stage.play(group.acquire_all(asks, Us(asks), lambda: 0, stage.now))
    assert sorted(seen[0]) == ["a", "b"]


def test_one_wait_for_all_together() -> None:
    """It is the first ask's, and not so much for each."""
    stage = Stage()
    give_back = stage.hold("a")
    stage.hold("b")
    stage.parked = [give_back]
    asks = [part("a", 2.0), part("b", 60.0)]
    with pytest.raises(NotAcquired) as caught:
        stage.play(group.acquire_all(asks, Us(asks), lambda: 0, stage.now))
    assert caught.value.resource == "b"
    assert stage.now == pytest.approx(102.0, abs=0.1)
    assert stage.ours() == {}


def test_a_part_that_was_lost_meanwhile_is_claimed_anew_with_all_others() -> None:
    """What is returned is held now, and not once upon a time (trap 26)."""
    stage = Stage()
    held = take(stage, lost_while_waiting)
    all_are_held(stage, held)
    assert len([op for op in stage.ops if isinstance(op, ops.Group)]) > 1


def test_a_store_that_keeps_nothing_is_called_unavailable() -> None:
    """Every loop has an end."""
    stage = Stage(lambda stage, op: stage.pass_by(40) if isinstance(op, ops.Group) else None)
    with pytest.raises(StoreUnavailable, match="ttl"):
        take(stage, free)
    nothing_is_left(stage)


# ---------------------------------------------------------------- lost, late, interrupted at every op


def number_of_ops(name: str) -> int:
    """That a scene takes when nothing goes wrong."""
    stage = Stage()
    try:
        take(stage, SCENES[name])
    except LeaseholdError:
        pass
    return len(stage.ops)


MOMENTS = [(name, k) for name in SCENES for k in range(number_of_ops(name))]
FATES = {"lost request": lost_request, "lost reply": lost_reply, "late": delayed}


@each("fate", FATES)
@each(("name", "k"), MOMENTS)
def test_trap_9_interrupted_at_every_op(name: str, k: int, fate: str) -> None:
    """Whether the op arrives, arrives late or never: nothing is left, and the very exception comes out."""
    error = Interrupted()
    stage = Stage(at(k, FATES[fate](error)))
    with pytest.raises(Interrupted) as caught:
        take(stage, SCENES[name])
    assert caught.value is error
    assert all(isinstance(op, ops.Defer) for op in stage.ops[k + 1 :]), "nothing may keep whoever was cancelled"
    nothing_is_left(stage)


@each("fate", FATES)
@each(("name", "k"), MOMENTS)
def test_trap_10_no_answer_at_every_op(name: str, k: int, fate: str) -> None:
    """All are held, each once, or none: what was in doubt is withdrawn, and takes nothing when it arrives late."""
    stage = Stage(at(k, FATES[fate](OutcomeUnknown("no answer"))))
    try:
        held = take(stage, SCENES[name])
    except LeaseholdError:
        nothing_is_left(stage)
    else:
        all_are_held(stage, held)


@each(("name", "k"), MOMENTS)
def test_a_store_that_is_down_from_some_op_on(name: str, k: int) -> None:
    """Whoever held something already hears that the outcome is unknown; "nothing was taken" would not be true."""

    def down(stage: Stage, op: ops.StoreOp) -> BaseException | None:
        return StoreUnavailable("down") if len(stage.ops) > k and not isinstance(op, (ops.Park, ops.Defer)) else None

    stage = Stage(down)
    try:
        held = take(stage, SCENES[name])
    except StoreUnavailable:
        assert stage.ours() == {}
    except LeaseholdError:
        nothing_is_left(stage)
    else:  # a push told of the last grant
        all_are_held(stage, held)


@each("name", SCENES)
def test_trap_9_interrupted_twice(name: str) -> None:
    """A second Ctrl-C, while the first is being seen to, leaves nothing either."""
    for first in range(number_of_ops(name)):
        for second in range(first + 1, first + 5):
            one, two = at(first, lost_reply(Interrupted())), at(second, lost_reply(Interrupted()))
            stage = Stage(lambda stage, op, one=one, two=two: one(stage, op) or two(stage, op))  # type: ignore[misc]  # defaults bind
            with pytest.raises(Interrupted):
                take(stage, SCENES[name])
            nothing_is_left(stage)


# ---------------------------------------------------------------- interrupted at every line


class LateStage(Stage):
    """The nth line of a flow raises, as a signal handler may."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.left = nth

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """Counts lines, as ``sys.settrace`` shows them."""
        if frame.f_code.co_filename not in OURS:
            return None
        self.left -= event == "line"
        if not self.left:
            sys.settrace(None)
            raise Interrupted
        return self.trace


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_trap_9_interrupted_at_every_line(name: str) -> None:
    """Between any two steps: what is granted is known to somebody who gives it back."""
    before = sys.gettrace()
    for nth in range(1, MOST_LINES):
        stage = LateStage(nth)
        asks = SCENES[name](stage)
        flow = group.acquire_all(asks, Us(asks), lambda: 0, stage.now)
        try:
            sys.settrace(stage.trace)
            stage.play(flow)
        except Interrupted:
            nothing_is_left(stage)
        except LeaseholdError:
            pass
        finally:
            sys.settrace(before)
        if stage.left > 0:
            break
    assert 30 < nth < MOST_LINES - 1


# ---------------------------------------------------------------- giving back


def test_release_all_says_for_each_whether_it_was_ours() -> None:
    """What was taken from us meanwhile is lost; the others are given back all the same."""
    stage = Stage()
    held = take(stage, free)
    stage.do(ops.Evict("b", held[1].owner, held[1].fence, "request"))
    assert stage.play(group.release_all(held, stage.now)) == [True, False, True]
    assert [one.phase for one in held] == [RELEASED, LOST, RELEASED]
    assert stage.play(group.release_all(held, stage.now)) == [False, False, False]
    assert stage.ours() == {}


@each("fate", FATES)
def test_trap_11_release_all_unanswered(fate: str) -> None:
    """It goes on in the background, and may be repeated until it is answered."""
    stage = Stage()
    held = take(stage, free)
    stage.fate = at(1, FATES[fate](OutcomeUnknown("no answer")))
    with pytest.raises(OutcomeUnknown):
        stage.play(group.release_all(held, stage.now))
    assert len(stage.background) == 3
    assert stage.play(group.release_all(held, stage.now)) == [True, True, True]
    nothing_is_left(stage)


@each("fate", FATES)
def test_trap_9_release_all_interrupted(fate: str) -> None:
    """As an unanswered one; the interrupt comes out."""
    stage = Stage()
    held = take(stage, free)
    stage.fate = at(1, FATES[fate](Interrupted()))
    with pytest.raises(Interrupted):
        stage.play(group.release_all(held, stage.now))
    nothing_is_left(stage)


def test_trap_9_release_all_interrupted_at_every_line() -> None:
    """Whatever was begun goes on in the background."""
    before = sys.gettrace()
    for nth in range(1, MOST_LINES):
        stage = LateStage(nth)
        held = take(stage, free)
        flow = group.release_all(held, stage.now)
        try:
            sys.settrace(stage.trace)
            stage.play(flow)
        except Interrupted:
            if all(one.phase == "held" for one in held):  # it came before anything was begun
                continue
        finally:
            sys.settrace(before)
        nothing_is_left(stage)
        if stage.left > 0:
            break
    assert 10 < nth < MOST_LINES - 1


# ---------------------------------------------------------------- opposite orders


class Actor:
    """Takes all of them, gives them back, and is over; one op at a time."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.owners = (f"me:{name}:{number}" for number in range(1_000))
        self.over = False
        self.flow = self.life()
        self.resume: Callable[[], Any] = lambda: self.flow.send(None)

    async def life(self) -> None:
        """All of it."""
        us = Us([part("a"), part("b"), part("c")])
        us.new_owner = lambda place: next(self.owners)  # type: ignore[method-assign]  # each has names of its own
        held = await group.acquire_all(us.asks, us, lambda: 0, self.stage.now)
        assert [self.stage.states[one.name.text].holders[0].owner for one in held] == [one.owner for one in held]
        await group.release_all(held, self.stage.now)

    def step(self) -> None:
        """One op."""
        try:
            op = self.resume()
        except StopIteration:
            self.over = True
            return
        self.stage.ops.append(op)
        answer = ops.TimedReply(self.stage.answer(op), self.stage.now)
        self.resume = lambda: self.flow.send(answer)


@each("seed", range(30))
def test_three_who_want_the_same_get_it_one_after_the_other(seed: int) -> None:
    """However their steps are mixed: nobody waits for ever, and nobody holds what another has."""
    chance = random.Random(seed)
    stage = Stage()
    actors = [Actor(stage, name) for name in "xyz"]
    for _ in range(1_000):
        going = [actor for actor in actors if not actor.over]
        if not going:
            break
        chance.choice(going).step()
    assert all(actor.over for actor in actors)
    nothing_is_left(stage)
