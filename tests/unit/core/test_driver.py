"""The driver: flows are written once, and run on a thread or in a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from leasehold._core.driver import Abandon, drive, drive_async, finish

Perform = Callable[[Any], Any]


def in_task(flow: Any, perform: Perform) -> Any:
    """Drive the flow on an event loop, with the same perform."""

    async def awaited(request: Any) -> Any:
        await asyncio.sleep(0)
        return perform(request)

    return asyncio.run(drive_async(flow, awaited))


both = pytest.mark.parametrize("run", [drive, in_task])


def adding(seen: list[Any]) -> Generator[int, int, int]:
    """A flow that asks twice, and keeps what it sees."""
    try:
        return (yield 1) + (yield 2)
    except ValueError as error:
        seen.append(error)
        return (yield 10) * 100
    finally:
        seen.append("end")


@both
def test_results_reach_the_flow(run: Callable[..., int]) -> None:
    """Each request is performed in order, and the flow's own result is returned."""
    seen: list[Any] = []
    assert run(adding(seen), lambda request: request * 5) == 15
    assert seen == ["end"]


@both
def test_errors_are_raised_where_the_request_was_made(run: Callable[..., int]) -> None:
    """The flow can catch what its request raised, and go on."""
    seen: list[Any] = []
    failure = ValueError("no")

    def perform(request: int) -> int:
        if request == 2:
            raise failure
        return request

    assert run(adding(seen), perform) == 1000
    assert seen == [failure, "end"]


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, StopAsyncIteration])
def test_what_the_flow_does_not_catch_leaves(run: Callable[..., int], error: type[BaseException]) -> None:
    """An interrupt or a cancellation passes through the flow, whose clean-up runs."""
    seen: list[Any] = []

    def perform(request: int) -> int:
        raise error

    with pytest.raises(error):
        run(adding(seen), perform)
    assert seen == ["end"]


@both
def test_an_abandoned_flow_is_told_nothing(run: Callable[..., int]) -> None:
    """It is closed; the caller gets the error that stands for it, with its cause."""
    seen: list[Any] = []
    cause = ValueError("seen by nobody")

    def perform(request: int) -> int:
        raise Abandon(RuntimeError("forked")) from cause

    with pytest.raises(RuntimeError, match="forked") as raised:
        run(adding(seen), perform)
    assert seen == ["end"] and raised.value.__cause__ is cause


def test_a_coroutine_that_never_suspends() -> None:
    """It runs to its end without an event loop."""

    async def inner() -> int:
        return 41

    async def outer() -> int:
        return await inner() + 1

    assert finish(outer()) == 42


def test_a_coroutine_that_suspends_is_closed() -> None:
    """Waiting for an event loop on a thread is a mistake in the library, and leaves nothing running."""
    ended: list[str] = []

    async def outer() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append("closed")

    flow: Coroutine[Any, Any, None] = outer()
    with pytest.raises(RuntimeError, match="only an event loop"):
        finish(flow)
    assert ended == ["closed"]
