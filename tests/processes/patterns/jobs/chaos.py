"""Workers that are killed and frozen at random, by a seed, and the judge of what they have done."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.processes.patterns.jobs import chaos_worker

NURSERY = multiprocessing.get_context("forkserver")  # real processes, that need not import everything again
NURSERY.set_forkserver_preload([chaos_worker.__name__, "psycopg_pool", "psycopg"])
Execute = Callable[[str], list[tuple[Any, ...]]]
TABLES = (
    "CREATE TABLE effects (job_id BIGINT, version BIGINT)",
    "CREATE TABLE refusals (job_id BIGINT, version BIGINT, seen BIGINT)",
)


@dataclass
class Verdict:
    """What the tables say when everything is over."""

    done: int
    kills: int
    freezes: int
    takeovers: int
    refusals: int
    seconds: float
    faults: list[str] = field(default_factory=list)


class Fleet:
    """The processes. Each gets a seed of its own from the one seed of the run."""

    def __init__(self, address: str, count: int, lease: float, seed: int, *more: str) -> None:
        self.draw = random.Random(seed)
        self._address, self._lease, self._more = address, lease, more
        self.kills = self.freezes = 0
        self._frozen: dict[int, float] = {}  # the place of each, and when it goes on
        self._places = [self._start() for _ in range(count)]

    def _start(self) -> Any:
        settings = (self._address, str(self.draw.random()), str(self._lease), *self._more)
        process = NURSERY.Process(target=chaos_worker.main, args=settings, daemon=True)
        process.start()
        return process

    def _tell(self, place: int, what: signal.Signals) -> None:
        os.kill(self._places[place].pid, what)

    def thaw(self, now: float) -> None:
        """Whose time is over."""
        for place in [place for place, until in self._frozen.items() if until <= now]:
            self._tell(place, signal.SIGCONT)
            del self._frozen[place]

    def trouble(self, now: float, killing: float) -> None:
        """Kill somebody, or freeze him for longer than a lease."""
        place = self.draw.randrange(len(self._places))
        if place in self._frozen:
            return
        if self.draw.random() < killing:
            self._places[place].kill()
            self._places[place].join()
            self._places[place] = self._start()
            self.kills += 1
        elif len(self._frozen) < len(self._places) - 1:  # somebody is always at work
            self._tell(place, signal.SIGSTOP)
            self._frozen[place] = now + self._lease * self.draw.uniform(1.2, 2)
            self.freezes += 1

    def crashed(self) -> list[int]:
        """Nobody ends on his own."""
        return [code for one in self._places if (code := one.exitcode) is not None]

    def stop(self) -> None:
        """What is left, cleanly: each finishes what it has begun."""
        for one in self._places:
            if one.exitcode is None:
                os.kill(one.pid, signal.SIGCONT)
                os.kill(one.pid, signal.SIGTERM)
        for one in self._places:
            one.join(60)
            one.kill()
            one.join()


@contextmanager
def fleet(*settings: Any) -> Iterator[Fleet]:
    """It ends in any case."""
    found = Fleet(*settings)
    try:
        yield found
    finally:
        found.stop()


def run(
    address: str, execute: Execute, jobs: int, workers: int, lease: float, seed: int, *more: str,
    pause: float = 0.15, killing: float = 0.3, patience: float = 45, until: str = "SELECT 1 WHERE NOT EXISTS "
    "(SELECT 1 FROM jobs WHERE state <> 'done')",
) -> Verdict:  # fmt: skip
    """Until every job has ended, or there is what else was waited for; then those who are frozen come late."""
    print(f"chaos: seed {seed}, {jobs} jobs, {workers} workers")  # noqa: T201 - seen when it fails
    began = time.monotonic()
    with fleet(address, workers, lease, seed, *more) as crew:
        while not _over(execute, until) and time.monotonic() - began < patience and not crew.crashed():
            time.sleep(crew.draw.uniform(0, pause * 2))
            crew.thaw(time.monotonic())
            crew.trouble(time.monotonic(), killing)
        crashed = crew.crashed()
        kills, freezes = crew.kills, crew.freezes
    took = time.monotonic() - began
    verdict = judge(execute, kills, freezes, took)
    verdict.faults += [f"a worker ended on its own: {code}" for code in crashed]
    return verdict


def _over(execute: Execute, until: str) -> bool:
    """A worker that is frozen may have the whole file of SQLite locked: it must be thawed before we can look."""
    try:
        return bool(execute(until))
    except sqlite3.OperationalError:
        return False


def judge(execute: Execute, kills: int, freezes: int, seconds: float) -> Verdict:
    """Every job once, by its last owner; and each refusal had a reason."""
    faults = [f"job {one[0]} is {one[1]}" for one in execute("SELECT id, state FROM jobs WHERE state <> 'done'")[:5]]
    effects = """SELECT id, jobs.version, COUNT(effects.job_id), MIN(effects.version), MAX(effects.version) FROM jobs
LEFT JOIN effects ON effects.job_id = jobs.id GROUP BY id, jobs.version"""
    takeovers = 0
    for job_id, version, count, least, most in execute(effects):
        takeovers += version - 1
        if count != 1:
            faults.append(f"job {job_id} took effect {count} times, under versions {least} to {most}")
        elif most != version:
            faults.append(f"job {job_id} was completed under version {most}, and its last owner had {version}")
    refusals = execute("SELECT job_id, version, seen FROM refusals")
    faults += [f"refused without a reason: {one}" for one in refusals if one[2] is not None and one[2] <= one[1]]
    done = execute("SELECT COUNT(*) FROM jobs WHERE state = 'done'")[0][0]
    return Verdict(done, kills, freezes, takeovers, len(refusals), round(seconds, 1), faults)
