"""The members of a store, asked at the same time: several that are away take no longer than one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

MOST_AT_ONCE = 16

T = TypeVar("T")
R = TypeVar("R")


class Away(Exception):
    """It cannot be reached, does not let us in, or stopped answering. The text says why."""


def together(members: Sequence[T], ask: Callable[[T], R]) -> list[R | Away]:
    """What ``ask`` gives for each of them, or why not."""
    with ThreadPoolExecutor(max_workers=min(max(len(members), 1), MOST_AT_ONCE)) as pool:
        return list(pool.map(lambda one: _attempt(ask, one), members))


def _attempt(ask: Callable[[T], R], member: T) -> R | Away:
    try:
        return ask(member)
    except Away as error:
        return error
