"""A night on call, with real processes on Redis: a holder freezes while its ttl is long, and everything that operators
have is used to get on."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.guards.sql import FenceGuard
from tests.support.cli.desk import Desk
from tests.support.cli.tmux import Terminal
from tests.support.servers.prometheus import PrometheusServer

ALERTS = Path(__file__).parents[2] / "deploy/prometheus/alerts.yml"
NAME, KIND = "report-export:42", "report-export"

HOLDER = """
import sqlite3, sys, time
import leasehold
from leasehold.guards.sql import FenceGuard

guard = FenceGuard()
with leasehold.connect() as hold:
    lease = hold.lock("report-export", 42, ttl=600, meta={"job": 4711, "guard": "leasehold_fences"}).acquire()
    with sqlite3.connect("reports.db") as db:
        guard.check(db, lease)
    print("holds", flush=True)
    lease.lost.wait()  # it works, is frozen in the middle, and does not look at its lease before it writes
    try:
        with sqlite3.connect("reports.db") as db:
            guard.check(db, lease)
            db.execute("insert into reports values ('late')")
    except leasehold.StaleOwner as error:
        print("refused", error.fence, error.seen, flush=True)
    try:
        lease.check()
    except leasehold.LeaseLost as error:
        print("lost", error.reason, flush=True)
"""

NEXT = """
import os, sqlite3
from leasehold.guards.sql import FenceGuard

with sqlite3.connect("reports.db") as db:
    FenceGuard().check(db, int(os.environ["LEASEHOLD_FENCE"]), resource=os.environ["LEASEHOLD_RESOURCE"])
    db.execute("insert into reports values ('next')")
"""


@pytest.fixture
def desk(tmp_path: Path, redis_url: str) -> Iterator[Desk]:
    """Commands on Redis, and a database that a guard protects."""
    with sqlite3.connect(tmp_path / "reports.db") as db:
        FenceGuard().create(db)
        db.execute("create table reports (text)")
    desk = Desk(tmp_path, redis_url)
    yield desk
    desk.close()


def hurried(rules: str) -> str:
    """The alerts with seconds in place of minutes, so that the night is short."""
    return re.sub(r"\b(\d+)m\b", lambda found: f"{max(int(found[1]) // 5, 1)}s", rules)


def lines(process: subprocess.Popen[str]) -> list[str]:
    """All that it prints until its end."""
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return out.splitlines()


def test_a_night(desk: Desk) -> None:
    """An alert fires, ``top`` shows why, ``clear`` walks through, the next one goes on, the late write is refused, and
    ``audit`` tells the story."""
    holder = desk.program(HOLDER)
    assert holder.stdout is not None and holder.stdout.readline() == "holds\n"
    desk.until(lambda: desk.hold.revoke(NAME), holder)  # it can be told from a moment after it began
    os.kill(holder.pid, signal.SIGSTOP)

    waiter = desk.start("run", NAME, "--json", "--metrics-port", "0", "--", sys.executable, "-c", NEXT)
    assert waiter.stderr is not None
    port = json.loads(waiter.stderr.readline())["port"]
    with PrometheusServer(port, hurried(ALERTS.read_text())) as prometheus:
        desk.until(lambda: ("LeaseWaitersStuck", KIND) in prometheus.firing(), waiter)

    with Terminal(desk, "top", "--url", desk.url) as top:
        screen = top.shows(f":{holder.pid}")
        assert any(NAME in line for line in screen) and len(screen) <= 24 and max(map(len, screen)) <= 80

    clear = ["clear", NAME, "--reason", "frozen since 02:40", "--by", "alice", "--yes"]
    hasty = desk.run(*clear)
    assert hasty.returncode == 75 and "nothing was evicted" in hasty.stderr
    cleared = desk.run(
        "clear", NAME, "--reason", "frozen since 02:40", "--by", "alice", "--yes", "--force", "--delay", "0"
    )
    assert cleared.returncode == 0, cleared.stderr
    for answer in (
        "expires in",
        "job: 4711",
        f"{holder.pid}",
        "stopped",
        "1 in the queue",
        "leasehold_fences",
        "Evicted",
    ):
        assert answer in cleared.stdout, cleared.stdout

    assert desk.ended(waiter)[0] == 0  # it was granted the lease, and has written
    os.kill(holder.pid, signal.SIGCONT)
    refused, lost = lines(holder)
    fence, seen = map(int, refused.removeprefix("refused ").split())
    assert fence < seen and lost == "lost evicted"
    with sqlite3.connect(desk.path("reports.db")) as db:
        assert db.execute("select text from reports").fetchall() == [("next",)]

    told, asked = json.loads(desk.run("audit", "--json").stdout)
    assert (told["resource"], told["event"], told["reason"]) == (NAME, "evicted", "frozen since 02:40")
    assert (asked["event"], asked["owner"], asked["fence"]) == ("asked", told["owner"], fence)
    assert told["by"].startswith("alice@") and told["owner"].endswith(f":{holder.pid}") and told["fence"] == fence
