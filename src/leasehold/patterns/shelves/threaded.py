"""A shelf that blocks, for asyncio: its calls run in threads and are awaited. The loop never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leasehold.patterns.flavour import to_its_end
from leasehold.patterns.shelves.shelf import Entry, Shelf

if TYPE_CHECKING:
    from leasehold.core.durations import Duration
    from leasehold.guards.fence import Fenced


class Threaded(Shelf):
    """``Threaded(SQLiteShelf(path))``. A call that is cancelled comes to its end before the cancellation goes on, so
    that what the same task does next is not overtaken by it; a second cancellation does not wait."""

    __slots__ = ("_shelf",)

    def __init__(self, shelf: Shelf) -> None:
        super().__init__(downstream=shelf.downstream)
        self._shelf = shelf

    async def read(self, resource: str) -> Entry | None:
        found: Entry | None = await self._there(self._shelf.read, resource)
        return found

    async def open(self, lease: Fenced) -> Entry | None:
        found: Entry | None = await self._there(self._shelf.open, lease)
        return found

    async def write(self, lease: Fenced, text: str | None, keep: Duration) -> None:
        await self._there(self._shelf.write, lease, text, keep)

    async def close(self) -> None:
        await self._there(self._shelf.close)

    async def _there(self, call: Callable[..., Any], *args: Any) -> Any:
        return await to_its_end(asyncio.get_running_loop().run_in_executor(None, call, *args))

    def __repr__(self) -> str:
        return f"<Threaded {self._shelf!r}>"
