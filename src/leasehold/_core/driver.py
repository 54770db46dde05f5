"""Runs a flow: a coroutine or generator that yields requests and is sent their results.

Everything that exists for threads and for asyncio is written once, as a flow. What differs is how a request is
performed, and that is a function which the caller passes in:

    drive(flow, perform)         on the calling thread; ``perform(request)`` returns the result
    drive_async(flow, perform)   in the running task; ``await perform(request)`` returns the result
    finish(coroutine)            a coroutine that never suspends, on the calling thread

What ``perform`` raises, an interrupt or a cancellation included, is raised inside the flow at the request that failed,
so that the flow can clean up. ``Abandon`` is the exception: the flow is closed, and nothing is raised inside it.
"""

from __future__ import annotations

from leasehold._core.light_typing import Any, Awaitable, Callable, Coroutine, Generator, TypeVar

R = TypeVar("R")
Q = TypeVar("Q")


class Abandon(BaseException):
    """Raised by ``perform`` when the flow belongs to another process: a signal handler has forked, and only the parent
    may go on with it. The flow is closed, nothing is raised inside it, and the caller gets ``error``."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def drive(flow: Generator[Q, Any, R] | Coroutine[Q, Any, R], perform: Callable[[Q], Any]) -> R:
    """Run a flow to its end on the calling thread."""
    try:
        request = flow.send(None)
        while True:
            try:
                result = perform(request)
            except Abandon as end:
                flow.close()
                raise end.error from end.__cause__
            except BaseException as error:
                request = flow.throw(error)
            else:
                request = flow.send(result)
    except StopIteration as end:
        value: R = end.value
        return value


async def drive_async(flow: Generator[Q, Any, R] | Coroutine[Q, Any, R], perform: Callable[[Q], Awaitable[Any]]) -> R:
    """Run a flow to its end in the running task."""
    try:
        request = flow.send(None)
        while True:
            try:
                result = await perform(request)
            except Abandon as end:
                flow.close()
                raise end.error from end.__cause__
            except BaseException as error:
                request = flow.throw(error)
            else:
                request = flow.send(result)
    except StopIteration as end:
        value: R = end.value
        return value


def finish(flow: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that never suspends, on the calling thread. One that does is closed, and that is an error."""
    try:
        flow.send(None)
    except StopIteration as end:
        value: R = end.value
        return value
    flow.close()
    raise RuntimeError("this coroutine waited for something that only an event loop can give")
