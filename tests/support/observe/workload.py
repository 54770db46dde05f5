"""A program that does everything of which there are metrics, again and again: leases, their trouble, and patterns."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import redis

import leasehold
from leasehold import LeaseholdError, LeaseLost, StaleOwner
from leasehold.guards.memory import FenceGuard
from leasehold.observe.events import Observer
from leasehold.patterns import Jobs, KeyReused

PAUSE = 0.1  # seconds between two rounds


class Workload:
    """Runs in a thread from ``start`` to ``close``. An error of its own is raised by ``check``."""

    def __init__(self, url: str, folder: Path, observer: Observer) -> None:
        self._url = url
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._stack = ExitStack()
        self._hold = self._stack.enter_context(leasehold.connect(url, observers=[observer]))
        self._other = self._stack.enter_context(leasehold.connect(url))  # another process, which is not observed
        self._database = str(folder / "jobs.db")
        self._jobs = Jobs(self._database, observers=[observer])
        self._jobs.create()
        self._guard = FenceGuard()
        self._round = 0
        self._thread = threading.Thread(target=self._work, name="workload", daemon=True)

    def start(self) -> None:
        """Once for all: what goes on beside the rounds."""
        with redis.Redis.from_url(self._url) as client:
            client.set("lock:of-another-library", "x")
        term = self._hold.election("scheduler").campaign().__enter__()
        self._stack.callback(term.release)
        self._stack.callback(self._cron().start().stop)
        self._thread.start()

    def check(self) -> None:
        """Raise the error that ended it, if there was one."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End all of it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(60)
        self._stack.close()

    def _work(self) -> None:
        try:
            while not self._stop.wait(PAUSE):
                self._round += 1
                for step in (self._leases, self._trouble, self._cache, self._payment, self._work_on_jobs):
                    step()
                self._hold.leaks()
        except BaseException as error:
            self._error = error

    def _leases(self) -> None:
        """One that is renewed, one that is waited for, one that is busy, one that is not had in time."""
        with self._hold.lock("report", 1, ttl=0.6):
            self._stop.wait(0.3)
        with self._other.lock("report", 2):
            assert self._hold.lock("report", 2).try_acquire() is None
            assert self._hold.lock("report", 2).acquire(wait=0.02) is None

    def _trouble(self) -> None:
        """A lease is evicted, released too late and refused by a guard; correctness without a guard."""
        lease = self._hold.lock("report", f"evicted-{self._round}").acquire()
        assert lease is not None
        self._other.evict(lease.resource, fence=lease.fence, reason="the test does this", force=True)
        self._guard.check(lease.fence + 1, resource=lease.resource)
        with suppress(StaleOwner):
            self._guard.check(lease)
        with suppress(LeaseLost, LeaseholdError):
            lease.extend(30)
        assert lease.release() is False
        with self._hold.lock("invoice", self._round, protects="correctness"):
            pass

    def _cache(self) -> None:
        """A value that is fresh for a moment and then stale, and one that cannot be made."""
        page: Callable[[str], str] = self._hold.single_flight("page", "{key}", fresh=0.2, stale=600)(_page)
        page("home")
        page("home")
        with suppress(ZeroDivisionError):
            page("broken")

    def _payment(self) -> None:
        """Once, and again; and with another body."""
        pay: Any = self._hold.once("payment", "{request}", fingerprint="{amount}")(_pay)
        pay(f"r-{self._round}", 5)
        pay(f"r-{self._round}", 5)
        with suppress(KeyReused):
            pay(f"r-{self._round}", 6)

    def _work_on_jobs(self) -> None:
        """One is completed, one fails, one is taken over from a worker that comes too late."""
        self._jobs.enqueue_many(range(3))
        done, failed, late = self._jobs.claim_many(3)
        done.complete()
        failed.fail("no paper", retry=False)
        with sqlite3.connect(self._database) as database:
            database.execute("UPDATE jobs SET lease_until = 0 WHERE state = 'running'")
        database.close()
        taken = self._jobs.claim()
        assert taken is not None
        with suppress(StaleOwner):
            late.complete()
        taken.complete()
        self._jobs.counts()

    def _cron(self) -> Any:
        @self._hold.cron("* * * * * *", "rollup")
        def rollup() -> None:
            """Nothing to do."""

        return rollup


def _page(key: str) -> str:
    if key == "broken":
        raise ZeroDivisionError
    return key


def _pay(request: str, amount: int) -> int:
    return amount
