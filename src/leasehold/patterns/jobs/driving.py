"""What jobs do, written once. A flow is a generator that yields calls and is sent what they gave; on an event loop a
call may give an awaitable, and that is awaited."""

from __future__ import annotations

from collections.abc import Callable, Generator
from inspect import isawaitable
from typing import Any, TypeVar

R = TypeVar("R")
Flow = Generator[Callable[[], Any], Any, R]


def run(flow: Flow[R]) -> R:
    """On this thread."""
    given: Any = None
    failed: BaseException | None = None
    while True:
        try:
            call = flow.send(given) if failed is None else flow.throw(failed)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns
        given, failed = None, None
        try:
            given = call()
        except BaseException as error:
            failed = error


async def arun(flow: Flow[R]) -> R:
    """In this task."""
    given: Any = None
    failed: BaseException | None = None
    while True:
        try:
            call = flow.send(given) if failed is None else flow.throw(failed)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns
        given, failed = None, None
        try:
            given = call()
            if isawaitable(given):
                given = await given
        except BaseException as error:
            failed = error
