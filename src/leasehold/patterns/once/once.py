"""``hold.once``: a function that runs once for each key, a call, and a ``with`` for one's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from leasehold._core.templates import Template
from leasehold.errors import InvalidRequest, LeaseLost
from leasehold.patterns.flavour import CallOutcome
from leasehold.patterns.once.fingerprint import Fingerprint
from leasehold.patterns.once.key import AsyncOnceKey, BaseKey, OnceKey, OnceOptions
from leasehold.patterns.results.result_store import ResultStore, check_keep
from leasehold.patterns.scope import codec_here
from leasehold.patterns.serialization import check_serializer, serializer_of
from leasehold.patterns.values import Codec
from leasehold.primitives.decorated_function import DecoratedFunction, check_filled, check_function

if TYPE_CHECKING:
    from leasehold.patterns.flavour import Flavour

P = ParamSpec("P")
R = TypeVar("R")


class BaseOnce:
    """What both flavours share. ``make`` gives the lock for the ids of a call."""

    __slots__ = ("_fingerprint", "_lease_as", "_make", "_names", "_options", "_serializer", "_templates")

    def __init__(  # what hold.once was given
        self,
        make: Callable[..., Any],
        templates: Sequence[object],
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
        self._make = make
        self._templates = [Template(one) for one in templates]
        self._fingerprint = Fingerprint(fingerprint, id_key)
        self._names = [name for one in self._templates for name in one.names] + self._fingerprint.names
        self._lease_as = lease_as
        keep_ms, self._serializer = check_keep(keep), check_serializer(serializer)
        kinds = _check_errors(errors)
        self._options = OnceOptions(flavour, store(), self._serializer or Codec(), keep_ms, kinds)
        if not any(one.names for one in self._templates):
            self._lock({})  # what is wrong with a name that is known is said now

    def _lock(self, values: dict[str, Any]) -> Any:
        return self._make(*[one.text(values) for one in self._templates])

    def _key(
        self, kind: Any, plan: OnceOptions, values: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # of the flavour
        lock = self._lock(values)
        return kind(plan, lock, self._fingerprint.of(lock.resource, values, args, kwargs))

    def _begin(self, kind: Any, values: dict[str, Any]) -> Any:
        """Everything that the templates name must be given, and nothing else, unless a function takes it."""
        unknown = [] if self._fingerprint.function else [name for name in values if name not in self._names]
        if unknown:
            known = ", ".join(self._names) or "none"
            raise InvalidRequest(f"begin() knows no {unknown[0]!r}: the templates of this once name {known}")
        plan = self._options if self._serializer is not None else self._options._replace(serializer=codec_here())
        return self._key(kind, plan, values, (), values)

    def _decorated(self, function: Callable[..., Any]) -> Callable[..., Any]:
        flavour = self._options.flavour
        check_function(function, flavour.asynchronous, "once")
        called = DecoratedFunction(function, self._names, self._lease_as)
        serializer = serializer_of(function, self._serializer)

        async def flow(*args: Any, **kwargs: Any) -> Any:
            plan = self._options._replace(serializer=serializer())
            key = self._key(BaseKey, plan, called.values(args, kwargs), args, dict(kwargs))
            return await self._run(key, function, args, kwargs)

        shell = flavour.wrap(flow)
        if flavour.asynchronous:

            async def run(*args: Any, **kwargs: Any) -> Any:
                return (await shell(*args, **kwargs)).get()

            return called.dress(run)
        return called.dress(lambda *args, **kwargs: shell(*args, **kwargs).get())

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
        except LeaseLost:  # what is stored is the result, also when the lease ended just then
            if outcome.error is not None or not key._completed:
                raise
        except StopIteration as error:  # of the function: no coroutine would let it through
            return CallOutcome(error=error)
        return CallOutcome(key.result)  # as all others get it

    def __reduce__(self) -> str:
        """It leads to the coordinator of this process."""
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
    """With ``lease_as``: the parameter of the lease is not the caller's, and types lose the others with it."""

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
    """With ``lease_as``."""

    __slots__ = ()

    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]]) -> Callable[..., Coroutine[Any, Any, R]]:
        """Decorate a coroutine function or method."""
        return self._decorated(function)


def _check_errors(errors: object) -> tuple[type[Exception], ...]:
    """Which errors are an outcome. Cancellation and interrupts never are."""
    if errors is True:
        return (Exception,)
    several = (errors,) if isinstance(errors, type) else errors
    if not isinstance(several, (tuple, list)) or not all(
        isinstance(one, type) and issubclass(one, Exception) for one in several
    ):
        raise InvalidRequest("errors are the classes of those that are stored as an outcome, or True for all of them")
    return tuple(several)
