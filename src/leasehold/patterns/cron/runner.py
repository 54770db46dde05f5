"""Attending to ticks: sleep until one is due, take the lease, claim it, run it, write down what became of it."""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread, main_thread
from typing import Any

from leasehold.errors import LeaseholdError, LeaseLost, NotAcquired, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.patterns.cron.history import ClaimedTick, RunHistory, WrongClock, log
from leasehold.patterns.cron.state import ERROR, LOST, OK
from leasehold.primitives.decorated_function import Function

DONE, RAN, AGAIN = "done", "ran", "again"
AWAY = (StoreUnavailable, OutcomeUnknown, WrongClock, StaleOwner)
TAKEN = (NotAcquired, LeaseLost)
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds, while somebody else holds the lease
SET_BACK = 1.0  # seconds that a clock may lose without anybody looking at the books again


class TickRunner:
    """Of one cron in one process. ``lock`` makes the lock: for a tick that will be run, or for a look at the books."""

    def __init__(
        self,
        books: RunHistory,
        lock: Callable[[int | None], Any],
        function: Function,
        takes_tick: bool,
        lease_as: str | None,
    ) -> None:
        self._history = books
        self._lock = lock
        self._function = function
        self._takes_tick = takes_tick
        self._lease_as = lease_as
        self._logged = ""

    async def serve(self, stop: Any, ended: Callable[[], None]) -> None:
        """Until ``stop`` is set; a run under way is finished first. ``ended`` is called however it ends."""
        try:
            await self._run_ticks(stop)
        except (Exception, SystemExit):
            log.exception("the cron %s has stopped", self._history.shown)
            raise
        finally:
            ended()

    async def _run_ticks(self, stop: Any) -> None:
        clock, pause = self._history.clock, FIRST_PAUSE
        since = clock.now()
        while not stop.is_set():
            now = clock.now()
            found = await self._attempt(since, patient=pause < LONGEST_PAUSE)
            if found == AGAIN:
                await self._history.flavour.waited(stop, clock.nap(clock.now() + pause))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause, self._logged = FIRST_PAUSE, ""
            if found == DONE:
                since = max(since, now)  # should the store forget all, what is settled by now is not run again
                await self._sleep(stop, now)

    async def _sleep(self, stop: Any, now: float) -> None:
        """Until the next tick, or until the clock was set back."""
        clock, tick = self._history.clock, self._history.schedule.after(now)
        while not stop.is_set():
            moment = clock.now()
            if moment >= tick or moment < now - SET_BACK:
                return
            now = moment
            await self._history.flavour.waited(stop, clock.nap(tick))

    async def _attempt(self, since: float, patient: bool) -> str:
        """One who is patient leaves the lease alone while somebody else is at work: to try would only disturb him."""
        try:
            plan = await self._history.due(since)
            if plan is None:
                return DONE
            if plan.busy and patient:
                return AGAIN
            async with self._history.flavour.enter(self._lock(plan.tick)) as lease:
                claimed = await self._history.claim(lease, since)
                if claimed is None:
                    return AGAIN  # there was something to write down only
                await self._run(claimed)
            return RAN
        except TAKEN:
            return AGAIN
        except AWAY as error:
            self._log_once(error)
            return AGAIN
        except LeaseholdError:  # what is wrong, and stays so
            raise
        except Exception as error:  # no thread, no memory, no descriptor: there may be one the next time
            self._log_once(error, exc_info=error)
            return AGAIN

    async def _run(self, claimed: ClaimedTick) -> None:
        args = (self._history.schedule.moment(claimed.tick),) if self._takes_tick else ()
        kwargs = {} if self._lease_as is None else {self._lease_as: claimed.lease}
        try:
            claimed.lease.check()  # frozen since it was claimed? Then others are at work, and this is not begun
            outcome = await self._history.flavour.call(self._function, args, kwargs)
        except BaseException as error:  # a cancellation or an interrupt: the books are closed all the same
            done = isinstance(error, SystemExit) and not error.code
            await self._settle(claimed, None if done else error)
            if not self._ends_only_the_run(error):
                raise
        else:
            await self._settle(claimed, outcome.error)

    def _ends_only_the_run(self, error: BaseException) -> bool:
        """Does only the run end, and not the cron? ``sys.exit()`` is how the main function of many a command ends; in
        the main thread it may be a signal handler that wants the end of the program. In asyncio a task that the
        function waited for was cancelled, and not this one."""
        if not self._history.flavour.asynchronous:
            return isinstance(error, SystemExit) and current_thread() is not main_thread()
        import asyncio

        task = asyncio.current_task()
        return isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()

    async def _settle(self, claimed: ClaimedTick, error: BaseException | None) -> None:
        loss = loss_of(claimed.lease)
        what = "" if error is None or is_caused_by(loss, error) else error_text(error)
        if what:
            tick = self._history.schedule.moment(claimed.tick).isoformat()
            log.error("%s: the run of %s failed", self._history.shown, tick, exc_info=error)
        if loss is None:
            await self._history.settle(claimed, ERROR if what else OK, what)
            return
        lost = f"the lease was lost ({loss.reason}) before the run had ended"
        await self._history.settle(claimed, LOST, f"{lost}; {what}" if what else lost)

    def _log_once(self, error: Exception, exc_info: Exception | None = None) -> None:
        """Once, and again when it is another trouble."""
        if type(error).__name__ != self._logged:
            self._logged = type(error).__name__
            log.error("%s: %s", self._history.shown, error_text(error) if exc_info else error, exc_info=exc_info)


def error_text(error: BaseException) -> str:
    """An error of somebody else's function, as text that every result store can hold, whatever is in it."""
    kind = type(error).__name__
    try:
        text = f"{kind}: {error}".rstrip(": ")
    except Exception:
        return kind
    return text.encode(errors="backslashreplace").decode()


def loss_of(lease: Any) -> LeaseLost | None:
    """Why the lease is no longer held, if it is not."""
    try:
        lease.check()
    except LeaseLost as loss:
        return loss
    return None


def is_caused_by(loss: LeaseLost | None, error: BaseException) -> bool:
    """Has the run ended because its lease was lost? Then it was cancelled, or has looked, and that is no error."""
    if loss is None:
        return False
    return not isinstance(error, Exception) or (isinstance(error, LeaseLost) and error.fence == loss.fence)
