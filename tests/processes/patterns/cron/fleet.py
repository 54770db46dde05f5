"""A fleet of workers through a day, whose time the test turns, and what they wrote down."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import leasehold
from tests.support.patterns.cron.clocks import SharedClock
from tests.support.waiting import until

ROOT = Path(__file__).parents[4]
MIDNIGHT = 1_793_836_800  # 2026-11-05 00:00:00 UTC
PATIENCE = 60.0  # seconds after which a test fails in place of waiting on
AROUND = (-12, -9, -5, 0, 2, 6, 20)  # seconds: when a tick is due for one clock after the other


class Fleet:
    """Each worker has a clock of its own. Time does not pass a tick before somebody has run it: so each has its
    chance, however slow the machine is."""

    def __init__(self, folder: Path, url: str, **options: Any) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.journal.touch()
        path = folder / "clock"
        path.write_bytes(struct.pack("d", MIDNIGHT - 150.0))
        self.clock = SharedClock(str(path))
        self._given: dict[str, Any] = {
            "url": url,
            "expression": "*/5 * * * *",
            "journal": str(self.journal),
            "clock": str(path),
            "options": {"overlap": "wait", **options},  # time may leap on while a run is under way
        }
        self.workers: list[subprocess.Popen[bytes]] = []

    def spawn(self, skew: float, flavour: str = "sync", work: float = 0.0) -> subprocess.Popen[bytes]:
        """One more, whose clock is ahead by so many seconds."""
        given = json.dumps({**self._given, "skew": skew, "flavour": flavour, "work": work})
        with (self.folder / f"worker-{len(self.workers)}").open("wb") as errors:
            worker = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.patterns.cron.worker", given],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.workers.append(worker)
        return worker

    def ready(self) -> None:
        """All of them attend to ticks, and one has opened the books."""
        for worker in self.workers:
            assert worker.stdout is not None and worker.stdout.readline() == b"ready\n"
        with leasehold.connect(self._given["url"]) as hold:
            until(lambda: hold._results.read("rollup") is not None, "open books")

    def ticks(self, hours: float) -> Iterator[int]:
        """Turn the time from one tick to the next. Each is given when it has been run."""
        for number in range(round(hours * 12)):
            tick = MIDNIGHT + 300 * number
            for seconds in AROUND:
                self.clock.set(tick + seconds)
                if seconds < AROUND[-1]:
                    time.sleep(0.001)
            self._await(tick)
            yield tick

    def _await(self, tick: int) -> None:
        give_up = time.monotonic() + PATIENCE
        while tick not in self.ran():
            assert time.monotonic() < give_up, f"{tick} is not run: {self.errors()}"
            time.sleep(0.003)

    def ran(self) -> list[int]:
        """The ticks that were run, as often as they were."""
        return [tick for tick, _ in self.lines()]

    def lines(self) -> list[tuple[int, int]]:
        """Each with the process that ran it."""
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [(int(tick), int(pid)) for tick, pid in lines]

    def errors(self) -> str:
        """What they wrote to stderr."""
        return "".join(path.read_text() for path in self.folder.glob("worker-*"))

    def finish(self) -> None:
        """The day is over: those who are alive end by themselves."""
        for worker in self.workers:
            with contextlib.suppress(BrokenPipeError):
                worker.communicate(b"over\n", PATIENCE)
        assert {worker.returncode for worker in self.workers} <= {0, -9}, self.errors()

    def close(self) -> None:
        """Nobody is left."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                worker.communicate()
