"""A result store in memory, for one process and for tests. Its texts end with the process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from leasehold.errors import InvalidRequest
from leasehold.guards.fence import Fenced, check_resource
from leasehold.patterns.results.result_store import (
    REMEMBERED_MS,
    Entry,
    ResultStore,
    check_keep,
    check_results,
    check_text,
)
from leasehold.stores.clock import SystemClock

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._core.ports import Clock
    from leasehold.observe.events import Observer

SWEEP_EVERY = 1000  # writes, after which ended entries are deleted, so that memory does not grow with every new name


class _Record(NamedTuple):
    """One resource: the last fence and its owner, the text, and its end. Times are those of the clock, in seconds."""

    fence: int
    owner: str
    text: str | None
    text_fence: int
    written: float
    ends: float  # of the text
    forgotten: float  # the end of the record itself


class MemoryResultStore(ResultStore):
    """For the threads of this process.

    >>> import leasehold
    >>> results = MemoryResultStore()
    >>> with leasehold.connect("memory://") as hold, hold.lock("page", 42) as lease:
    ...     results.write(lease, "<h1>42</h1>", keep="1m")
    >>> results.read("page:42").text
    '<h1>42</h1>'
    """

    __slots__ = ("__weakref__", "_clock", "_lock", "_records", "_writes")

    def __init__(
        self, *, clock: Clock | None = None, downstream: str = "results", observers: Iterable[Observer] = ()
    ) -> None:
        super().__init__(downstream=downstream, observers=observers)
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lock = threading.Lock()
        self._records: dict[str, _Record] = {}
        self._writes = 0
        _result_stores.add(self)

    def read(self, resource: str) -> Entry | None:
        return self._entry(self._records.get(check_resource(resource)), self._clock.now())

    def open(self, lease: Fenced) -> Entry | None:
        now = self._clock.now()
        return self._entry(self._present(lease, now, None), now)

    def write(self, lease: Fenced, text: str | None, keep: Duration) -> None:
        now = self._clock.now()
        self._present(lease, now, (check_text(text), now + check_keep(keep) / 1000))

    def _present(self, lease: Fenced, now: float, new: tuple[str | None, float] | None) -> _Record:
        attempt = self.present(lease)
        with self._lock:
            last = self._live_record(attempt.resource, now)
            accepted = last is None or attempt.follows(last.fence, last.owner)
            if accepted:
                record = _Record(attempt.fence, attempt.owner, None, 0, now, now, now) if last is None else last
                text, text_fence, written, ends = record.text, record.text_fence, record.written, record.ends
                if new is not None:
                    (text, ends), text_fence, written = new, attempt.fence, now
                forgotten = max(ends, now) + REMEMBERED_MS / 1000
                record = _Record(attempt.fence, attempt.owner, text, text_fence, written, ends, forgotten)
                self._records[attempt.resource] = record
                self._sweep(now)
                return record
        raise self.refused(lease, attempt, None if last is None else last.fence)  # observers run outside the lock

    def _live_record(self, resource: str, now: float) -> _Record | None:
        record = self._records.get(resource)
        return None if record is None or record.forgotten <= now else record

    def _sweep(self, now: float) -> None:
        self._writes += 1
        if self._writes % SWEEP_EVERY == 0:
            self._records = {name: record for name, record in self._records.items() if record.forgotten > now}

    def _entry(self, record: _Record | None, now: float) -> Entry | None:
        if record is None or record.text is None or record.ends <= now:
            return None
        return Entry(record.text, record.text_fence, max(0.0, now - record.written), record.ends - now)

    def __repr__(self) -> str:
        return f"<MemoryResultStore of {len(self._records)}>"


_result_stores: weakref.WeakSet[MemoryResultStore] = weakref.WeakSet()


def _forked() -> None:
    """A thread of the parent may have held the lock, and would never release it in the child."""
    for results in list(_result_stores):
        results._lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)


def shared(results: object, beside: str) -> ResultStore:
    """The result store that was given as ``store=``, checked: what must happen once in the fleet cannot be kept where
    only one process sees it. ``beside`` is the name of the store that has the leases."""
    known = check_results(results, "store")
    if beside != "memory" and isinstance(known, MemoryResultStore):
        raise InvalidRequest(
            f"a MemoryResultStore is seen by one process only, and the leases on {beside} by others too, which would "
            "do the same again: leave store= out, or name a result store that all of them share, such as "
            "SQLResultStore(engine)"
        )
    return known
