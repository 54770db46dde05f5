"""``hold.once`` in both flavours: what it takes, and how type checkers see the function that comes out of it."""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload
from leasehold._core.names import known_name
from leasehold.primitives.base_lock import UNSET, Unset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._core.durations import Duration
    from leasehold.coordinator import Id
    from leasehold.patterns.once import AsyncOnce, Once
    from leasehold.patterns.once.once import AsyncLeasedOnce, LeasedOnce
    from leasehold.patterns.results import ResultStore
    from leasehold.patterns.serialization import Serializer

    Fingerprint: TypeAlias = str | Callable[..., Any] | None
    Errors: TypeAlias = type[Exception] | Sequence[type[Exception]] | Literal[True]


class RunningOnce:
    """``once`` for threads."""

    @overload
    def once(
        self,
        kind: str,
        *ids: Id,
        keep: Duration = "24h",
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        fingerprint: Fingerprint = None,
        errors: Errors = (),
        store: ResultStore | None = None,
        serializer: Serializer | None = None,
        lease_as: None = None,
    ) -> Once: ...

    @overload
    def once(
        self,
        kind: str,
        *ids: Id,
        keep: Duration = "24h",
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        fingerprint: Fingerprint = None,
        errors: Errors = (),
        store: ResultStore | None = None,
        serializer: Serializer | None = None,
        lease_as: str,
    ) -> LeasedOnce: ...

    def once(
        self,
        kind: str,
        *ids: Id,
        keep: Duration = "24h",
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        fingerprint: Fingerprint = None,
        errors: Errors = (),
        store: ResultStore | None = None,
        serializer: Serializer | None = None,
        lease_as: str | None = None,
    ) -> Any:
        """Work that is done once for each key, in the whole fleet; its result is kept, and given to whoever asks again.

        ``kind`` and ``ids`` name the key; an id may be a template, as for ``locked``. Who asks while it runs waits for
        the result, at most ``wait``, and is else told NotAcquired. The result is kept for ``keep`` after it is there.
        ``fingerprint``, a template such as ``"{body}"`` or a function of the arguments, says what the same request is:
        the same key with another one is KeyReused. An error frees the key, and the next call runs again; those in
        ``errors`` (classes, or True for all) are an outcome like a result, kept and raised again as RemoteError.

        ``ttl`` is that of the lease under which it runs: when its process dies, the next takes over after that long,
        with a higher fence, and one that only slept can no longer store anything (StaleOwner). ``max_hold`` is how long
        it may run: then its lease ends, and the next takes over, so that work which hangs does not block its key for
        ever. ``store`` is the result store for results; without one they lie beside the leases. ``lease_as`` names a
        keyword-only parameter through which the function gets its lease.

        Everybody gets an equal result of the same type: types of the standard library, and dataclasses, enums, models
        of Pydantic's and the like that the return annotation or the module of the function names. An annotation that
        cannot be kept is InvalidRequest at decoration. A result that cannot be stored all the same is its caller's, and
        ResultNotKept for whoever asks again. ``serializer``, what has ``dumps`` and ``loads``, writes results
        otherwise.

        >>> import leasehold
        >>> hold = leasehold.connect("memory://once")
        >>> @hold.once("payment", "{request_id}", keep="24h", fingerprint="{body}")
        ... def pay(request_id, body):
        ...     print("paying", body["amount"])
        ...     return {"paid": body["amount"]}
        >>> pay("r-1", {"amount": 5})
        paying 5
        {'paid': 5}
        >>> pay("r-1", {"amount": 5})
        {'paid': 5}
        >>> hold.close()
        """
        given = (keep, fingerprint, errors, store, serializer, lease_as)
        return make_once(self, kind, ids, {"ttl": ttl, "wait": wait, "max_hold": max_hold}, given)


class AsyncRunningOnce:
    """``once`` for asyncio."""

    @overload
    def once(
        self,
        kind: str,
        *ids: Id,
        keep: Duration = "24h",
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        fingerprint: Fingerprint = None,
        errors: Errors = (),
        store: ResultStore | None = None,
        serializer: Serializer | None = None,
        lease_as: None = None,
    ) -> AsyncOnce: ...

    @overload
    def once(
        self,
        kind: str,
        *ids: Id,
        keep: Duration = "24h",
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        fingerprint: Fingerprint = None,
        errors: Errors = (),
        store: ResultStore | None = None,
        serializer: Serializer | None = None,
        lease_as: str,
    ) -> AsyncLeasedOnce: ...

    def once(
        self,
        kind: str,
        *ids: Id,
        keep: Duration = "24h",
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        fingerprint: Fingerprint = None,
        errors: Errors = (),
        store: ResultStore | None = None,
        serializer: Serializer | None = None,
        lease_as: str | None = None,
    ) -> Any:
        """Work that is done once for each key, see :meth:`leasehold.Leasehold.once`. It decorates coroutine functions.
        When the lease is lost while it runs, the call is cancelled, and raises LeaseLost.

        >>> import asyncio, leasehold
        >>> async def main():
        ...     async with leasehold.aio.connect("memory://once-aio") as hold:
        ...         @hold.once("payment", "{request_id}", fingerprint="{amount}")
        ...         async def pay(request_id, amount):
        ...             await asyncio.sleep(0.01)
        ...             print("paying", amount)
        ...             return amount
        ...         return await asyncio.gather(pay("r-1", 5), pay("r-1", 5), pay("r-1", 5))
        >>> asyncio.run(main())
        paying 5
        [5, 5, 5]
        """
        given = (keep, fingerprint, errors, store, serializer, lease_as)
        return make_once(self, kind, ids, {"ttl": ttl, "wait": wait, "max_hold": max_hold}, given)


def make_once(hold: Any, kind: str, ids: tuple[Id, ...], options: dict[str, Any], given: tuple[Any, ...]) -> Any:
    """Checked, before anything is sent."""
    from leasehold.patterns.once import once  # loaded only by those who use it
    from leasehold.patterns.results.memory import shared
    from leasehold.primitives.decorated_function import check_kind

    check_kind(kind)
    model = hold.lock(kind, **options)  # what is wrong is said now, and not at calls

    def make(*ids: str) -> Any:
        return hold._make_lock(known_name(hold._namespace, hold._id_key, kind, *ids), model._options)

    keep, fingerprint, errors, store, serializer, lease_as = given
    flavour = hold._flavour
    kinds = (once.AsyncOnce, once.AsyncLeasedOnce) if flavour.asynchronous else (once.Once, once.LeasedOnce)
    return kinds[lease_as is not None](
        make,
        ids,
        flavour,
        hold._id_key,
        keep=keep,
        fingerprint=fingerprint,
        store=lambda: hold._results if store is None else shared(store, hold._engine.store.name),
        serializer=serializer,
        errors=errors,
        lease_as=lease_as,
    )
