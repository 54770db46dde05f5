"""What a store in memory promises when its process ends: the next process begins with nothing but its clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import leasehold
from tests.support.servers.clock import WallClock

SOURCES = str(Path(leasehold.__file__).parents[1])
FIRST = """
import leasehold
with leasehold.connect("memory://") as hold, hold.lock("report") as lease:
    print(lease.fence)
"""
SECOND = """
import sys, leasehold
from leasehold.guards.memory import FenceGuard
guard, before = FenceGuard(), int(sys.argv[1])
guard.check(before, resource="report")  # the record that the guard kept
with leasehold.connect("memory://") as hold:
    with hold.lock("report") as lease:
        lower = lease.fence
        try:
            guard.check(lease)
        except leasehold.StaleOwner:
            print("refused")
    with hold.lock("report") as lease:
        guard.check(lease)
        print(lower < before < lease.fence)
"""


def run(program: str, *arguments: object, **environment: str) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": SOURCES, **environment}
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout


def test_a_new_process_whose_clock_is_behind() -> None:
    """Its fence is lower than that of the process before: the guard refuses it, and accepts the next one."""
    clock = WallClock()
    before = int(run(FIRST))
    clock.set_off(-3600)
    assert run(SECOND, before, **clock.environment()) == "refused\nTrue\n"
