"""A shelf that blocks, for asyncio: its calls run in threads and are awaited, so that the loop never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold.patterns.shelves.shelf import Entry, Shelf

if TYPE_CHECKING:
    from leasehold.guards.fence import Fenced
    from leasehold.patterns.shelves.shelf import Duration

R = TypeVar("R")


class Threaded(Shelf):
    """``Threaded(SQLiteShelf(path))``. A call that is cancelled comes to its end before the cancellation goes on, so
    that what the same task does next is not overtaken by it; a second cancellation does not wait."""

    __slots__ = ("_shelf",)

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(downstream=shelf.downstream)
        self._shelf = shelf

    async def read(self, resource: str) -> Entry | None:
        return await self._there(self._shelf.read, resource)

    async def open(self, lease: Fenced, **more: Any) -> Entry | None:
        return await self._there(self._shelf.open, lease, **more)

    async def write(self, lease: Fenced, text: str | None, keep: Duration, **more: Any) -> None:
        await self._there(self._shelf.write, lease, text, keep, **more)

    async def close(self) -> None:
        await self._there(self._shelf.close)

    async def _there(self, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        running = asyncio.get_running_loop().run_in_executor(None, lambda: call(*args, **more))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # it was heard: nobody else asks for it
            raise

    def __repr__(self) -> str:
        return f"<Threaded {self._shelf!r}>"
