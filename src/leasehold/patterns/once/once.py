"""``hold.once``: a function that runs once for each key, a call, and a ``with`` for one's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from leasehold._core.templates import NameTemplate
from leasehold.errors import InvalidRequest, LeaseLost
from leasehold.patterns.annotations import codec_here
from leasehold.patterns.flavour import CallOutcome
from leasehold.patterns.once.fingerprint import Fingerprint
from leasehold.patterns.once.key import AsyncOnceKey, BaseKey, OnceKey, OnceOptions
from leasehold.patterns.results.result_store import ResultStore, check_keep
from leasehold.patterns.serialization import check_serializer, serializer_of
from leasehold.primitives.decorated_function import DecoratedFunction, check_filled, check_function

if TYPE_CHECKING:
    from leasehold.patterns.flavour import Flavour

P = ParamSpec("P")
R = TypeVar("R")


class BaseOnce:
    """What both flavours share. ``make_lock`` gives the lock for the ids of a call."""

    __slots__ = ("_fingerprint", "_lease_as", "_make_lock", "_names", "_options", "_serializer", "_template")

    def __init__(
        self,
        make_lock: Callable[..., Any],
        ids: Sequence[object],
        flavour: Flavour,
        id_key: bytes,
        *,
        keep: object,
        fingerprint: object,
        store: Callable[[], ResultStore],
        serializer: object,
        errors: object,
        lease_as: str | None,
    ) -> None:
        check_filled(lease_as)
        self._make_lock = make_lock
        self._template = NameTemplate(ids)
        self._fingerprint = Fingerprint(fingerprint, id_key)
        self._names = [*self._template.names, *self._fingerprint.names]
        self._lease_as = lease_as
        keep_ms, self._serializer = check_keep(keep), check_serializer(serializer)
        self._options = OnceOptions(
            flavour=flavour,
            errors=_check_errors(errors),
            results=store(),
            keep_ms=keep_ms,
        )
        if not self._template.names:
            self._lock({})  # a wrong name that is known now is reported now

    def _lock(self, values: dict[str, Any]) -> Any:
        return self._make_lock(*self._template.ids(values))

    def _key(
        self, key_type: Any, serializer: Any, values: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # a ``key_type``
        lock = self._lock(values)
        fingerprint = self._fingerprint.of(lock.resource, values, args, kwargs)
        return key_type(self._options, serializer, lock, fingerprint)

    def _begin(self, key_type: Any, values: dict[str, Any]) -> Any:
        """Refuse values that no template names, unless the fingerprint is a function, which may take them."""
        unknown = [] if self._fingerprint.function else [name for name in values if name not in self._names]
        if unknown:
            known = ", ".join(self._names) or "none"
            raise InvalidRequest(f"begin() knows no {unknown[0]!r}: the templates of this once name {known}")
        serializer = codec_here() if self._serializer is None else self._serializer
        return self._key(key_type, serializer, values, (), values)

    def _decorated(self, function: Callable[..., Any]) -> Callable[..., Any]:
        flavour = self._options.flavour
        check_function(function, flavour.asynchronous, "once")
        decorated = DecoratedFunction(function, self._names, self._lease_as)
        serializer = serializer_of(function, self._serializer)

        async def flow(*args: Any, **kwargs: Any) -> Any:
            key = self._key(BaseKey, serializer(), decorated.values(args, kwargs), args, dict(kwargs))
            return await self._run(key, function, args, kwargs)

        wrapped = flavour.wrap(flow)
        if flavour.asynchronous:

            async def run(*args: Any, **kwargs: Any) -> Any:
                return (await wrapped(*args, **kwargs)).get()

            return decorated.dress(run)
        return decorated.dress(lambda *args, **kwargs: wrapped(*args, **kwargs).get())

    async def _run(self, key: BaseKey, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> CallOutcome:
        outcome = CallOutcome()
        try:
            async with key._use():
                if key.done:
                    return CallOutcome(key.result)
                if self._lease_as is not None:
                    kwargs[self._lease_as] = key._lease
                outcome = await self._options.flavour.call(function, args, kwargs)
                if outcome.error is not None:
                    raise outcome.error
                await key._complete(outcome.value)
        except LeaseLost:  # a stored result counts, even if the lease was lost right afterwards
            if outcome.error is not None or not key._completed:
                raise
        except StopIteration as error:  # raised by the function: a coroutine cannot raise it
            return CallOutcome(error=error)
        return CallOutcome(key.result)  # as all other callers get it

    def __reduce__(self) -> str:
        """It cannot be pickled: it belongs to the coordinator of this process."""
        raise TypeError("what once() gave stays in its process: make it there, from connect()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} keep={self._options.keep_ms / 1000:g}s>"


class Once(BaseOnce):
    """What ``hold.once(...)`` gives: a decorator; ``call`` for a function that is not decorated; ``begin`` for work in
    a ``with``, which can store its result in its own transaction."""

    __slots__ = ()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function or a method."""
        return self._decorated(function)

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """``function(*args, **kwargs)``, once for the key that the arguments name."""
        return self._decorated(function)(*args, **kwargs)  # type: ignore[no-any-return]  # what the function gives

    def begin(self, /, **values: Any) -> OnceKey:
        """For a ``with``: the key for these values of the templates. When it is ``done``, return its ``result``; else
        do the work, and call ``complete``. An error, or leaving without it, frees the key.

        >>> import leasehold
        >>> hold = leasehold.connect("memory://begin")
        >>> once = hold.once("payment", "{request_id}", fingerprint="{amount}")
        >>> with once.begin(request_id="r-1", amount=5) as key:
        ...     if not key.done:
        ...         key.complete("paid 5")
        >>> with once.begin(request_id="r-1", amount=5) as key:
        ...     key.done, key.result
        (True, 'paid 5')
        >>> hold.close()
        """
        return self._begin(OnceKey, values)  # type: ignore[no-any-return]  # of the flavour


class LeasedOnce(Once):
    """With ``lease_as``: callers do not pass that parameter, and type checkers lose sight of the others."""

    __slots__ = ()

    def __call__(self, function: Callable[..., R]) -> Callable[..., R]:
        """Decorate a function or a method."""
        return self._decorated(function)


class AsyncOnce(BaseOnce):
    """The same for asyncio: decorates coroutine functions, ``call`` is awaited, ``begin`` is for ``async with``."""

    __slots__ = ()

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a coroutine function or method."""
        return self._decorated(function)

    async def call(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """``await function(*args, **kwargs)``, once for the key that the arguments name."""
        return await self._decorated(function)(*args, **kwargs)  # type: ignore[no-any-return]  # what it gives

    def begin(self, /, **values: Any) -> AsyncOnceKey:
        """For an ``async with``, see :meth:`leasehold.patterns.Once.begin`."""
        return self._begin(AsyncOnceKey, values)  # type: ignore[no-any-return]  # of the flavour


class AsyncLeasedOnce(AsyncOnce):
    """With ``lease_as``, see ``LeasedOnce``."""

    __slots__ = ()

    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]]) -> Callable[..., Coroutine[Any, Any, R]]:
        """Decorate a coroutine function or method."""
        return self._decorated(function)


def _check_errors(errors: object) -> tuple[type[Exception], ...]:
    """The classes of errors that are an outcome. Cancellation and interrupts never are."""
    if errors is True:
        return (Exception,)
    several = (errors,) if isinstance(errors, type) else errors
    if not isinstance(several, (tuple, list)) or not all(
        isinstance(one, type) and issubclass(one, Exception) for one in several
    ):
        raise InvalidRequest("errors are the classes of those that are stored as an outcome, or True for all of them")
    return tuple(several)
