"""A result store that fails when a test wants it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from leasehold.guards.fence import Fenced
from leasehold.patterns.results import MemoryResultStore

Hook = Callable[[str | None], None]


def _nothing(text: str | None) -> None:
    """All is well."""


class BrokenResultStore(MemoryResultStore):
    """``before`` and ``after`` are called with what is written, and may raise."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Hook = _nothing
        self.after: Hook = _nothing
        self.written: list[str | None] = []

    def write(self, lease: Fenced, text: str | None, keep: Any) -> None:
        """As memory does it, between the two."""
        self.before(text)
        super().write(lease, text, keep)
        self.written.append(text)
        self.after(text)


class SlowResultStore(BrokenResultStore):
    """One that is awaited: whoever writes waits until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def write(self, lease: Fenced, text: str | None, keep: Any) -> None:  # type: ignore[override]  # awaited
        """What is done is held up, the rest is not."""
        if done(text):
            self.reached.set()
            await self.go.wait()
        super().write(lease, text, keep)


def done(text: str | None) -> bool:
    """Is this an outcome?"""
    return text is not None and '"state":"done"' in text


def failing(error: Exception, times: int = 1_000_000, when: Callable[[str | None], bool] = done) -> Hook:
    """A hook that raises for outcomes, so many times."""
    left = [times]

    def hook(text: str | None) -> None:
        if when(text) and left[0]:
            left[0] -= 1
            raise error

    return hook
