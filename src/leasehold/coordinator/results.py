"""The default result store of a coordinator: beside its leases, and made when a pattern first needs it."""

from __future__ import annotations

import weakref

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold.errors import Unsupported

if TYPE_CHECKING:
    from leasehold._runtime.engine import Engine
    from leasehold.patterns.results import ResultStore

_in_memory: weakref.WeakKeyDictionary[Any, ResultStore] = weakref.WeakKeyDictionary()  # by store: coordinators share it


def default_results(engine: Engine, driver: Any = None) -> ResultStore:
    """The result store that belongs to the store of a coordinator. ``driver``: the AsyncDriver of one for asyncio."""
    store: Any = engine.store
    if store.name == "memory":
        from leasehold.patterns.results.memory import MemoryResultStore

        known = _in_memory.get(store)
        return _in_memory.setdefault(store, MemoryResultStore(clock=store.clock)) if known is None else known
    if store.name == "sqlite" and hasattr(store, "path"):
        from leasehold.patterns.results.sqlite import sqlite_results

        return sqlite_results(store.path, asynchronous=driver is not None)
    if store.name in ("redis", "sentinel", "cluster") and hasattr(store, "where"):
        from leasehold.patterns.results.redis import redis_results

        return redis_results(store, engine.connections, driver)
    if store.name == "postgresql" and hasattr(store, "transact"):
        from leasehold.patterns.results.postgresql import PostgresResultStore

        return PostgresResultStore(store, asynchronous=driver is not None)
    raise Unsupported(
        f"a store on {store.name} keeps leases and no results: give a result store that all processes share, such as "
        "store=SQLResultStore(engine) or store=RedisResultStore(client), which single_flight calls cache=; the command "
        "leasehold cron needs another store, such as redis:// or postgresql://"
    )
