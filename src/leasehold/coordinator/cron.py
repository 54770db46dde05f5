"""``hold.cron`` in both flavours: one run a tick in the fleet."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from leasehold._core.light_typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold.coordinator import Id
    from leasehold.patterns.cron import AsyncCron, Cron
    from leasehold.patterns.cron.schedule import CronClock
    from leasehold.patterns.results import ResultStore

P = ParamSpec("P")
R = TypeVar("R")

Work: TypeAlias = Coroutine[Any, Any, R]
Missed: TypeAlias = Literal["skip", "once", "all"]
Overlap: TypeAlias = Literal["skip", "wait"]


class Scheduling:
    """For threads."""

    def cron(
        self,
        expression: str,
        kind: str,
        *ids: Id,
        timezone: str = "UTC",
        missed: Missed = "skip",
        overlap: Overlap = "skip",
        grace: Duration | None = None,
        at_least: Duration | None = None,
        at_most: Duration | None = None,
        ttl: Duration = 30,
        lease_as: str | None = None,
        store: ResultStore | None = None,
        clock: CronClock | None = None,
    ) -> Callable[[Callable[P, R]], Cron[P, R]]:
        """Decorate a function that is to be run at each tick of a cron expression, by one process of the fleet.

        The function gets the tick, an aware datetime of the scheduled time, if it takes a parameter. It is run while
        the lease on ``kind`` and ``ids`` is held, from the moment when ``start()`` or ``run()`` of the returned
        :class:`leasehold.patterns.Cron` was called. A tick is claimed before it is run: a run that dies is not
        repeated.

        A tick that nobody began within ``grace`` (a minute, and at least two ttls), or before the next one came, is
        missed. ``missed="skip"`` leaves it at that, ``"once"`` makes one run up for all of them, however late, and
        ``"all"`` one for each, in order. A tick that comes while a run is under way is left out with
        ``overlap="skip"``, and run after it with ``"wait"``.

        ``at_least`` and ``ttl`` are as with ``lock``; after ``at_most`` the lease of a run is lost. ``lease_as`` names
        a keyword-only parameter through which the function gets its lease. ``store`` is the result store where the
        history is
        kept, by default beside the leases. ``clock`` is for tests.

        >>> import leasehold
        >>> hold = leasehold.connect("memory://")
        >>> @hold.cron("*/5 * * * *", "rollup", at_least="30s", missed="skip")
        ... def rollup(tick):
        ...     print("rolling up to", tick)
        >>> rollup.start()
        <Cron '*/5 * * * *' rollup>
        >>> rollup.stop()
        True
        >>> hold.close()
        """
        options = {"missed": missed, "overlap": overlap, "grace": grace, "store": store, "clock": clock}
        held = {"at_least": at_least, "at_most": at_most, "ttl": ttl}
        return _decorator(self, expression, timezone, (kind, *ids), lease_as, {**options, **held})  # type: ignore[no-any-return]  # loaded late, so not known here


class AsyncScheduling:
    """For asyncio."""

    def cron(
        self,
        expression: str,
        kind: str,
        *ids: Id,
        timezone: str = "UTC",
        missed: Missed = "skip",
        overlap: Overlap = "skip",
        grace: Duration | None = None,
        at_least: Duration | None = None,
        at_most: Duration | None = None,
        ttl: Duration = 30,
        lease_as: str | None = None,
        store: ResultStore | None = None,
        clock: CronClock | None = None,
    ) -> Callable[[Callable[P, Work[R]]], AsyncCron[P, Work[R]]]:
        """Decorate a coroutine function that is to be run at each tick; see :meth:`leasehold.Leasehold.cron`.

        It runs in a task of the loop on which it is started, and is cancelled when its lease is lost."""
        options = {"missed": missed, "overlap": overlap, "grace": grace, "store": store, "clock": clock}
        held = {"at_least": at_least, "at_most": at_most, "ttl": ttl}
        return _decorator(self, expression, timezone, (kind, *ids), lease_as, {**options, **held})  # type: ignore[no-any-return]  # loaded late, so not known here


def _decorator(hold: Any, *asked: Any) -> Any:
    from leasehold.patterns.cron.cron import decorator  # needs cronsim, and much of the standard library

    return decorator(hold, *asked)
