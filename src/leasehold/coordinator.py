"""Leasehold and AsyncLeasehold: the coordinators that hand out locks. The only place where rooms are wired."""

from __future__ import annotations

import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from leasehold.core.durations import is_long, optional_ms, optional_seconds, ttl_ms, wait_seconds
from leasehold.core.names import Name, check_id_key, check_namespace, known_name, make_name
from leasehold.core.ports import Store
from leasehold.errors import InvalidRequest, Unsupported
from leasehold.primitives.base import UNSET, Unset
from leasehold.primitives.lock import AsyncLock, Lock
from leasehold.runtime.engine import Engine
from leasehold.runtime.options import Options

if TYPE_CHECKING:
    from uuid import UUID

    from leasehold.primitives.lease import Duration

    class Client(Protocol):
        """A client of redis-py or valkey-py, sync or asyncio, or something that behaves like one."""

        def execute_command(self, *args: Any, **options: Any) -> Any: ...

    Id = str | int | UUID
    Target = str | Client | Store

L = TypeVar("L", Lock, AsyncLock)
MOST_META_BYTES = 4096
REDIS = ("redis", "rediss", "unix", "valkey", "valkeys")
LATER = ("redis+sentinel", "redis+cluster", "redlock", "etcd", "zk", "postgresql")


class Coordinator(ABC, Generic[L]):
    """What both flavours share. Making one sends nothing; the first call connects."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str | None = None,
        wait: Duration | None = None,
        hide_ids: str | bytes | None = None,
    ) -> None:
        self._namespace = check_namespace(_or_env(namespace, "LEASEHOLD_NAMESPACE"))
        self._id_key = check_id_key(_or_env(hide_ids, "LEASEHOLD_ID_KEY"))
        self._default_wait = wait_seconds(wait)
        self._engine = Engine(store)

    def lock(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        fenced: bool = True,
        reentrant: bool = False,
        meta: Mapping[str, Any] | None = None,
    ) -> L:
        """A lock on one resource: exclusive, first come first served, fenced.

        ``kind`` says what sort of thing it is and ``ids`` which one. ``ttl`` is how long the lease lasts without
        renewal; with ``renew`` it is renewed while somebody uses it, at most for ``max_hold``, and only while the
        work calls ``lease.beat()`` every ``max_idle``. ``wait`` is how long to block: None for ever, 0 one try.
        ``at_least`` keeps others out for that long even when it is released earlier. ``meta`` is shown to whoever
        inspects the holder.
        """
        if isinstance(wait, Unset):
            wait = self._default_wait
        asked = (ttl, wait, renew, max_hold, max_idle, at_least, fenced, reentrant)
        try:
            options = _known_options(*asked)
            name = known_name(self._namespace, self._id_key, kind, *ids)
        except TypeError:  # what cannot be hashed is refused as any other wrong thing
            options = _options(*asked)
            name = make_name(self._namespace, kind, ids, self._id_key)
        if is_long(options.ttl_ms):
            _warn_long()
        if meta is not None:
            text = _meta_text(meta)
            options = options.with_meta(dict(meta), text)
        return self._make_lock(name, options)

    def rlock(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        fenced: bool = True,
        meta: Mapping[str, Any] | None = None,
    ) -> L:
        """A lock that the thread or task which holds it may enter again: ``lock(..., reentrant=True)``."""
        return self.lock(
            kind,
            *ids,
            ttl=ttl,
            wait=wait,
            renew=renew,
            max_hold=max_hold,
            max_idle=max_idle,
            at_least=at_least,
            fenced=fenced,
            reentrant=True,
            meta=meta,
        )

    @abstractmethod
    def _make_lock(self, name: Name, options: Options) -> L: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._engine.store.name}>"


class Leasehold(Coordinator[Lock]):
    """A coordinator for threads; made by :func:`leasehold.connect`. ``close()`` gives back what it holds."""

    def close(self) -> None:
        """Give back what is held and let go of the store. What was held is lost (``closed``)."""
        self._engine.close()

    def _make_lock(self, name: Name, options: Options) -> Lock:
        return Lock(self._engine, name, options)

    def __enter__(self) -> Leasehold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncLeasehold(Coordinator[AsyncLock]):
    """A coordinator for asyncio; made by :func:`leasehold.aio.connect`."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str | None = None,
        wait: Duration | None = None,
        hide_ids: str | bytes | None = None,
    ) -> None:
        from leasehold.runtime.aio import AsyncDriver  # asyncio is loaded only by those who use it

        super().__init__(store, namespace=namespace, wait=wait, hide_ids=hide_ids)
        self._driver = AsyncDriver(self._engine)

    async def close(self) -> None:
        """Give back what is held and let go of the store. What was held is lost (``closed``)."""
        self._driver.close()
        await self._driver.in_thread(self._engine.close)

    def _make_lock(self, name: Name, options: Options) -> AsyncLock:
        return AsyncLock(self._engine, name, options, self._driver)

    async def __aenter__(self) -> AsyncLeasehold:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def connect(
    target: Target | None = None,
    *,
    namespace: str | None = None,
    wait: Duration | None = None,
    hide_ids: str | bytes | None = None,
) -> Leasehold:
    """A coordinator for threads, over the store that ``target`` names.

    ``target`` is a URL: ``redis://host``, ``sqlite:///path`` (every process of this host) or ``memory://`` (this
    process); or a client of redis-py or valkey-py, whose server and settings are used and which is never closed.
    Without one it is ``LEASEHOLD_URL``, else the embedded store in the user's state folder. ``wait`` is the default of
    every lock; ``hide_ids`` is a key under which ids are hashed before they are stored.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold, hold.lock("report-export", 42, ttl=30) as lease:
    ...     lease.resource
    'report-export:42'
    """
    return Leasehold(open_store(target), namespace=namespace, wait=wait, hide_ids=hide_ids)


def open_store(target: Target | None) -> Store:
    """The store that a URL names or a client leads to. Touches nothing yet."""
    if target is None:
        target = os.environ.get("LEASEHOLD_URL") or None
    if target is None:
        from leasehold.stores.sqlite import SQLiteStore, default_path

        return SQLiteStore(default_path())
    if not isinstance(target, str):
        return cast("Store", target) if hasattr(target, "execute_many") else _of_client(target)
    scheme, separator, rest = target.partition("://")
    if not separator:
        raise InvalidRequest("that is no URL: write redis://host, sqlite:///path/to/file.db or memory://")
    if scheme == "memory":
        from leasehold.stores.memory import MemoryStore

        return MemoryStore.shared(rest)
    if scheme == "sqlite":
        from leasehold.stores.sqlite import SQLiteStore

        return SQLiteStore(_sqlite_path(rest))
    if scheme in REDIS:
        store: Store = _redis().RedisStore(target)
        return store
    if scheme in LATER:
        raise Unsupported(
            f"there is no store for {scheme}:// in this version: use redis://host, sqlite:///path or memory://"
        )
    raise InvalidRequest("the URL has an unknown scheme: write redis://host, sqlite:///path/to/file.db or memory://")


def _of_client(thing: object) -> Store:
    if isinstance(thing, (list, tuple)) and thing:
        raise Unsupported("several clients are a Redlock: there is no store for that in this version")
    if not hasattr(thing, "execute_command") and type(thing).__module__.partition(".")[0] not in ("redis", "valkey"):
        raise InvalidRequest(f"connect() takes a URL, a Redis client or a store, not {type(thing).__name__}")
    _redis()
    from leasehold.stores.redis.clients import open_client

    return open_client(thing)


def _redis() -> Any:
    try:
        import leasehold.stores.redis as package
    except ModuleNotFoundError as error:
        if error.name != "hiredis":
            raise
        raise Unsupported("a store on Redis or Valkey needs hiredis: pip install 'leasehold[redis]'") from error
    return package


def _sqlite_path(rest: str) -> str:
    """``sqlite:///relative`` and ``sqlite:////absolute``, as SQLAlchemy writes them."""
    path, _, query = rest.partition("?")
    if query:
        raise InvalidRequest("a sqlite URL takes no options")
    if not path.startswith("/"):
        raise InvalidRequest("a sqlite URL has three slashes and a path: sqlite:///path/to/file.db")
    path = path[1:]
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    if not path or path == ":memory:" or "\0" in path:
        raise InvalidRequest("a sqlite URL names a file; for a store in memory use memory://")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidRequest("the path of a sqlite URL cannot be written as a file name") from None
    return os.path.abspath(path)


def _or_env(value: Any, variable: str) -> Any:
    return os.environ.get(variable) or None if value is None else value


def _options(
    ttl: Duration,
    wait: Duration | None,
    renew: bool,
    max_hold: Duration | None,
    max_idle: Duration | None,
    at_least: Duration | None,
    fenced: bool,
    reentrant: bool,
) -> Options:
    return Options(
        ttl_ms=ttl_ms(ttl),
        wait=wait_seconds(wait),
        renews=_flag(renew, "renew"),
        max_hold=optional_seconds(max_hold, "max_hold"),
        max_idle=optional_seconds(max_idle, "max_idle"),
        at_least_ms=optional_ms(at_least, "at_least"),
        fenced=_flag(fenced, "fenced"),
        reentrant=_flag(reentrant, "reentrant"),
    )


_known_options = lru_cache(maxsize=256, typed=True)(_options)  # typed: True is no duration, though 1 is


def _warn_long() -> None:
    warnings.warn(
        "a ttl over 1 h blocks recovery after a crash for that long: renewing leases need seconds, and work of "
        "hours needs durable ownership",
        UserWarning,
        stacklevel=_outside(),
    )


def _outside() -> int:
    """The stacklevel of whoever called lock() or rlock(), for the function that calls this one."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"] == __name__:
        level, frame = level + 1, frame.f_back
    return level


def _flag(value: bool, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{what} must be True or False, not {type(value).__name__}")
    return value


def _meta_text(meta: object) -> str:
    if not isinstance(meta, Mapping):
        raise InvalidRequest(f"meta must be a mapping, not {type(meta).__name__}")
    import json

    try:
        text = json.dumps(dict(meta), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"meta cannot be written as JSON: {type(error).__name__}") from None
    if size > MOST_META_BYTES:
        raise InvalidRequest(f"meta takes at most {MOST_META_BYTES} bytes as JSON")
    return text
