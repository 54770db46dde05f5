"""Many waiters in many processes on one CPU: all are served, in order, without an error or a lost lease (trap 54)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.workers import journal
from tests.support.workers.crew import ROOT, report


def crowd(folder: Path, processes: int, threads: int, tasks: int, turns: int) -> None:
    """So many processes, each with so many threads and tasks that want the same lock so many times."""
    url = f"sqlite:///{folder / 'leases.db'}"
    command = [sys.executable, "-m", "tests.support.workers.crowd", url, str(threads), str(tasks), str(turns)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    running = [
        subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        began = time.monotonic()
        for one in running:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        told = [json.loads(one.communicate()[0]) for one in running]
        seconds = time.monotonic() - began
    finally:
        for one in running:
            one.kill()
            one.wait()
    errors = [error for one in told for error in one["errors"]]
    taken = [turn for number, one in enumerate(told) for turn in journal.turns_of(f"w{number}", one["turns"])]
    wanted = processes * (threads + tasks) * turns
    report(f"{len(taken)} of {wanted} turns in {seconds:.1f} s, {len(taken) / seconds:.0f} a second")
    assert errors == []
    assert len(taken) == wanted
    assert journal.overlaps(taken) == 0
    assert journal.overtakes(taken) == 0
    assert sum(turn.behind is not None for turn in taken) > wanted / 2, "they must stand in each other's way"


@pytest.mark.slow
def test_a_crowd_is_served_in_order(tmp_path: Path) -> None:
    """8 processes with 25 waiters each, threads and tasks, on one CPU."""
    crowd(tmp_path, processes=8, threads=13, tasks=12, turns=2)


@pytest.mark.soak
def test_a_great_crowd_is_served_in_order(tmp_path: Path) -> None:
    """32 processes with 25 waiters each, threads and tasks, on one CPU."""
    crowd(tmp_path, processes=32, threads=13, tasks=12, turns=5)
