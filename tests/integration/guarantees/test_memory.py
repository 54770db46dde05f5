"""What a store in memory promises: its users are the threads of one process, and it ends with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import leasehold
from leasehold._core.guarantee_table import TABLE
from leasehold.stores.memory import MemoryStore
from tests.integration.guarantees.faults import HOUR_US, SetClock
from tests.support.guarantees import Grant, Writer, claim, show
from tests.support.servers import process
from tests.support.servers.clock import WallClock
from tests.support.waiting import PATIENCE

SOURCES = str(Path(leasehold.__file__).parents[1])
TTL = 1.5
HOLDER = """
import sys, leasehold
lease = leasehold.connect("memory://").lock("report").acquire()
print(lease.fence, flush=True)
sys.stdin.readline()
"""
NEXT = """
import sys, leasehold
from leasehold.guards.memory import FenceGuard
guard, before = FenceGuard(), int(sys.argv[1])
guard.check(before, resource="report")  # the record that the guard kept
with leasehold.connect("memory://") as hold:
    for _ in range(2):
        with hold.lock("report", wait=0) as lease:
            try:
                guard.check(lease)
                print("accepted", lease.fence > before)
            except leasehold.StaleOwner:
                print("refused", lease.fence < before)
    try:
        guard.check(before, resource="report")
    except leasehold.StaleOwner:
        print("the old one is refused")
"""
TWO_THREADS = """
import sys, threading, time, leasehold
from leasehold.guards.memory import FenceGuard
guard, hold = FenceGuard(), leasehold.connect("memory://")
old = hold.lock("report", ttl=1.5, renew=False).acquire()
guard.check(old)
granted = []

def wait():
    lease = hold.lock("report", ttl=60).acquire(wait=60)
    granted.append((lease, time.clock_gettime(time.CLOCK_BOOTTIME)))

thread = threading.Thread(target=wait)
thread.start()
print("holds", flush=True)
sys.stdin.readline()
thread.join()
[(new, at)] = granted
guard.check(new)
try:
    guard.check(old)
except leasehold.StaleOwner:
    print(old.state, at >= old.deadline, new.fence > old.fence)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Start:
    """Starts a program as a process of its own."""

    def run(program: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, *map(str, arguments)]
        env = {**os.environ, "PYTHONPATH": SOURCES, **environment}
        found = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        request.addfinalizer(found.communicate)
        request.addfinalizer(found.kill)
        return found

    return run


def said(program: subprocess.Popen[str]) -> str:
    """All that it prints until its end."""
    output, _ = program.communicate("\n", timeout=PATIENCE)
    return output


def killed_holder(start: Start) -> int:
    """A process is killed while it holds. The fence that it had."""
    holder = start(HOLDER)
    assert holder.stdout is not None
    fence = int(holder.stdout.readline())
    holder.kill()
    holder.wait(PATIENCE)
    return fence


# ---------------------------------------------------------------- threads and processes


def test_a_thread_ends_with_its_lease() -> None:
    """The next is granted when the ttl is over, and not before."""
    data, found = Writer(), list[Grant]()
    with leasehold.connect(MemoryStore()) as hold:
        thread = threading.Thread(target=lambda: found.append(claim(hold, ttl=TTL, renew=False)))
        thread.start()
        thread.join()
        [(old, _)] = found
        assert data.write(old)
        new = claim(hold, ttl=60)
        assert new.at >= old.deadline and new.lease.fence > old.fence
        assert data.write(new.lease) and not data.write(old)
    data.judge(TABLE["memory"]["client_crash"])


def test_the_process_is_paused(start: Start) -> None:
    """Its threads stand still together. When they go on, the lease is over for its holder and for the one that
    waits."""
    program = start(TWO_THREADS)
    assert program.stdout is not None and program.stdout.readline() == "holds\n"
    process.freeze(program.pid)
    time.sleep(TTL + 0.1)
    program.send_signal(signal.SIGCONT)
    assert said(program) == "lost True True\n"


def test_the_process_is_killed(start: Start) -> None:
    """The next one grants at once: nobody holds any more. Its fences are higher, and a guard that outlived the process
    refuses the old one."""
    assert said(start(NEXT, killed_holder(start))) == "accepted True\n" * 2 + "the old one is refused\n"


def test_a_new_process_whose_clock_is_behind(start: Start) -> None:
    """Its fence is lower than that of the process before: the guard refuses it, and accepts the next one."""
    clock = WallClock()
    clock.set_off(-3600)
    program = start(NEXT, killed_holder(start), **clock.environment())
    assert said(program) == "refused True\naccepted True\nthe old one is refused\n"


# ---------------------------------------------------------------- the clock


def test_the_wall_clock_is_set_forward() -> None:
    """The lease goes on being held and renewed."""
    clock = SetClock()
    store = MemoryStore(clock)
    show("memory", "clock_forward", lambda: store, lambda: setattr(clock, "off_us", HOUR_US))


def test_the_wall_clock_is_set_back() -> None:
    """The lease goes on, and the next one has a higher fence although the clock is behind."""
    clock = SetClock()
    store = MemoryStore(clock)
    show("memory", "clock_back", lambda: store, lambda: setattr(clock, "off_us", -HOUR_US))
