"""What jobs do, written once. A flow is a generator that yields calls and is sent what they gave; on an event loop a
call may give an awaitable, and that is awaited."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from leasehold.patterns.flavour import finish
from leasehold.patterns.walking import walk

R = TypeVar("R")
Flow = Generator[Callable[[], Any], Any, R]


def run(flow: Flow[R]) -> R:
    """On this thread."""
    return finish(arun(flow))


async def arun(flow: Flow[R]) -> R:
    """In this task."""
    return await walk(flow, lambda call: call())
