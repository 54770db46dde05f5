"""Drives flows on the calling thread: no event loop, no helper thread."""

from __future__ import annotations

import sys

from leasehold._core import driver, flows
from leasehold._core.driver import Abandon
from leasehold._core.flows import FirstRelease
from leasehold._core.holding import RELEASING
from leasehold._core.light_typing import TYPE_CHECKING, Any, Coroutine, TypeVar
from leasehold._core.ops import Defer, Op, Park, Release, Released, TimedReply
from leasehold._runtime import connections, shutdown
from leasehold._runtime.engine import CLOSED, FORKED, CoordinatorClosed, Engine
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.observe import log

if TYPE_CHECKING:
    from types import FrameType

    from leasehold._core.ports import Connection
    from leasehold._runtime.held_lease import HeldLease

R = TypeVar("R")
MOST_PLACES = 1000  # of waits inside an event loop that are remembered
PASSED_OVER = ("leasehold", "contextlib")  # packages that are never the user's own code


def drive(engine: Engine, flow: Coroutine[Op, Any, R], connection: Connection, epoch: int | None = None) -> R:
    """Run a flow to its end on the calling thread. ``epoch``: that of the engine when the call began, of which the flow
    is the rest."""
    now = engine.clock.now
    epoch = engine.epoch if epoch is None else epoch

    def perform(op: Op) -> TimedReply[Any]:
        reply: object = None
        if engine.epoch != epoch:  # before the op as well: a child must not even send for its parent
            raise Abandon(StoreUnavailable(FORKED))
        try:
            if isinstance(op, Park):
                warn_in_event_loop(engine)
                reply = connections.next_push(connection, engine.clock, op.owner, op.until)
            elif isinstance(op, Defer):
                engine.watchdog.run_later(op)
            elif engine.closed:
                raise CoordinatorClosed
            else:
                reply = connection.execute(op)
            answer = TimedReply(reply, now())
        except BaseException as error:
            if engine.epoch != epoch:
                raise Abandon(StoreUnavailable(FORKED)) from error
            raise
        if engine.epoch != epoch:  # a signal handler has forked: the parent goes on with this flow, its child does not
            raise Abandon(StoreUnavailable(FORKED))
        return answer  # nothing comes after the check: a child that went on with a grant would be a second holder

    try:
        return driver.drive(flow, perform)
    except CoordinatorClosed:
        raise StoreUnavailable(CLOSED) from None


def run(engine: Engine, flow: Coroutine[Op, Any, R]) -> R:
    """The same for a flow that waits for no push, on a borrowed connection."""
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
        flow.close()  # an interrupt may have kept it from beginning or from ending; closing twice is harmless


def release(engine: Engine, held: HeldLease) -> bool:
    """Release a lease that could not pass to the next of this process at once. True when it was ours until now."""
    if held.cohort is None and not held.options.linger:
        return _give_back(engine, held)
    from leasehold._runtime import cohorts

    try:
        if held.cohort is None:
            cohorts.lingers(engine, held)
        decision = cohorts.decide(engine, held)
        if decision == cohorts.ASK and not run(engine, cohorts.reserve(engine, held)):
            decision = ""
        return (decision != "" and cohorts.pass_on(engine, held)) or _give_back(engine, held)
    finally:
        cohorts.released(engine, held)


def _give_back(engine: Engine, held: HeldLease) -> bool:
    """Fast path: the store confirms it. Anything else, and whatever is raised meanwhile, goes on in the flow
    (``_core/flows.py``)."""
    now, epoch = engine.clock.now(), engine.epoch
    connection = engine.connections.borrow()
    op = None
    flow: Any = None
    try:
        op = held.begin_release(now)
        if op is None:
            return False
        first = None
        if not engine.closed:
            try:
                reply = connection.execute(op)
                if type(reply) is Released and reply.found and engine.epoch == epoch:
                    return held.end_release(op, reply)
                first = FirstRelease(op, TimedReply(reply, engine.clock.now()))
            except BaseException as error:
                first = FirstRelease(op, None, error)
        if engine.epoch != epoch:  # a signal handler has forked, and this is the child: the lease is its parent's
            raise StoreUnavailable(FORKED)
        flow = flows.release(held, now, first)
        ours: bool = drive(engine, flow, connection, epoch)
        return ours
    except BaseException as error:
        if op is not None and engine.epoch == epoch:
            _after_failed_release(engine, held, op, flow, error)
        raise
    finally:
        engine.connections.give_back(connection)


def _after_failed_release(engine: Engine, held: HeldLease, op: Release, flow: Any, error: BaseException) -> None:
    """A flow that raised the error repeats the release in the background. An interrupt before it, or beside it, does
    not."""
    if isinstance(error, LeaseholdError):
        if engine.closed:
            shutdown.wait_for_exit()
    elif held.phase == RELEASING and (flow is None or flow.cr_frame is not None):
        engine.watchdog.run_later(Defer(op._replace(again=True), held.ttl_ms / 1000))
    if flow is not None:
        flow.close()


def warn_in_event_loop(engine: Engine) -> None:
    """Warn, once for each place in the program, when the calling thread is about to wait inside an event loop: nothing
    else runs on that loop until then, perhaps not even what the thread waits for."""
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


def calling_frame() -> FrameType | None:
    """The innermost frame of the user's own code; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in PASSED_OVER:
        frame = frame.f_back
    return frame
