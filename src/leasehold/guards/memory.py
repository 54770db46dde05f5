"""FenceGuard in memory: for tests, and for resources of one process. Its memory ends with the process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leasehold._core.durations import seconds
from leasehold.errors import StoreUnavailable
from leasehold.guards.fence import Fenced, Presented
from leasehold.guards.guard import BaseGuard

if TYPE_CHECKING:
    from datetime import timedelta

    from leasehold.observe.events import Observer

__all__ = ["FenceGuard"]


class FenceGuard(BaseGuard):
    """Refuses a stale owner among the threads of this process.

    >>> guard, rows = FenceGuard(), {}
    >>> with guard.writing(1794768018952706, resource="report-export:42"):
    ...     rows[42] = "exported"
    >>> guard.check(1794768018952705, resource="report-export:42")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    leasehold.errors.StaleOwner: stale owner of report-export: ...
    """

    __slots__ = ("_bodies", "_lock", "_seen")

    def __init__(self, *, downstream: str = "memory", observers: Iterable[Observer] = ()) -> None:
        super().__init__(downstream=downstream, observers=observers)
        self._lock = threading.RLock()
        self._seen: dict[str, tuple[int, str]] = {}
        self._bodies: list[tuple[str, int, str]] = []  # the writing() bodies that the thread with the lock is in

    def check(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> None:
        """Accept and remember this fence, or raise StaleOwner. To make check and write one step, use ``writing``."""
        with self.writing(lease_or_fence, resource=resource, owner=owner, shared=shared):
            pass

    @contextmanager
    def writing(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
        wait: float | str | timedelta = 10,
    ) -> Iterator[None]:
        """Check, and keep every other thread out until the body has ended: check, read and write are one step.

        Raises StoreUnavailable when another body takes longer than ``wait``, and at once when another owner's body is
        open in this same thread, which happens if its task awaits in it. Do not await in the body."""
        attempt = self.present(lease_or_fence, resource, owner, shared)
        if not self._lock.acquire(timeout=min(seconds(wait, "wait"), threading.TIMEOUT_MAX)):
            raise StoreUnavailable("another thread is still inside writing(): nothing was accepted, try again later")
        try:
            last_fence, last_owner = self._seen.get(attempt.resource, (None, ""))
            if attempt.follows(last_fence, last_owner):
                with self._body(attempt):
                    yield
                return
        finally:
            self._lock.release()
        raise self.refused(lease_or_fence, attempt, last_fence)  # outside the lock: observers may take their time

    @contextmanager
    def _body(self, attempt: Presented) -> Iterator[None]:
        """A re-entrant lock lets its own thread in again: another task of its event loop, or an inner call. If that is
        another owner, the outer body would write after it, with an older fence."""
        me = (attempt.resource, attempt.fence, attempt.owner)
        if any(other[0] == me[0] and other != me for other in self._bodies):
            raise StoreUnavailable(
                "another owner's writing() has not ended in this thread: nothing was accepted, try again later. Do not "
                "await in its body"
            )
        if not attempt.shared:
            self._seen[attempt.resource] = (attempt.fence, attempt.owner)
        self._bodies.append(me)
        try:
            yield
        finally:
            self._bodies.remove(me)

    def seen(self, resource: str) -> int | None:
        """The highest fence that was presented for a resource."""
        last = self._seen.get(resource)
        return None if last is None else last[0]

    def __repr__(self) -> str:
        return f"<FenceGuard in memory, {len(self._seen)} resources>"
