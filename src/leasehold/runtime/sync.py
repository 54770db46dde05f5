"""Drives flows on the calling thread: no event loop, no helper thread."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from leasehold.core.ops import Answer, Later, Op, Park
from leasehold.core.ports import Mailbox
from leasehold.errors import StoreUnavailable
from leasehold.runtime import wakeups
from leasehold.runtime.engine import CLOSED, Closed, Engine

R = TypeVar("R")


def drive(engine: Engine, flow: Coroutine[Op, Any, R], box: Mailbox) -> R:
    """Run a flow to its end. Whatever happens while an op is performed, an interrupt too, is thrown into the
    flow at that op, so that it can clean up."""
    try:
        op = flow.send(None)
        while True:
            try:
                answer = perform(engine, op, box)
            except BaseException as error:
                op = flow.throw(error)
            else:
                op = flow.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result
    except Closed:
        raise StoreUnavailable(CLOSED) from None


def run(engine: Engine, flow: Coroutine[Op, Any, R]) -> R:
    """The same for a flow that waits for no push."""
    box = engine.mailboxes.borrow()
    try:
        return drive(engine, flow, box)
    finally:
        engine.mailboxes.give_back(box)


def perform(engine: Engine, op: Op, box: Mailbox) -> Answer[Any]:
    """One op, in the calling thread."""
    reply: object = None
    if isinstance(op, Park):
        reply = wakeups.take(box, engine.clock, op.owner, op.until)
    elif isinstance(op, Later):
        engine.watchdog.later(op)
    else:
        if engine.closed:
            raise Closed
        reply = box.execute(op)
    return Answer(reply, engine.clock.now())
