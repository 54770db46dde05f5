"""A fleet of workers through a day that takes seconds, and what they wrote down."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
DAY = 86400
MIDNIGHT = 1_793_836_800  # 2026-11-05 00:00:00 UTC
LEAD = 0.5  # real seconds in which the first one opens the books, before the day begins
PATIENCE = 30.0  # seconds after which a test fails in place of waiting on


class Fleet:
    """Each worker has a clock of its own. The day begins in the middle between two ticks."""

    def __init__(self, folder: Path, url: str, expression: str, seconds: float, **options: Any) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.start = MIDNIGHT - 150
        self._given = {
            "url": url,
            "expression": expression,
            "journal": str(self.journal),
            "start": self.start,
            "end": self.start + DAY,
            "speed": DAY / seconds,
            "options": options,
        }
        self._speed = DAY / seconds
        self._begin = 0.0
        self.workers: list[subprocess.Popen[bytes]] = []

    def spawn(self, skew: float, flavour: str = "sync", work: float = 0.002) -> subprocess.Popen[bytes]:
        """One more, whose clock is ahead by so many seconds of that day."""
        given = json.dumps({**self._given, "skew": skew, "flavour": flavour, "work": work})
        errors = (self.folder / f"worker-{len(self.workers)}").open("wb")
        with errors:
            worker = subprocess.Popen(
                [sys.executable, "-m", "tests.patterns.cron.worker", given],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.workers.append(worker)
        return worker

    def begin(self, *workers: subprocess.Popen[bytes]) -> None:
        """When all are ready; those that come later enter the same day."""
        for worker in workers or self.workers:
            assert worker.stdout is not None and worker.stdout.readline() == b"ready\n"
        self._begin = self._begin or time.monotonic() + LEAD
        for worker in workers or self.workers:
            self._tell(worker, str(self._begin))

    def _tell(self, worker: subprocess.Popen[bytes], line: str) -> None:
        assert worker.stdin is not None
        try:
            worker.stdin.write(f"{line}\n".encode())
            worker.stdin.flush()
        except BrokenPipeError:  # it was killed
            pass

    def now(self) -> float:
        """By a clock that is right."""
        return self.start + (time.monotonic() - self._begin) * self._speed

    def until(self, moment: float) -> None:
        """Wait for a time of that day."""
        while self.now() < moment:
            time.sleep(0.005)

    def finish(self, ticks: int) -> Counter[int]:
        """When the day is over, and so many are run or nobody is patient any more: how often each was run."""
        give_up = time.monotonic() + PATIENCE
        self.until(self.start + DAY)
        while self.ticks().total() < ticks and time.monotonic() < give_up:
            time.sleep(0.05)
        for worker in self.workers:
            self._tell(worker, "over")
        for number, worker in enumerate(self.workers):
            worker.wait(PATIENCE)
            assert worker.returncode in (0, -9), (self.folder / f"worker-{number}").read_text()
        return self.ticks()

    def ticks(self) -> Counter[int]:
        """Those that were run, and how often."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return Counter(int(line.split()[0]) for line in lines)

    def workers_of(self) -> set[str]:
        """The processes that ran at least one."""
        return {line.split()[1] for line in self.journal.read_text().splitlines()}

    def close(self) -> None:
        """Nobody is left."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait(PATIENCE)
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
