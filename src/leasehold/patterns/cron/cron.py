"""``hold.cron``: a function that is run at each tick, and that can be started and stopped."""

from __future__ import annotations

import functools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from leasehold._core.driver import finish
from leasehold._core.durations import seconds, wait_seconds
from leasehold.errors import InvalidRequest
from leasehold.patterns.cron.history import RunHistory, history
from leasehold.patterns.cron.runner import TickRunner
from leasehold.patterns.cron.schedule import CronClock, Policy, Schedule, WallClock
from leasehold.patterns.cron.state import KEPT
from leasehold.patterns.flavour import Flag
from leasehold.patterns.results import ResultStore
from leasehold.patterns.results.memory import shared
from leasehold.primitives.decorated_function import Function, check_filled, check_function

if TYPE_CHECKING:
    import asyncio

    from leasehold._core.durations import Duration
    from leasehold.patterns.cron.state import Run

P = ParamSpec("P")
R = TypeVar("R")
PATIENCE = 30.0  # seconds that stop() waits for a running run


class BaseCron(ABC, Generic[P, R]):
    """What both flavours share. Nothing runs until it is started; calling it only calls the function.

    ``function`` gets the tick if it takes a parameter, and its lease under the name ``lease_as``."""

    _ended: Flag  # a Flag: a signal handler may wait for it
    _thread: threading.Thread | None = None

    def __init__(self, hold: Any, options: CronOptions, function: Callable[P, R], lease_as: str | None) -> None:
        functools.update_wrapper(self, function)
        self._hold = hold
        self._run_history = options.run_history
        self._lock = options.lock
        self._function = function
        self._runner = TickRunner(
            options.run_history,
            options.lock,
            function,
            takes_tick=takes_tick(function, lease_as),
            lease_as=lease_as,
        )
        self._starting = threading.Lock()
        self._stop: Any = None  # an event, from the first start on
        self._process = 0  # the process in which it runs: a forked child does not have its thread

    @property
    def resource(self) -> str:
        """The name of its lease, and of its history."""
        return self._run_history.resource

    @property
    def running(self) -> bool:
        """Has it been started in this process, and not ended?"""
        return self._process == os.getpid()

    @property
    def stopping(self) -> bool:
        """Was it told to stop? A long run can check this and end early."""
        return self._stop is not None and bool(self._stop.is_set())

    def next(self) -> datetime:
        """The next tick, in the time zone of the cron."""
        schedule = self._run_history.schedule
        return schedule.moment(schedule.after(self._run_history.clock.now()))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._run_history.schedule.expression!r} {self._run_history.resource}>"

    def _begin(self) -> Any:
        with self._starting:
            if self.running:
                raise InvalidRequest(f"the cron {self.resource} is running already", resource=self.resource)
            self._hold._engine.ensure_open()
            self._stop = self._run_history.flavour.event()
            self._ended = Flag()
            self._process = os.getpid()
            self._hold._closers.append(self._close)  # after the result store's closer, and so called before it
            return self._stop

    def _end(self) -> None:
        self._process = 0
        self._ended.set()
        try:
            self._hold._closers.remove(self._close)
        except ValueError:  # the coordinator is being closed
            pass

    def _close(self) -> Any:
        """Stop with the coordinator. All its crons are told first, so that none begins a tick while this one waits for
        another."""
        for closer in list(self._hold._closers):
            other = getattr(closer, "__self__", None)
            if isinstance(other, BaseCron) and other._stop is not None:
                other._stop.set()
        return self.stop()

    def _history(self, limit: object) -> Coroutine[Any, Any, list[Run]]:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= KEPT:
            raise InvalidRequest(f"limit is a number from 1 to {KEPT}")
        return history(self._run_history.flavour, self._run_history.results, self._lock(None), limit)

    @abstractmethod
    def stop(self, wait: Duration | None = PATIENCE) -> Any: ...


class Cron(BaseCron[P, R]):
    """A cron for threads.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold:
    ...     @hold.cron("* * * * * *", "heartbeat")
    ...     def heartbeat(tick):
    ...         heartbeat.stop(wait=0)
    ...     heartbeat.run()
    ...     heartbeat.history()[0].outcome
    'ok'
    """

    def start(self) -> Cron[P, R]:
        """Run the ticks from now on, in a daemon thread: keep the program alive. Returns itself, for
        ``return rollup.start()``."""
        stop = self._begin()
        serving = self._runner.serve(stop, self._end)
        self._thread = threading.Thread(target=finish, args=(serving,), name="leasehold-cron", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no threads left
            serving.close()
            self._end()
            raise
        return self

    def run(self) -> None:
        """Run the ticks in the calling thread, until it is stopped."""
        stop = self._begin()
        self._thread = threading.current_thread()
        finish(self._runner.serve(stop, self._end))

    def stop(self, wait: Duration | None = PATIENCE) -> bool:
        """Begin no more ticks, and wait for a running run, at most ``wait`` (None: as long as it takes). False: the run
        goes on. Called from inside the run, or from a signal handler that interrupts it, it returns at once."""
        seconds = wait_seconds(wait)
        if self._stop is not None:
            self._stop.set()
        if not self.running:
            return True
        if self._thread is threading.current_thread():
            return False
        return self._ended.wait(seconds)

    def history(self, limit: int = 20) -> list[Run]:
        """The last runs in the whole fleet, newest first."""
        return finish(self._history(limit))


class AsyncCron(BaseCron[P, R]):
    """A cron for asyncio: the same, in a task."""

    _task: asyncio.Task[None] | None = None

    def start(self) -> AsyncCron[P, R]:
        """Run the ticks from now on, in a task of the running loop."""
        import asyncio

        asyncio.get_running_loop()
        self._cancelled = False
        self._task = asyncio.create_task(self._runner.serve(self._begin(), self._end), name="leasehold-cron")
        self._task.add_done_callback(self._task_ended)
        return self

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """A task that was cancelled before its first step has not called ``_end``."""
        if self._task is task and self.running:
            self._end()

    async def run(self) -> None:
        """Run the ticks, awaited until it is stopped."""
        import asyncio

        self.start()
        try:
            await self._task  # type: ignore[misc]  # there is one
        except asyncio.CancelledError:
            if not self._cancelled:
                raise

    async def stop(self, wait: Duration | None = PATIENCE) -> bool:
        """Begin no more ticks, and wait for a running run, at most ``wait`` (None: as long as it takes). A run that
        takes longer is cancelled: False. Called from inside the run, it returns at once."""
        import asyncio

        seconds = wait_seconds(wait)
        if self._stop is not None:
            self._stop.set()
        if not self.running or self._task is None:
            return True
        if self._task is asyncio.current_task():
            return False
        await asyncio.wait({self._task}, timeout=seconds)
        if self._task.done():
            return True
        self._cancelled = True
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=PATIENCE)  # a run may ignore the cancellation
        return False

    async def history(self, limit: int = 20) -> list[Run]:
        """The last runs in the whole fleet, newest first."""
        return await self._history(limit)


def takes_tick(function: Function, lease_as: str | None) -> bool:
    """Does the function take the tick? It takes the tick or nothing, and its lease by name."""
    from leasehold.primitives.decorated_function import DecoratedFunction, name_of

    signature = DecoratedFunction(function, (), lease_as).signature
    if signature is None:
        import inspect

        signature = inspect.signature(function)
    for arguments in ((None,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise InvalidRequest(
        f"{name_of(function)}() must take one argument, the tick, or none; what else it needs, it finds itself"
    )


# ---------------------------------------------------------------- options
#
# The arguments of ``hold.cron``. Mistakes are reported here, before anything is sent.


MISSED = ("skip", "once", "all")
OVERLAP = ("skip", "wait")
SHORTEST_GRACE = 60.0  # seconds; a holder that dies blocks others for a ttl, and its tick must not count as missed then
LONGEST_GRACE = 366 * 86400.0


class CronOptions:
    """The options of a cron, checked: its lock and its run history. For ``hold.cron`` and ``leasehold cron``."""

    def __init__(
        self,
        hold: Any,
        name: tuple[Any, ...],
        schedule: Schedule,
        lock_options: dict[str, Any],
        *,
        missed: str = "skip",
        overlap: str = "skip",
        grace: Any = None,
        store: ResultStore | None = None,
        clock: CronClock | None = None,
    ) -> None:
        for one in name:
            if isinstance(one, str) and "{" in one:
                raise InvalidRequest(
                    "a cron is called without arguments, so its name takes no fields: write kind and ids out"
                )
        self._hold, self._name, self._schedule = hold, name, schedule
        self._lock_options = {"wait": 0, **lock_options}
        model = self.lock(0)
        policy = Policy(_one_of(missed, "missed", MISSED), _one_of(overlap, "overlap", OVERLAP), 0.0)
        policy = policy._replace(grace=_grace(grace, model._options.ttl_ms / 1000))
        results = hold._results if store is None else shared(store, hold._engine.store.name)
        clock = WallClock() if clock is None else clock
        self.run_history = RunHistory(
            flavour=hold._flavour,
            results=results,
            name=model._name,
            observers=hold._engine.observers,
            schedule=schedule,
            policy=policy,
            clock=clock,
            store_time=self._store_time,
        )

    def lock(self, tick: int | None) -> Any:
        """The lock for the run of a tick; without a tick, for reading the history, which holds it no longer than
        needed."""
        options = dict(self._lock_options)
        if tick is None:
            options["at_least"] = None
        elif tick:
            options["meta"] = {"tick": self._schedule.moment(tick).isoformat()}
        return self._hold.lock(*self._name, **options)

    async def _store_time(self) -> float | None:
        inspection = await self._hold._flavour.resolve(self._hold.inspect(self.lock(None)))
        holder = inspection.holder
        return None if holder is None or holder.since is None else holder.since.timestamp()


def decorator(
    hold: Any, expression: str, timezone: str, name: tuple[Any, ...], lease_as: str | None, options: dict[str, Any]
) -> Callable[[Function], Any]:
    """The decorator that ``hold.cron`` returns."""
    check_filled(lease_as)
    lock_options = {key: options.pop(key) for key in ("ttl", "at_least")}
    lock_options["max_hold"] = options.pop("at_most")
    checked = CronOptions(hold, name, Schedule(expression, timezone), lock_options, **options)
    asynchronous = hold._asynchronous

    def decorate(function: Function) -> Any:
        check_function(function, asynchronous, "cron")
        cron: Any = AsyncCron if asynchronous else Cron
        return cron(hold, checked, function, lease_as)

    return decorate


def _one_of(value: object, what: str, known: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in known:
        return value
    raise InvalidRequest(f"{what} is one of {', '.join(map(repr, known))}")


def _grace(grace: object, ttl: float) -> float:
    if grace is None:
        return max(SHORTEST_GRACE, 2 * ttl)
    return min(seconds(grace, "grace"), LONGEST_GRACE)
