"""Interrupts between two awaits of an acquire (trap 9): a signal handler may raise at any line, not only where a flow
waits. Each scenario is played as often as it has lines, interrupted one line later each time."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from leasehold._core import claims, flows, ops
from leasehold.errors import NotAcquired
from tests.support.tables import each
from tests.unit.core.play import Owners, Play, Step
from tests.unit.core.test_flows_cancel import ACQUIRE, Interrupted, left_behind

OURS = (flows.__file__, claims.__file__)
MOST_LINES = 1000  # of one scenario


class Late(Play):
    """A play in which the nth line of a flow raises. When the script is over, so is the wait."""

    def __init__(self, nth: int, *script: Step) -> None:
        super().__init__(*script)
        self.before = 0  # ops that were asked for until then
        self.left = nth
        self.interrupted = False

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """Counts lines, as ``sys.settrace`` shows them."""
        if frame.f_code.co_filename not in OURS:
            return None
        self.left -= event == "line"
        if not self.left:
            sys.settrace(None)
            self.before = len(self.ops)
            self.interrupted = True
            raise Interrupted
        return self.trace

    def answer(self, op: ops.Op) -> Step:
        """By the script, as long as nothing came in between."""
        if self.interrupted:
            return Step(ops.Defer)
        if self.script:
            return self.scripted(op)
        sys.settrace(None)
        return Step(type(op), Interrupted())


def play(name: str, nth: int) -> Late | None:
    """One scenario, interrupted there; None when it has fewer lines."""
    wanted, script = ACQUIRE[name]
    late = Late(nth, *script)
    before = sys.gettrace()
    try:
        sys.settrace(late.trace)
        late.follow(flows.acquire(wanted, Owners(), lambda: 0, 100.0), late.answer)
    except (Interrupted, NotAcquired):
        pass
    finally:
        sys.settrace(before)
    return late if late.interrupted else None


@each("name", ACQUIRE)
def test_trap_9_acquire_interrupted_at_every_line(name: str) -> None:
    """Whatever the store may know by then is withdrawn, with a tombstone where a claim is in doubt."""
    for nth in range(1, MOST_LINES):
        late = play(name, nth)
        if late is None:
            break
        cleaned = {}
        for later in late.ops[late.before :]:
            assert isinstance(later, ops.Defer) and isinstance(later.op, ops.Withdraw)
            cleaned[later.op.owner] = bool(later.op.forget_ms)
        expected = left_behind(late.ops[: late.before], ACQUIRE[name][1])
        assert not {owner: doubt for owner, doubt in expected.items() if doubt > cleaned.get(owner, -1)}, nth
    assert 10 < nth < MOST_LINES - 1
