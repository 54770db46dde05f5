"""Drives flows on the calling thread: no event loop, no helper thread."""

from __future__ import annotations

import sys
from collections.abc import Coroutine

from leasehold._core.light_typing import Any, TypeVar
from leasehold._core.ops import LOCAL_OPS, Defer, Op, Park, Push, TimedReply
from leasehold._core.ports import Connection
from leasehold._runtime import connections, shutdown
from leasehold._runtime.calling import calling_frame
from leasehold._runtime.engine import CLOSED, FORKED, CoordinatorClosed, Engine
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.observe import log

R = TypeVar("R")
MOST_PLACES = 1000  # that are remembered


def drive(engine: Engine, flow: Coroutine[Op, Any, R], connection: Connection) -> R:
    """Run a flow to its end. Whatever happens while an op is performed, an interrupt too, is thrown into the
    flow at that op, so that it can clean up."""
    now = engine.clock.now
    epoch = engine.epoch
    answer: TimedReply[Any]
    try:
        op = flow.send(None)
        while True:
            try:
                if isinstance(op, LOCAL_OPS):
                    answer = TimedReply(perform_locally(engine, op, connection), now())
                elif engine.closed:
                    raise CoordinatorClosed
                else:
                    answer = TimedReply(connection.execute(op), now())
            except BaseException as error:
                if engine.epoch != epoch:  # a signal handler forked: the parent goes on with this, not its child
                    flow.close()
                    raise StoreUnavailable(FORKED) from error
                op = flow.throw(error)
            else:
                if engine.epoch != epoch:
                    flow.close()
                    raise StoreUnavailable(FORKED)
                op = flow.send(answer)
    except StopIteration as end:
        result: R = end.value
        return result
    except CoordinatorClosed:
        raise StoreUnavailable(CLOSED) from None


def run(engine: Engine, flow: Coroutine[Op, Any, R]) -> R:
    """The same for a flow that waits for no push."""
    try:
        connection = engine.connections.borrow()
        try:
            return drive(engine, flow, connection)
        finally:
            engine.connections.give_back(connection)
    except LeaseholdError:
        if engine.closed:
            shutdown.wait_for_exit()
        raise
    finally:
        flow.close()  # an interrupt may have kept it from beginning, or from ending; to one that is over it is nothing


def perform_locally(engine: Engine, op: Park | Defer, connection: Connection) -> Push | None:
    """An op that asks nothing of the store."""
    if isinstance(op, Park):
        warn_in_event_loop(engine)
        return connections.next_push(connection, engine.clock, op.owner, op.until)
    engine.watchdog.run_later(op)
    return None


def warn_in_event_loop(engine: Engine) -> None:
    """The calling thread is about to wait. Inside an event loop nothing else runs there until then, perhaps not even
    what it waits for: told once for each place in the program."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return
    frame = calling_frame()
    place = ("?", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    if place not in engine.warned_places and len(engine.warned_places) < MOST_PLACES:
        engine.warned_places.add(place)
        log.warn(
            "a lock for threads has to wait inside a running event loop (%s, line %s), and nothing else runs there "
            "until then: use leasehold.aio.connect() there, or asyncio.to_thread()",
            *place,
        )
