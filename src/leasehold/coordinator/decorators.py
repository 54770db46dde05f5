"""``hold.locked`` in both flavours: what it takes, and how type checkers see the function that comes out of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping

from leasehold._core.light_typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, overload

if TYPE_CHECKING:
    from typing import Unpack

    from leasehold._core.durations import Duration
    from leasehold.coordinator import Id
    from leasehold.primitives.decorator import Skipped

P = ParamSpec("P")
R = TypeVar("R")

Work: TypeAlias = Coroutine[Any, Any, R]
Firm: TypeAlias = Literal["raise", "wait"]
Skip: TypeAlias = Literal["skip"]


class LockOptions(TypedDict, total=False):
    """The keywords of ``lock``, which ``locked`` takes too."""

    ttl: Duration
    wait: Duration | None
    renew: bool
    max_hold: Duration | None
    max_idle: Duration | None
    at_least: Duration | None
    delay: Duration | None
    reentrant: bool
    protects: str | None
    meta: Mapping[str, Any] | None


class Decorator(ABC):
    """What both flavours need of the coordinator."""

    @abstractmethod
    def _decorator(
        self, kind: str, ids: tuple[Id, ...], on_busy: str, lease_as: str | None, options: dict[str, Any]
    ) -> Any: ...


class Decorating(Decorator):
    """``locked`` for threads. A lease that is handed over takes its parameter away: types lose the others with it."""

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Firm = "raise", lease_as: None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Skip, lease_as: None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R | Skipped]]: ...

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Firm = "raise", lease_as: str, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[..., R]], Callable[..., R]]: ...

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Skip, lease_as: str, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[..., R]], Callable[..., R | Skipped]]: ...

    def locked(
        self, kind: str, *ids: Id, on_busy: str = "raise", lease_as: str | None = None, **options: Unpack[LockOptions]
    ) -> Any:
        """Decorate a function or a method: each call runs under the lock of that name, in the calling thread.

        An id may be a template: ``"{site}"``, ``"{self.id}"``, ``"{order[number]}"``, ``"{args[0]}"`` are taken from
        the arguments of the call, defaults too. When it is busy, ``on_busy="raise"`` raises NotAcquired and ``"skip"``
        returns ``leasehold.SKIPPED``, after one try or after ``wait``; ``"wait"`` waits as ``lock`` does.
        ``lease_as`` names a keyword-only parameter through which the function gets its lease. All options of ``lock``
        are taken.

        >>> import leasehold
        >>> hold = leasehold.connect("memory://")
        >>> @hold.locked("rebuild", "{site}", ttl=60, on_busy="skip", lease_as="lease")
        ... def rebuild(site, *, lease):
        ...     return lease.resource
        >>> rebuild("nl")
        'rebuild:nl'
        >>> with hold.lock("rebuild", "nl"):
        ...     rebuild("nl")
        SKIPPED
        >>> hold.close()
        """
        return self._decorator(kind, ids, on_busy, lease_as, dict(options))


class AsyncDecorating(Decorator):
    """``locked`` for asyncio."""

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Firm = "raise", lease_as: None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, Work[R]]], Callable[P, Work[R]]]: ...

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Skip, lease_as: None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, Work[R]]], Callable[P, Work[R | Skipped]]]: ...

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Firm = "raise", lease_as: str, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[..., Work[R]]], Callable[..., Work[R]]]: ...

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Skip, lease_as: str, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[..., Work[R]]], Callable[..., Work[R | Skipped]]]: ...

    def locked(
        self, kind: str, *ids: Id, on_busy: str = "raise", lease_as: str | None = None, **options: Unpack[LockOptions]
    ) -> Any:
        """Decorate a coroutine function: each call runs under the lock of that name, in the calling task.

        The same as for threads, see :meth:`leasehold.Leasehold.locked`. When the lease is lost the call is cancelled,
        and raises LeaseLost.

        >>> import asyncio, leasehold
        >>> async def main():
        ...     async with leasehold.aio.connect("memory://") as hold:
        ...         @hold.locked("rebuild", "{site}", on_busy="skip")
        ...         async def rebuild(site):
        ...             await asyncio.sleep(0.01)
        ...             return "rebuilt"
        ...         return await asyncio.gather(rebuild("nl"), rebuild("nl"), rebuild("be"))
        >>> asyncio.run(main())
        ['rebuilt', SKIPPED, 'rebuilt']
        """
        return self._decorator(kind, ids, on_busy, lease_as, dict(options))
