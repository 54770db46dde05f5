"""Leasehold and AsyncLeasehold: the coordinators that hand out locks. The only place where rooms are wired."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

from leasehold._core.durations import is_long, wait_seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, TypeVar
from leasehold._core.names import Name, check_id_key, check_namespace, known_name, make_name
from leasehold._core.ports import Store
from leasehold._core.types import meta_text
from leasehold._runtime.engine import Engine
from leasehold._runtime.options import Options, known_options, make_options, warn_long
from leasehold.coordinator.cron import AsyncScheduling, Scheduling
from leasehold.coordinator.decorators import AsyncDecorating, Decorating
from leasehold.coordinator.once import AsyncRunningOnce, RunningOnce
from leasehold.coordinator.operators import AsyncOperating, Operating
from leasehold.coordinator.primitives import (
    Adopting,
    AsyncAdopting,
    AsyncElecting,
    AsyncGathering,
    AsyncSharing,
    Counting,
    Electing,
    Gathering,
    Sharing,
)
from leasehold.coordinator.results import DefaultResults
from leasehold.coordinator.single_flight import AsyncFlying, Flying
from leasehold.coordinator.stores import open_store
from leasehold.observe.observers import Observers
from leasehold.primitives.base_lock import UNSET, Unset
from leasehold.primitives.lock import AsyncLock, Lock

if TYPE_CHECKING:
    from datetime import date
    from uuid import UUID

    from leasehold._core.durations import Duration
    from leasehold.coordinator.stores import Target
    from leasehold.observe.events import Observer
    from leasehold.primitives.semaphore import AsyncSemaphore, Semaphore

    Id = str | int | UUID | date

L = TypeVar("L", Lock, AsyncLock)


class Coordinator(DefaultResults, ABC, Generic[L]):
    """What both flavours share. Making one sends nothing; the first call connects."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str | None = None,
        wait: Duration | None = None,
        observers: Iterable[Observer] = (),
        hide_ids: str | bytes | None = None,
    ) -> None:
        self._namespace = check_namespace(_or_env(namespace, "LEASEHOLD_NAMESPACE"))
        self._id_key = check_id_key(_or_env(hide_ids, "LEASEHOLD_ID_KEY"))
        self._default_wait = wait_seconds(wait)
        self._engine = Engine(store, Observers(observers))
        self._closers: list[Callable[[], Any]] = []  # of what patterns have opened and started

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
        delay: Duration | None = None,
        reentrant: bool = False,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> L:
        """A lock on one resource: exclusive, first come first served, fenced.

        ``kind`` says what sort of thing it is and ``ids`` which one. ``ttl`` is how long the lease lasts without
        renewal; with ``renew`` it is renewed while somebody uses it, at most for ``max_hold``, and only while the
        work calls ``lease.beat()`` every ``max_idle``. ``wait`` is how long to block: None for ever, 0 one try.
        Inside its own body it never comes free: to wait for ever there is InvalidRequest, and ``rlock`` enters again.
        ``at_least`` keeps others out for that long even when it is released earlier, and ``delay`` for that long after
        its time was over without a release: whoever had it may not have noticed yet. ``protects`` says what for:
        with ``"correctness"`` a lease that ends without a guard having seen its fence, or anybody having read it, is
        told of. ``meta`` is shown to whoever inspects the holder.
        """
        if isinstance(wait, Unset):
            wait = self._default_wait
        asked = (ttl, wait, renew, max_hold, max_idle, at_least, delay, reentrant, protects)
        return self._make_lock(*self._asked(kind, ids, asked, meta))

    def _asked(
        self, kind: str, ids: tuple[Id, ...], asked: tuple[Any, ...], meta: Mapping[str, Any] | None
    ) -> tuple[Name, Options]:
        """Which resource, and how it is to be held, checked."""
        try:
            options = known_options(*asked)
            name = known_name(self._namespace, self._id_key, kind, *ids)
        except TypeError:  # what cannot be hashed is refused as any other wrong thing
            options = make_options(*asked)
            name = make_name(self._namespace, kind, ids, self._id_key)
        if is_long(options.ttl_ms):
            warn_long()
        if meta is not None:
            text = meta_text(meta)
            options = options.with_meta(dict(meta), text)
        return name, options

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
        delay: Duration | None = None,
        protects: str | None = None,
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
            delay=delay,
            reentrant=True,
            protects=protects,
            meta=meta,
        )

    def _decorator(
        self, kind: str, ids: tuple[Id, ...], on_busy: str, lease_as: str | None, options: dict[str, Any]
    ) -> Any:
        from leasehold.primitives.decorator import decorator, default_wait  # needs inspect, which is slow to load

        model = self.lock(
            kind, **{**default_wait(kind, on_busy), **options}
        )  # what is wrong is said now, and not at calls

        def make(*ids: str) -> L:
            return self._make_lock(known_name(self._namespace, self._id_key, kind, *ids), model._options)

        return decorator(make, ids, on_busy, lease_as, isinstance(model, AsyncLock))

    @abstractmethod
    def _make_lock(self, name: Name, options: Options) -> L: ...

    def __reduce__(self) -> str:
        """Its connections, its thread and what it holds are this process's."""
        raise TypeError("a coordinator stays in its process: send its URL, and call connect() in the other process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._engine.store.name}>"


class Leasehold(
    Coordinator[Lock],
    Adopting,
    Counting["Semaphore"],
    Decorating,
    Electing,
    Flying,
    Gathering,
    Operating,
    RunningOnce,
    Scheduling,
    Sharing,
):
    """A coordinator for threads; made by :func:`leasehold.connect`. ``close()`` gives back what it holds."""

    def close(self) -> None:
        """Give back what is held and let go of the store. What was held is lost (``closed``)."""
        try:
            while self._closers:
                self._closers.pop()()
        finally:
            self._engine.close()

    def _make_lock(self, name: Name, options: Options) -> Lock:
        return Lock(self._engine, name, options)

    def _make_semaphore(self, name: Name, options: Options, limit: int, permits: int) -> Semaphore:
        from leasehold.primitives.semaphore import Semaphore  # loaded only by those who use it

        return Semaphore(self._engine, name, options, limit, permits)

    def __enter__(self) -> Leasehold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncLeasehold(
    Coordinator[AsyncLock],
    AsyncAdopting,
    Counting["AsyncSemaphore"],
    AsyncDecorating,
    AsyncElecting,
    AsyncFlying,
    AsyncGathering,
    AsyncOperating,
    AsyncRunningOnce,
    AsyncScheduling,
    AsyncSharing,
):
    """A coordinator for asyncio; made by :func:`leasehold.aio.connect`."""

    _asynchronous = True

    def __init__(
        self,
        store: Store,
        *,
        namespace: str | None = None,
        wait: Duration | None = None,
        observers: Iterable[Observer] = (),
        hide_ids: str | bytes | None = None,
    ) -> None:
        from leasehold._runtime.aio import AsyncDriver  # asyncio is loaded only by those who use it

        super().__init__(store, namespace=namespace, wait=wait, observers=observers, hide_ids=hide_ids)
        self._driver = AsyncDriver(self._engine)

    async def close(self) -> None:
        """Give back what is held and let go of the store. What was held is lost (``closed``)."""
        try:
            while self._closers:
                closing = self._closers.pop()()
                if closing is not None:
                    await closing
        finally:
            await self._close_engine()

    async def _close_engine(self) -> None:
        self._driver.close()
        await self._driver.in_thread(self._engine.close)

    def _make_lock(self, name: Name, options: Options) -> AsyncLock:
        return AsyncLock(self._engine, name, options, self._driver)

    def _make_semaphore(self, name: Name, options: Options, limit: int, permits: int) -> AsyncSemaphore:
        from leasehold.primitives.semaphore import AsyncSemaphore

        return AsyncSemaphore(self._engine, name, options, self._driver, limit, permits)

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
    observers: Iterable[Observer] = (),
    hide_ids: str | bytes | None = None,
) -> Leasehold:
    """A coordinator for threads, over the store that ``target`` names.

    ``target`` is a URL: ``redis://host``, ``sqlite:///path`` (on this host, every user who may write the file) or
    ``memory://`` (this process); or a client of redis-py or valkey-py, whose server and settings are used and which is
    never closed. Without one it is ``LEASEHOLD_URL``, else the embedded store in the user's state folder. ``wait`` is
    the default of every lock; ``observers`` hear of what happens (``leasehold.observe``); ``hide_ids`` is a key under
    which ids are hashed before they are stored.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold, hold.lock("report-export", 42, ttl=30) as lease:
    ...     lease.resource
    'report-export:42'
    """
    return Leasehold(open_store(target), namespace=namespace, wait=wait, observers=observers, hide_ids=hide_ids)


def _or_env(value: Any, variable: str) -> Any:
    return os.environ.get(variable) or None if value is None else value
