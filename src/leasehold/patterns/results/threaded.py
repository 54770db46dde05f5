"""A result store that blocks, for asyncio: its calls run in threads and are awaited. The loop never waits for a disk.

The threads are its own. Those of the loop are often all at work for the application, for a slow rebuild above all, and
what is cached must be there meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from leasehold.patterns.results.result_store import Entry, ResultStore

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold.guards.fence import Fenced

MOST_THREADS = 8


class ThreadedResultStore(ResultStore):
    """``ThreadedResultStore(SQLiteResultStore(path))``. A call that is cancelled comes to its end before the
    cancellation goes on, so
    that what the same task does next is not overtaken by it; a second cancellation does not wait."""

    __slots__ = ("_pools", "_results")

    def __init__(self, results: ResultStore) -> None:
        super().__init__(downstream=results.downstream)
        self._results = results
        self._pools: dict[int, ThreadPoolExecutor] = {}  # by process: the threads of a parent are not in its child

    async def read(self, resource: str) -> Entry | None:
        found: Entry | None = await self._there(self._results.read, resource)
        return found

    async def open(self, lease: Fenced) -> Entry | None:
        found: Entry | None = await self._there(self._results.open, lease)
        return found

    async def write(self, lease: Fenced, text: str | None, keep: Duration) -> None:
        await self._there(self._results.write, lease, text, keep)

    async def close(self) -> None:
        await self._there(self._results.close)
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.shutdown(wait=False)

    async def _there(self, call: Callable[..., Any], *args: Any) -> Any:
        running = asyncio.get_running_loop().run_in_executor(self._threads(), call, *args)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(_heard)
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                running.cancel()  # it ends by itself, and tells nobody: the loop may be closed by then
            raise

    def _threads(self) -> ThreadPoolExecutor:
        pool = self._pools.get(os.getpid())
        if pool is None:
            made = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="leasehold-results")
            pool = self._pools.setdefault(os.getpid(), made)
        return pool

    def __repr__(self) -> str:
        return f"<ThreadedResultStore {self._results!r}>"


def _heard(running: asyncio.Future[Any]) -> None:
    """Its error matters less than that somebody wants the end: nobody warns about it."""
    if not running.cancelled():
        running.exception()
