"""Where the patterns of a coordinator keep what they know: a result store beside its store, made when one is first
needed."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from leasehold._core.light_typing import TYPE_CHECKING, Any, cast
from leasehold.errors import Unsupported

if TYPE_CHECKING:
    from leasehold._runtime.engine import Engine
    from leasehold.patterns.flavour import Flavour
    from leasehold.patterns.results import ResultStore

_in_memory: weakref.WeakKeyDictionary[Any, ResultStore] = weakref.WeakKeyDictionary()  # all coordinators of one space


class Shelving:
    """What both flavours share. ``_closers`` are called when the coordinator is closed, the last one first."""

    _engine: Engine
    _closers: list[Callable[[], Any]]
    _own_results: ResultStore | None = None
    _asynchronous = False

    @property
    def _results(self) -> ResultStore:
        """On the same store as the leases, so that whoever shares those shares this too."""
        if self._own_results is None:
            mine = (default_results(self._engine.store, self._asynchronous),)
            first = self.__dict__.setdefault("_first_results", mine)  # another thread may have been faster
            self._own_results = first[0]
            if first is mine:
                self._closers.insert(0, first[0].close)  # closed last: whoever works writes there
        return cast("ResultStore", self._own_results)

    @property
    def _flavour(self) -> Flavour:
        from leasehold.patterns.flavour import OnLoop, OnThread

        return OnLoop() if self._asynchronous else OnThread()


def default_results(store: Any, asynchronous: bool) -> ResultStore:
    """The result store that belongs to a store."""
    if store.name == "memory":
        from leasehold.patterns.results.memory import MemoryResultStore

        known = _in_memory.get(store)
        return _in_memory.setdefault(store, MemoryResultStore(clock=store.clock)) if known is None else known
    if store.name == "sqlite" and hasattr(store, "path"):
        from leasehold.patterns.results.default import default_sqlite

        return default_sqlite(store.path, asynchronous)
    if hasattr(store, "target") or hasattr(store, "lend"):
        from leasehold.patterns.results.default import default_client, default_redis

        return (
            default_redis(store.target, asynchronous)
            if hasattr(store, "target")
            else default_client(store, asynchronous)
        )
    raise Unsupported(
        f"there is no result store beside {store.name}: say where to keep it, such as SQLResultStore(engine)"
    )
