"""Where the patterns of a coordinator keep what they know: a shelf beside its store, made when one is first needed."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from leasehold._core.light_typing import TYPE_CHECKING, Any, cast
from leasehold.errors import Unsupported

if TYPE_CHECKING:
    from leasehold._runtime.engine import Engine
    from leasehold.patterns.flavour import Flavour
    from leasehold.patterns.results import Shelf

_in_memory: weakref.WeakKeyDictionary[Any, Shelf] = weakref.WeakKeyDictionary()  # all coordinators of one space


class Shelving:
    """What both flavours share. ``_closers`` are called when the coordinator is closed, the last one first."""

    _engine: Engine
    _closers: list[Callable[[], Any]]
    _own_shelf: Shelf | None = None
    _asynchronous = False

    @property
    def _shelf(self) -> Shelf:
        """On the same store as the leases, so that whoever shares those shares this too."""
        if self._own_shelf is None:
            mine = (shelf_beside(self._engine.store, self._asynchronous),)
            first = self.__dict__.setdefault("_first_shelf", mine)  # another thread may have been faster
            self._own_shelf = first[0]
            if first is mine:
                self._closers.insert(0, first[0].close)  # closed last: whoever works writes there
        return cast("Shelf", self._own_shelf)

    @property
    def _flavour(self) -> Flavour:
        from leasehold.patterns.flavour import OnLoop, OnThread

        return OnLoop() if self._asynchronous else OnThread()


def shelf_beside(store: Any, asynchronous: bool) -> Shelf:
    """The shelf that belongs to a store."""
    if store.name == "memory":
        from leasehold.patterns.results.memory import MemoryShelf

        known = _in_memory.get(store)
        return _in_memory.setdefault(store, MemoryShelf(clock=store.clock)) if known is None else known
    if store.name == "sqlite" and hasattr(store, "path"):
        from leasehold.patterns.results.default import beside_sqlite

        return beside_sqlite(store.path, asynchronous)
    if hasattr(store, "target") or hasattr(store, "lend"):
        from leasehold.patterns.results.default import beside_borrowed, beside_redis

        return (
            beside_redis(store.target, asynchronous)
            if hasattr(store, "target")
            else beside_borrowed(store, asynchronous)
        )
    raise Unsupported(f"there is no shelf beside {store.name}: say where to keep it, such as SQLShelf(engine)")
