"""``hold.single_flight`` in both flavours: one rebuild in the fleet, and everybody gets what came of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from leasehold._core.light_typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, overload
from leasehold.primitives.base_lock import UNSET, Unset

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold.coordinator import Id
    from leasehold.patterns.results import ResultStore
    from leasehold.patterns.serialization import Serializer
    from leasehold.patterns.single_flight.single_flight import (
        AsyncSingleFlight,
        AsyncSingleFlightFunction,
        SingleFlight,
        SingleFlightFunction,
    )

P = ParamSpec("P")
R = TypeVar("R")

OnDown: TypeAlias = Literal["raise", "call"]


class Flying:
    """For threads."""

    _crew: Any = None

    @overload
    def single_flight(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        fresh: Duration = 60,
        stale: Duration | None = None,
        errors: Duration | None = None,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        cache: ResultStore | None = None,
        serializer: Serializer | None = None,
        on_down: OnDown = "raise",
        lease_as: None = None,
    ) -> SingleFlight: ...

    @overload
    def single_flight(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        fresh: Duration = 60,
        stale: Duration | None = None,
        errors: Duration | None = None,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        cache: ResultStore | None = None,
        serializer: Serializer | None = None,
        on_down: OnDown = "raise",
        lease_as: str,
    ) -> Callable[[Callable[..., R]], SingleFlightFunction[..., R]]: ...

    def single_flight(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        fresh: Duration = 60,
        stale: Duration | None = None,
        errors: Duration | None = None,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        cache: ResultStore | None = None,
        serializer: Serializer | None = None,
        on_down: str = "raise",
        lease_as: str | None = None,
    ) -> Any:
        """Decorate a function: its value is cached, and one caller in the whole fleet rebuilds it while the others wait
        for what comes of it, value or error.

        A value is ``fresh`` for that long. For ``stale`` more it is still served at once, while one rebuilds it in the
        background. An error reaches those who waited; for ``errors`` seconds it also reaches who comes later, in place
        of another rebuild. ``ttl`` is how soon a rebuilder that died is replaced, ``max_hold`` how long one may take,
        ``wait`` how long a caller waits for others. Ids are templates, and ``lease_as`` works, as with ``locked``.
        ``cache`` is where values are kept: beside the leases, or on a result store of yours. With
        ``on_down="call"`` the
        function is called all the same when the store cannot be reached.

        Everybody gets an equal value of the same type, as with ``once``: the return annotation names classes, or the
        module does; an annotation that cannot be kept is InvalidRequest at decoration. A value that cannot be stored
        all the same is its caller's, and ResultNotKept for others, for as long as it would be fresh. ``serializer`` has
        ``dumps`` and ``loads``, as ``pickle`` does, and writes values otherwise.

        >>> import leasehold
        >>> hold = leasehold.connect("memory://")
        >>> @hold.single_flight("page", "{key}", ttl=30, fresh=60, stale=600)
        ... def page(key):
        ...     print("rebuilding")
        ...     return f"<h1>{key}</h1>"
        >>> page("home")
        rebuilding
        '<h1>home</h1>'
        >>> page("home")
        '<h1>home</h1>'
        >>> page.forget("home")
        >>> hold.single_flight("page", "home", fresh=60).call(str.upper, "new")
        'NEW'
        >>> hold.close()
        """
        from leasehold.patterns.single_flight.single_flight import SingleFlight

        asked = (fresh, stale, errors, cache, serializer, lease_as, on_down)
        return _made(SingleFlight, self, kind, ids, asked, ttl, wait, max_hold)


class AsyncFlying:
    """For asyncio: the same, awaited."""

    _crew: Any = None

    @overload
    def single_flight(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        fresh: Duration = 60,
        stale: Duration | None = None,
        errors: Duration | None = None,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        cache: ResultStore | None = None,
        serializer: Serializer | None = None,
        on_down: OnDown = "raise",
        lease_as: None = None,
    ) -> AsyncSingleFlight: ...

    @overload
    def single_flight(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        fresh: Duration = 60,
        stale: Duration | None = None,
        errors: Duration | None = None,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        cache: ResultStore | None = None,
        serializer: Serializer | None = None,
        on_down: OnDown = "raise",
        lease_as: str,
    ) -> Callable[[Callable[..., Coroutine[Any, Any, R]]], AsyncSingleFlightFunction[..., R]]: ...

    def single_flight(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        fresh: Duration = 60,
        stale: Duration | None = None,
        errors: Duration | None = None,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        cache: ResultStore | None = None,
        serializer: Serializer | None = None,
        on_down: str = "raise",
        lease_as: str | None = None,
    ) -> Any:
        """Decorate a coroutine function; see :meth:`leasehold.Leasehold.single_flight`.

        A rebuild runs in a task of its own, with the context of the caller that came first. It goes on while anybody
        waits for it: a caller that is cancelled takes nobody along, and the last one ends it.

        >>> import asyncio, leasehold
        >>> async def main():
        ...     async with leasehold.aio.connect("memory://") as hold:
        ...         @hold.single_flight("page", "{key}")
        ...         async def page(key):
        ...             print("rebuilding")
        ...             await asyncio.sleep(0.01)
        ...             return f"<h1>{key}</h1>"
        ...         return await asyncio.gather(page("news"), page("news"))
        >>> asyncio.run(main())
        rebuilding
        ['<h1>news</h1>', '<h1>news</h1>']
        """
        from leasehold.patterns.single_flight.single_flight import AsyncSingleFlight

        asked = (fresh, stale, errors, cache, serializer, lease_as, on_down)
        return _made(AsyncSingleFlight, self, kind, ids, asked, ttl, wait, max_hold)


def _made(
    flight: Callable[..., Any],
    hold: Any,
    kind: str,
    ids: tuple[Id, ...],
    asked: tuple[Any, ...],
    ttl: Duration,
    wait: Duration | Unset | None,
    max_hold: Duration | None,
) -> Any:
    """Its lock is asked for as any lock, so that what is wrong shows now, and not at calls."""
    from leasehold.patterns.single_flight.single_flight import SingleFlightOptions

    return flight(hold, kind, ids, SingleFlightOptions(*asked), hold.lock(kind, ttl=ttl, wait=wait, max_hold=max_hold))
