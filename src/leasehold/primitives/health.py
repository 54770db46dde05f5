"""Is the leader fit to lead? Asked every third of the ttl while it leads; whoever is not steps down.

Each good answer is a beat of the lease, which has ``max_idle``: an answer that never comes ends the term as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from leasehold.core.holding import ALIVE
from leasehold.core.policy import renew_after
from leasehold.core.ports import Clock
from leasehold.core.typed import TYPE_CHECKING, Any
from leasehold.errors import InvalidRequest, StoreUnavailable
from leasehold.observe import log
from leasehold.primitives.reign import UNHEALTHY, Reign
from leasehold.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    import asyncio

    from leasehold.runtime.aio import AsyncDriver

COROUTINE = 0x80  # a function's flag, as in ``inspect``, which takes long to load


def check_function(function: object, what: str, awaited: bool = False) -> None:
    """Refuse what cannot be called, and what nobody would await."""
    if not callable(function):
        raise InvalidRequest(f"{what} takes a function, not {type(function).__name__}")
    if not awaited and (_is_coroutine(function) or _is_coroutine(getattr(function, "__call__", None))):  # noqa: B004  # the method is what is wanted
        raise InvalidRequest(f"{what} takes a plain function here: coroutine functions are for leasehold.aio.connect()")


def _is_coroutine(function: object) -> bool:
    plain = getattr(function, "__func__", function)
    return bool(getattr(getattr(plain, "__code__", None), "co_flags", 0) & COROUTINE)


class Minder:
    """Asks, for one term."""

    def __init__(self, health: Callable[[], Any], reign: Reign, watchdog: Watchdog, clock: Clock) -> None:
        self._health = health
        self._reign = reign
        self._watchdog = watchdog
        self._clock = clock
        self._every = renew_after(reign.options.ttl_ms / 1000)
        self._over = threading.Event()

    def start(self) -> None:
        """In a thread of its own, which ends with the term."""
        thread = threading.Thread(target=self._run, name="leasehold-health", daemon=True)
        self._reign.at_end(self._over.set)  # first: an interrupt after its start must not let it run for ever
        try:
            thread.start()
        except RuntimeError as error:
            raise StoreUnavailable(f"no thread can be started to ask for the leader's health: {error}") from error

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                fit = self._health()
            except Exception as error:
                self._complain(error)
                fit = False
            if not self.judge(fit):
                return
            until = self._clock.now() + self._every
            while self._clock.now() < until and not self._over.wait(self._clock.nap(until)):
                continue

    def judge(self, fit: object) -> bool:
        """True and None are good answers. Else it is no longer the leader from here on, and hears of it. Who
        does not lead any more is not asked again."""
        reign = self._reign
        if fit is None or fit:
            reign.beat(self._clock.now())
            self._watchdog.look_again(reign)
            return reign.phase in ALIVE
        reign.lose(UNHEALTHY)
        self._watchdog.tell(reign)
        return False

    def _complain(self, error: Exception) -> None:
        if not self._over.is_set():
            log.warn("the health check of %s raised %r", self._reign.name.kind, error, error=error)


class AsyncMinder(Minder):
    """The same in a task of its own."""

    def start_on(self, driver: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        """On the loop of the term, which is the running one."""
        self._reign.at_end(self._over.set)
        task = loop.create_task(self._ask(driver))
        self._reign.at_end(driver.on_loop(loop, task.cancel))

    async def _ask(self, driver: AsyncDriver) -> None:
        while not self._over.is_set():
            try:
                fit = self._health()
                if hasattr(fit, "__await__"):
                    fit = await fit
            except Exception as error:
                self._complain(error)
                fit = False
            if not self.judge(fit):
                return
            until = self._clock.now() + self._every
            while self._clock.now() < until and not self._over.is_set():
                await driver.sleep(self._clock.nap(until))
