"""Worker processes, and the chaos that freezes them in the middle of their work, wakes them too late and kills them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import leasehold
from examples.report_exports.servers import tied
from examples.report_exports.worker import TTL

ROOT = Path(__file__).parents[2]
PATIENCE = 10.0  # seconds for workers to end by themselves
TICK = 0.05
FREEZES_A_TICK, KILLS_A_TICK = 0.2, 0.02  # how probable each is


class Crew:
    """A constant number of workers. ``with`` ends them, also those that are frozen."""

    def __init__(self, size: int, reports: int, seconds: float, guarded: bool, environment: Mapping[str, str]) -> None:
        # The limit of a minute more is for workers whose crew was killed.
        arguments = [str(reports), str(seconds + 60), "guarded" if guarded else "bare"]
        self._command = tied([sys.executable, "-m", "examples.report_exports.worker", *arguments], signal.SIGKILL)
        self._environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        self.size = size
        self.workers: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Crew:
        for _ in range(self.size):
            self.hire()
        return self

    def hire(self) -> None:
        """Start one more, in a session of its own: Ctrl-C ends this process, which ends the workers."""
        worker = subprocess.Popen(self._command, env=self._environment, start_new_session=True)
        self.workers[worker.pid] = worker

    def kill(self, pid: int) -> None:
        """Kill it at once: it has no time to release its lease."""
        worker = self.workers.pop(pid)
        worker.kill()
        worker.wait()

    def check(self) -> None:
        """No worker may end by itself."""
        for pid, worker in self.workers.items():
            if worker.poll() is not None:
                raise RuntimeError(f"worker {pid} has ended by itself with {worker.returncode}: see above")

    def stop(self) -> None:
        """Let each finish its export."""
        for worker in self.workers.values():
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        end = time.monotonic() + PATIENCE
        for worker in self.workers.values():
            with suppress(subprocess.TimeoutExpired):  # then it is killed with the others
                worker.wait(max(end - time.monotonic(), 0))
        self.__exit__()

    def __exit__(self, *_: object) -> None:
        for pid in list(self.workers):
            self.kill(pid)


class Chaos:
    """Freezes and kills workers at random. It freezes workers that hold a report, which the store knows."""

    def __init__(self, crew: Crew, hold: leasehold.Leasehold, reports: int, seed: int) -> None:
        self._crew, self._hold, self._reports = crew, hold, reports
        self._dice = random.Random(seed)
        self._frozen: dict[int, float] = {}  # when each frozen worker wakes
        self.frozen = self.killed = 0

    def run(self, seconds: float, show: Callable[[], None]) -> None:
        """Freeze and kill for that long. At the end all workers are awake."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._crew.check()
            self._strike()
            show()
            time.sleep(TICK)  # between two strikes
        self._wake(before=float("inf"))

    def _strike(self) -> None:
        self._wake(before=time.monotonic())
        if self._dice.random() < FREEZES_A_TICK and len(self._frozen) < self._crew.size // 2:
            self._freeze()
        if self._dice.random() < KILLS_A_TICK:
            self._kill()

    def _freeze(self) -> None:
        """Freeze the holder of a report, for longer than its lease lasts."""
        pid = self._holder(self._dice.randint(1, self._reports))
        if pid in self._crew.workers and pid not in self._frozen:
            os.kill(pid, signal.SIGSTOP)
            self._frozen[pid] = time.monotonic() + TTL * self._dice.uniform(1.2, 3)
            self.frozen += 1

    def _holder(self, report: int) -> int:
        """The process that holds the lease, from its owner: ``<instance>:<pid>``."""
        holder = self._hold.inspect(self._hold.lock("report-export", report)).holder
        return int(holder.owner.rpartition(":")[2]) if holder else 0

    def _kill(self) -> None:
        """Kill any worker, and start another one."""
        pid = self._dice.choice(sorted(self._crew.workers))
        self._frozen.pop(pid, None)
        self._crew.kill(pid)
        self._crew.hire()
        self.killed += 1

    def _wake(self, before: float) -> None:
        for pid in [pid for pid, when in self._frozen.items() if when <= before]:
            del self._frozen[pid]
            os.kill(pid, signal.SIGCONT)
