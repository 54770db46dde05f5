"""Runs ticks: sleep until one is due, acquire the lease, claim the tick, run it, record the outcome."""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread, main_thread
from typing import Any

from leasehold.errors import LeaseholdError, LeaseLost, NotAcquired, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.patterns.cron.history import ClaimedTick, RunHistory, WrongClock, log
from leasehold.patterns.cron.state import ERROR, LOST, OK
from leasehold.primitives.decorated_function import Function

DONE, RAN, AGAIN = "done", "ran", "again"
AWAY = (StoreUnavailable, OutcomeUnknown, WrongClock, StaleOwner)  # logged, and tried again
TAKEN = (NotAcquired, LeaseLost)  # another process holds the lease: tried again
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between tries, while another process holds the lease
SET_BACK = 1.0  # seconds that the clock may be set back before the history is read again


class TickRunner:
    """Runs the ticks of one cron in one process. ``lock`` makes the lock for a tick, or with None for the history."""

    def __init__(
        self,
        history: RunHistory,
        lock: Callable[[int | None], Any],
        function: Function,
        *,
        takes_tick: bool,
        lease_as: str | None,
    ) -> None:
        self._history = history
        self._lock = lock
        self._function = function
        self._takes_tick = takes_tick
        self._lease_as = lease_as
        self._logged = ""  # the kind of the last problem that was logged
        self._since = 0.0  # what is settled by then is not run again, even if the store loses its memory

    async def serve(self, stop: Any, ended: Callable[[], None]) -> None:
        """Run ticks until ``stop`` is set; a running run is finished first. ``ended`` is called however it ends."""
        try:
            await self._run_ticks(stop)
        except (Exception, SystemExit):
            log.exception("the cron %s has stopped", self._history.shown)
            raise
        finally:
            ended()

    async def _run_ticks(self, stop: Any) -> None:
        clock, pause = self._history.clock, FIRST_PAUSE
        self._since = clock.now()
        while not stop.is_set():
            now = clock.now()
            found = await self._attempt(patient=pause < LONGEST_PAUSE)
            if found == AGAIN:
                await self._history.flavour.waited(stop, clock.nap(clock.now() + pause))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause, self._logged = FIRST_PAUSE, ""
            if found == DONE:
                self._since = max(self._since, now)
                await self._sleep(stop, now)

    async def _sleep(self, stop: Any, now: float) -> None:
        """Sleep until the next tick, or until the clock was set back."""
        clock, tick = self._history.clock, self._history.schedule.after(now)
        while not stop.is_set():
            moment = clock.now()
            if moment >= tick or moment < now - SET_BACK:
                return
            now = moment
            await self._history.flavour.waited(stop, clock.nap(tick))

    async def _attempt(self, patient: bool) -> str:
        """Run the next due tick, if there is one. With ``patient`` the lease is left alone while another process runs a
        tick: a try would only disturb it."""
        try:
            due = await self._history.due(self._since)
            if due is None:
                return DONE
            if due.busy and patient:
                return AGAIN
            async with self._history.flavour.enter(self._lock(due.tick)) as lease:
                claimed = await self._history.claim(lease, self._since)
                if claimed is None:
                    return AGAIN  # only the history had to be updated
                self._since = max(self._since, claimed.state.last)
                await self._run(claimed)
            return RAN
        except TAKEN:
            return AGAIN
        except AWAY as error:
            self._log_once(error)
            return AGAIN
        except LeaseholdError:  # a mistake, which would not go away
            raise
        except Exception as error:  # such as no thread, memory or descriptor: there may be one the next time
            self._log_once(error, exc_info=error)
            return AGAIN

    async def _run(self, claimed: ClaimedTick) -> None:
        args = (self._history.schedule.moment(claimed.tick),) if self._takes_tick else ()
        kwargs = {} if self._lease_as is None else {self._lease_as: claimed.lease}
        try:
            claimed.lease.check()  # if the process was paused since the claim, others are at work: do not begin
            outcome = await self._history.flavour.call(self._function, args, kwargs)
        except BaseException as error:  # also a cancellation or an interrupt: the outcome is recorded all the same
            done = isinstance(error, SystemExit) and not error.code
            await self._settle(claimed, None if done else error)
            if not self._ends_only_the_run(error):
                raise
        else:
            await self._settle(claimed, outcome.error)

    def _ends_only_the_run(self, error: BaseException) -> bool:
        """Does the error end only the run, and not the cron? ``sys.exit()`` is how the main function of many commands
        ends; in the main thread, however, a signal handler may have raised it to end the program. In asyncio a
        cancellation ends only the run if it was of a task that the function awaited, and not of this one."""
        if not self._history.flavour.asynchronous:
            return isinstance(error, SystemExit) and current_thread() is not main_thread()
        import asyncio

        task = asyncio.current_task()
        return isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()

    async def _settle(self, claimed: ClaimedTick, error: BaseException | None) -> None:
        loss = loss_of(claimed.lease)
        text = "" if error is None or is_caused_by(loss, error) else error_text(error)
        if text:
            tick = self._history.schedule.moment(claimed.tick).isoformat()
            log.error("%s: the run of %s failed", self._history.shown, tick, exc_info=error)
        if loss is None:
            await self._history.settle(claimed, ERROR if text else OK, text)
            return
        lost = f"the lease was lost ({loss.reason}) before the run had ended"
        await self._history.settle(claimed, LOST, f"{lost}; {text}" if text else lost)

    def _log_once(self, error: Exception, exc_info: Exception | None = None) -> None:
        """Log a problem once, and again after one of another kind."""
        if type(error).__name__ != self._logged:
            self._logged = type(error).__name__
            log.error("%s: %s", self._history.shown, error_text(error) if exc_info else error, exc_info=exc_info)


def error_text(error: BaseException) -> str:
    """An error of the user's function, as text that every result store can hold."""
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
    """Did the run end because its lease was lost? Then it was cancelled, or has checked its lease: not an error."""
    if loss is None:
        return False
    return not isinstance(error, Exception) or (isinstance(error, LeaseLost) and error.fence == loss.fence)
