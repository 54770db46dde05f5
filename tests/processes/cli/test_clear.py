"""``leasehold clear`` with real processes: a holder that freezes, one that is dead, somebody at a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import leasehold
from leasehold.cli.liveness import renewed_lately
from tests.support.cli.desk import Desk
from tests.support.cli.dialogue import at_terminal

pytestmark = pytest.mark.slow
CLEAR = ["clear", "job", "--reason", "it is frozen"]


def holding(desk: Desk, url: str, ttl: str) -> subprocess.Popen[str]:
    """A holder that can be told of an eviction at once: that is so from a moment after it began."""
    process = desk.holding("job", "--ttl", ttl, "--url", url)
    with leasehold.connect(url) as hold:
        desk.until(lambda: hold.revoke("job"), process)
    return process


@contextmanager
def frozen(desk: Desk, url: str, ttl: str) -> Iterator[subprocess.Popen[str]]:
    """A holder that stands still."""
    process = holding(desk, url, ttl)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield process
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_a_frozen_holder(desk: Desk, redis_url: str) -> None:
    """When it has not renewed for long, it is evicted. It learns of it when it wakes, and ends its command."""
    with frozen(desk, redis_url, "9s") as holder:
        with leasehold.connect(redis_url) as hold:
            desk.until(lambda: not renewed_lately(hold.inspect("job").holders[0]))
        done = desk.run(*CLEAR, "--yes", "--url", redis_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"its process {holder.pid} (" in done.stdout and "runs on this host, but it is stopped" in done.stdout
    code, _, told = desk.ended(holder)
    assert (code, "is lost (" in told) == (76, True)
    entry, _asked = json.loads(desk.run("audit", "--json", "--url", redis_url).stdout)
    assert (entry["resource"], entry["reason"]) == ("job", "it is frozen")
    assert entry["owner"].endswith(f":{holder.pid}") and 0 < entry["remaining"] < 6


def test_a_holder_that_froze_a_moment_ago(desk: Desk) -> None:
    """It may wake up: that is no reason to evict it, unless somebody insists."""
    with frozen(desk, desk.url, "5m") as holder:
        done = desk.run(*CLEAR, "--yes")
        assert (done.returncode, "but it is stopped (SIGSTOP)" in done.stdout) == (75, True)
        assert desk.run(*CLEAR, "--yes", "--force").returncode == 0
    assert desk.ended(holder)[0] == 76


def test_somebody_is_asked(desk: Desk) -> None:
    """On the terminal, whose answer counts; Ctrl-C is 130. What was seen goes to standard output."""
    holder = holding(desk, desk.url, "5m")
    for typed, code in (("n\n", 1), ("", 130), ("y\n", 0)):
        with at_terminal(desk, *CLEAR, "--force") as dialogue:
            if typed:
                dialogue.type(typed, after="[y/N]: ")
            else:
                dialogue.interrupt(after="[y/N]: ")
            ended, out = dialogue.ended()
            assert (ended, "held by" in out, "Traceback" in dialogue.shown) == (code, True, False)
    assert desk.ended(holder)[0] == 76


def test_a_dead_holder(desk: Desk) -> None:
    """Its process is gone, and everybody can see that; its lease goes on until it ends or is evicted."""
    holder = desk.holding("job", "--ttl", "5m")
    holder.kill()
    holder.wait()
    done = desk.run(*CLEAR, "--yes")
    assert (done.returncode, f"its process {holder.pid} is gone from this host" in done.stdout) == (75, True)
    assert desk.run(*CLEAR, "--yes", "--force", "--delay", "0").returncode == 0
    assert desk.hold.lock("job").try_acquire()
