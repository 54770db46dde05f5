"""Generators that say what is to be done, one thing after the other: each is done, and they are sent what it gave.

What fails is raised where it was yielded, so that they can put something back, or know better what the error means. On
a thread nothing is awaited, so that ``finish(walk(...))`` is the same without an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

R = TypeVar("R")
Y = TypeVar("Y")


async def walk(
    steps: Generator[Y, Any, R],
    do: Callable[[Y], Any],
    failed: Callable[[BaseException, Y], BaseException] | None = None,
) -> R:
    """To the end of the generator; ``do`` gives a result, or an awaitable of it. ``failed`` may know better what an
    error means."""
    following: Callable[[], Y] = partial(steps.send, None)
    while True:
        try:
            step = following()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns
        try:
            given = do(step)
            following = partial(steps.send, await given if isawaitable(given) else given)
        except BaseException as error:
            following = partial(steps.throw, error if failed is None else failed(error, step))
