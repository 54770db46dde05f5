"""The example of a cron: three processes, one of which is killed, roll up everything that was sold, once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0


def start(folder: Path) -> subprocess.Popen[bytes]:
    """One host."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", "LEASEHOLD_URL": f"sqlite:///{folder}/leases.db"}
    command = [sys.executable, str(ROOT / "examples/rollups.py"), f"{folder}/sales.db", "* * * * * *"]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE)


def rollups(folder: Path) -> list[tuple[str, int]]:
    """What is there by now."""
    with closing(sqlite3.connect(folder / "sales.db", timeout=20)) as db:
        try:
            return db.execute("SELECT tick, amount FROM rollups ORDER BY tick").fetchall()
        except sqlite3.OperationalError:  # nobody has made the tables yet
            return []


def until(folder: Path, ticks: int) -> None:
    """So many ticks were run."""
    give_up = time.monotonic() + PATIENCE
    while len(rollups(folder)) < ticks:
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.mark.slow
def test_everything_is_rolled_up_once(tmp_path: Path) -> None:
    """No tick twice, and no sale lost, although a host is killed."""
    hosts = [start(tmp_path) for _ in range(3)]
    try:
        until(tmp_path, 1)
        with closing(sqlite3.connect(tmp_path / "sales.db", timeout=20)) as db, db:
            db.executemany("INSERT INTO sales (at, amount) VALUES (?, ?)", [(time.time(), 5) for _ in range(10)])
        hosts[0].kill()
        until(tmp_path, len(rollups(tmp_path)) + 2)
        for host in hosts[1:]:
            host.send_signal(signal.SIGINT)
        codes = [host.wait(PATIENCE) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            host.communicate()
    found = rollups(tmp_path)
    assert codes[0] == -signal.SIGKILL
    assert len({tick for tick, _ in found}) == len(found)
    assert sum(amount for _, amount in found) == 50
