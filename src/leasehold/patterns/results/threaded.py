"""A blocking result store for asyncio: its calls run in threads and are awaited, so that the loop never waits for a
disk.

The threads are its own. Those of the loop's executor are often all busy with work of the application, such as a slow
rebuild, and what is cached must be available meanwhile.
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
    cancellation goes on, so that it cannot overtake what the same task does next; a second cancellation does not
    wait."""

    __slots__ = ("_pools", "_results")

    def __init__(self, results: ResultStore) -> None:
        super().__init__(downstream=results.downstream)
        self._results = results
        self._pools: dict[int, ThreadPoolExecutor] = {}  # by process: a forked child has none of its parent's threads

    async def read(self, resource: str) -> Entry | None:
        found: Entry | None = await self._in_thread(self._results.read, resource)
        return found

    async def open(self, lease: Fenced) -> Entry | None:
        found: Entry | None = await self._in_thread(self._results.open, lease)
        return found

    async def write(self, lease: Fenced, text: str | None, keep: Duration) -> None:
        await self._in_thread(self._results.write, lease, text, keep)

    async def close(self) -> None:
        await self._in_thread(self._results.close)
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.shutdown(wait=False)

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        running = asyncio.get_running_loop().run_in_executor(self._threads(), call, *args)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(_retrieve_error)
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                running.cancel()  # the thread ends by itself; the loop may be closed by then, and is not notified
            raise

    def _threads(self) -> ThreadPoolExecutor:
        pool = self._pools.get(os.getpid())
        if pool is None:
            made = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="leasehold-results")
            pool = self._pools.setdefault(os.getpid(), made)
        return pool

    def __repr__(self) -> str:
        return f"<ThreadedResultStore {self._results!r}>"


def _retrieve_error(running: asyncio.Future[Any]) -> None:
    """The cancellation matters more than the error of the call: asyncio must not warn that it was never retrieved."""
    if not running.cancelled():
        running.exception()
