"""The health check of a leader: called every third of the ttl while it leads; a leader that fails it steps down.

As with a health check of Docker, ``retries`` bad answers in a row make it unfit, and those of checks that began in the
start period of a term do not count; the first good answer ends that period. Each answer is a beat of the lease, which
has ``max_idle``: an answer that never comes ends the term as well. Candidates that do not lead are not checked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from leasehold._core.durations import seconds
from leasehold._core.holding import ALIVE
from leasehold._core.light_typing import TYPE_CHECKING, Any, NamedTuple
from leasehold._core.policy import MAX_TTL_MS, renew_after
from leasehold._core.ports import Clock
from leasehold._runtime.watchdog import Watchdog
from leasehold.errors import InvalidRequest, StoreUnavailable
from leasehold.observe import log
from leasehold.primitives.term import UNHEALTHY, HeldTerm

if TYPE_CHECKING:
    import asyncio

    from leasehold._runtime.aio import AsyncDriver

COROUTINE = 0x80  # a function's flag, as in ``inspect``, which takes long to load
MOST_RETRIES = 1_000  # more is no health check


class Health(NamedTuple):
    """The function to call, for how many seconds of a term bad answers do not count, and how many in a row end it."""

    check: Callable[[], Any]
    start_period: float
    retries: int


def check_health(function: object, start_period: object, retries: object, awaited: bool) -> Health | None:
    """The arguments of an election, checked; None without a health check."""
    period = seconds(start_period, "health_start_period")
    if period * 1000 > MAX_TTL_MS:
        raise InvalidRequest("health_start_period must be at most 24 h")
    if not isinstance(retries, int) or isinstance(retries, bool):
        raise InvalidRequest(f"health_retries must be an int, not {type(retries).__name__}")
    if not 1 <= retries <= MOST_RETRIES:
        raise InvalidRequest(f"health_retries must be between 1 and {MOST_RETRIES}: so many bad answers in a row")
    if function is None:
        if period or retries != 1:
            raise InvalidRequest("health_start_period and health_retries are for a health check: give health= as well")
        return None
    check_function(function, "health", awaited)
    return Health(function, period, int(retries))  # type: ignore[arg-type]  # checked above


def check_function(function: object, what: str, awaited: bool = False) -> None:
    """Refuse what cannot be called, and a coroutine function where it would not be awaited."""
    if not callable(function):
        raise InvalidRequest(f"{what} takes a function, not {type(function).__name__}")
    if not awaited and (_is_coroutine(function) or _is_coroutine(getattr(function, "__call__", None))):  # noqa: B004  # the method is what is wanted
        raise InvalidRequest(f"{what} takes a plain function here: coroutine functions are for leasehold.aio.connect()")


def _is_coroutine(function: object) -> bool:
    plain = getattr(function, "__func__", function)
    return bool(getattr(getattr(plain, "__code__", None), "co_flags", 0) & COROUTINE)


class HealthMonitor:
    """Runs the health check of one term."""

    def __init__(self, health: Health, held_term: HeldTerm, watchdog: Watchdog, clock: Clock) -> None:
        self._health = health
        self._failures = 0  # in a row
        self._starts_until = clock.now() + health.start_period
        self._held_term = held_term
        self._watchdog = watchdog
        self._clock = clock
        self._every = renew_after(held_term.options.ttl_ms / 1000)
        self._over = threading.Event()
        if health.start_period:  # the first answer may take all of it
            held_term.beat(clock.now(), health.start_period)

    def start(self) -> None:
        """Start a thread, which ends with the term."""
        thread = threading.Thread(target=self._run, name="leasehold-health", daemon=True)
        self._held_term.at_end(self._over.set)  # first: an interrupt after its start must not let it run for ever
        try:
            thread.start()
        except RuntimeError as error:
            raise StoreUnavailable(f"no thread can be started for the health check: {error}") from error

    def _run(self) -> None:
        while not self._over.is_set():
            began = self._clock.now()
            try:
                fit = self._health.check()
            except Exception as error:
                self._log_error(error)
                fit = False
            if not self.judge(fit, began):
                return
            until = self._clock.now() + self._every
            while self._clock.now() < until and not self._over.wait(self._clock.nap(until)):
                continue

    def judge(self, fit: object, began: float) -> bool:
        """Count an answer: True and None are good. After too many others in a row the term is lost. False: this process
        no longer leads, and is not checked again."""
        held_term, now = self._held_term, self._clock.now()
        if fit is None or fit:
            self._failures, self._starts_until = 0, began
        elif began >= self._starts_until:
            self._failures += 1
        if self._failures < self._health.retries:
            held_term.beat(now, max(self._starts_until - now, 0.0))
            self._watchdog.check_again(held_term)
            return held_term.phase in ALIVE
        held_term.lose(UNHEALTHY)
        self._watchdog.report_loss(held_term)
        return False

    def _log_error(self, error: Exception) -> None:
        if not self._over.is_set():
            log.warn("the health check of %s raised %r", self._held_term.name.label, error, error=error)


class AsyncHealthMonitor(HealthMonitor):
    """Runs the health check of one term in a task."""

    def start_on(self, driver: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        """Start a task on the loop of the term, which is the running one."""
        self._held_term.at_end(self._over.set)
        task = loop.create_task(self._run_on_loop(driver))
        self._held_term.at_end(driver.on_loop(loop, task.cancel))

    async def _run_on_loop(self, driver: AsyncDriver) -> None:
        while not self._over.is_set():
            began = self._clock.now()
            try:
                fit = self._health.check()
                if hasattr(fit, "__await__"):
                    fit = await fit
            except Exception as error:
                self._log_error(error)
                fit = False
            if not self.judge(fit, began):
                return
            until = self._clock.now() + self._every
            while self._clock.now() < until and not self._over.is_set():
                await driver.sleep(self._clock.nap(until))
