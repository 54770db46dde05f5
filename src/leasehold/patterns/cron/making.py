"""From what ``hold.cron`` was given to a cron. What is wrong is said here, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold._core.durations import seconds
from leasehold.errors import InvalidRequest
from leasehold.patterns.cron.clock import Clock, WallClock
from leasehold.patterns.cron.cron import AsyncCron, Cron
from leasehold.patterns.cron.history import Books
from leasehold.patterns.cron.plan import Policy
from leasehold.patterns.cron.schedule import Schedule
from leasehold.patterns.results import Shelf
from leasehold.patterns.results.memory import shared
from leasehold.primitives.decorated_function import Function, check_filled, check_function

MISSED = ("skip", "once", "all")
OVERLAP = ("skip", "wait")
SHORTEST_GRACE = 60.0  # seconds; a holder that dies keeps others out for a ttl, and its tick is then not missed
LONGEST_GRACE = 366 * 86400.0


class Wanted:
    """What was asked for, checked: the lock, and the books beside it. For ``hold.cron`` and ``leasehold cron``."""

    def __init__(
        self,
        hold: Any,
        name: tuple[Any, ...],
        schedule: Schedule,
        options: dict[str, Any],
        *,
        missed: str = "skip",
        overlap: str = "skip",
        grace: Any = None,
        store: Shelf | None = None,
        clock: Clock | None = None,
    ) -> None:
        for one in name:
            if isinstance(one, str) and "{" in one:
                raise InvalidRequest("a cron is called by nobody, so its name takes no fields: write kind and ids out")
        self._hold, self._name, self._schedule = hold, name, schedule
        self._options = {"wait": 0, **options}
        model = self.lock(0)
        policy = Policy(_one_of(missed, "missed", MISSED), _one_of(overlap, "overlap", OVERLAP), 0.0)
        policy = policy._replace(grace=_grace(grace, model._options.ttl_ms / 1000))
        shelf = hold._shelf if store is None else shared(store, hold._engine.store.name)
        clock = WallClock() if clock is None else clock
        self.books = Books(
            hold._flavour, shelf, model.resource, model._name.shown, schedule, policy, clock, self._store_time
        )

    def lock(self, tick: int | None) -> Any:
        """For a run; without a tick, for a look at the books, which keeps nobody out for longer than it takes."""
        options = dict(self._options)
        if tick is None:
            options["at_least"] = None
        elif tick:
            options["meta"] = {"tick": self._schedule.moment(tick).isoformat()}
        return self._hold.lock(*self._name, **options)

    async def _store_time(self) -> float | None:
        seen = await self._hold._flavour.settled(self._hold.inspect(self.lock(None)))
        holder = seen.holder
        return None if holder is None or holder.since is None else holder.since.timestamp()


def decorator(
    hold: Any, expression: str, timezone: str, name: tuple[Any, ...], lease_as: str | None, options: dict[str, Any]
) -> Callable[[Function], Any]:
    """What ``hold.cron`` returns."""
    check_filled(lease_as)
    held = {key: options.pop(key) for key in ("ttl", "at_least")}
    held["max_hold"] = options.pop("at_most")
    wanted = Wanted(hold, name, Schedule(expression, timezone), held, **options)
    asynchronous = hold._asynchronous

    def decorate(function: Function) -> Any:
        check_function(function, asynchronous, "cron")
        kind: Any = AsyncCron if asynchronous else Cron
        return kind(hold, wanted.books, wanted.lock, function, lease_as)

    return decorate


def _one_of(value: object, what: str, known: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in known:
        return value
    raise InvalidRequest(f"{what} is one of {', '.join(map(repr, known))}")


def _grace(grace: object, ttl: float) -> float:
    if grace is None:
        return max(SHORTEST_GRACE, 2 * ttl)
    return min(seconds(grace, "grace"), LONGEST_GRACE)
