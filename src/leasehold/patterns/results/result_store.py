"""The interface of result stores: one text for each resource, written under a lease, with an end.

Time is that of the result store: an entry says how old it is and how long it stays, so that no two clocks are compared.
The fence that was presented last is remembered for a day longer than the entry, so that a holder that was paused is
refused even where nothing is left to overwrite.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple

from leasehold._core.durations import seconds
from leasehold.errors import InvalidRequest
from leasehold.guards.fence import Fenced
from leasehold.guards.guard import BaseGuard

if TYPE_CHECKING:
    from leasehold._core.durations import Duration

DAY_MS = 24 * 3600 * 1000
REMEMBERED_MS = DAY_MS  # longer than the entry: the fence that was presented last
LONGEST_KEEP_MS = 10 * 365 * DAY_MS
LONGEST_TEXT = 16 * 2**20  # bytes of UTF-8


class Entry(NamedTuple):
    """The stored text of a resource. ``fence`` is the one under which it was written; ``age`` and ``left`` are seconds.
    ``ahead`` is by how many seconds it was written later than now: then the clock of the result store was set back, by
    at least that, and the age is unknown."""

    text: str
    fence: int
    age: float
    left: float
    ahead: float = 0.0


def timed_entry(text: str, fence: int, age_ms: float, left_ms: float, keep_ms: int) -> Entry:
    """An entry by a clock that can be set: its age is never negative, and it never stays longer than ``keep_ms``."""
    return Entry(text, fence, max(0.0, age_ms) / 1000, min(left_ms, keep_ms) / 1000, max(0.0, -age_ms) / 1000)


class ResultStore(BaseGuard, ABC):
    """One text for each resource. Over an asyncio client or engine the same calls are awaited.

    All three calls are atomic. ``open`` and ``write`` raise StaleOwner when a newer fence was presented before, and
    have then changed nothing."""

    __slots__ = ()

    @abstractmethod
    def read(self, resource: str) -> Entry | Awaitable[Entry | None] | None:
        """The entry of a resource; no lease is needed. It may be overwritten in the next moment."""

    @abstractmethod
    def open(self, lease: Fenced) -> Entry | Awaitable[Entry | None] | None:
        """Present the fence, and read: no holder of an older one can write after that. Use it, and not ``read``, to
        decide by what is read (trap 46)."""

    @abstractmethod
    def write(self, lease: Fenced, text: str | None, keep: Duration) -> Awaitable[None] | None:
        """Present the fence, and store a text for ``keep``; None deletes the text that is there."""

    def close(self) -> Awaitable[None] | None:
        """Close what the result store itself has opened."""
        return None


def check_keep(keep: object, what: str = "keep") -> int:
    """The duration in whole milliseconds, rounded up."""
    ms = math.ceil(round(seconds(keep, what) * 1000, 6)) if _finite(keep) else 0
    if not 0 < ms <= LONGEST_KEEP_MS:
        raise InvalidRequest(f"{what} must be above zero and at most 10 years")
    return ms


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def check_results(results: object, what: str) -> ResultStore:
    """``what``: the name of the argument."""
    if not isinstance(results, ResultStore):
        raise InvalidRequest(
            f"{what} is a result store of leasehold.patterns.results, such as MemoryResultStore(), not "
            f"{type(results).__name__}"
        )
    return results


def check_text(text: object) -> str | None:
    """The text, or None, after a check that every result store can hold it."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidRequest(f"a result store holds text, not {type(text).__name__}: serialize it first")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest("the text holds a lone surrogate and cannot be written as UTF-8") from None
    if size > LONGEST_TEXT or "\0" in text:
        raise InvalidRequest(f"a result store holds texts of at most {LONGEST_TEXT >> 20} MiB without NUL")
    return text
