"""``leasehold run`` loses its lease: the command, and all that it started, is dead before somebody else begins."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.cli.process import Child
from tests.support.cli.desk import Desk, alive, pids
from tests.support.servers.redis import RedisServer

pytestmark = pytest.mark.slow

# It writes the time all the while, and takes no notice of TERM; or it does, and says so.
STUBBORN = "trap 'echo TERM >> told' TERM; echo $$ > pid; touch up; while :; do date +%s.%N >> beats; sleep 0.02; done"
POLITE = "trap 'touch tidied; exit 0' TERM; touch up; while :; do date +%s.%N >> beats; sleep 0.02; done"


def evict(desk: Desk, name: str = "job") -> None:
    """An operator takes the lease away; the door stays closed for what it had left."""
    holder = desk.hold.inspect(name).holder
    assert holder is not None
    desk.hold.evict(name, fence=holder.fence, reason="a test")


def forget(desk: Desk) -> None:
    """The store loses its memory."""
    with closing(sqlite3.connect(desk.path("leases.db"))) as connection, connection:
        connection.execute("DELETE FROM resources")


def last(path: Path) -> float:
    """The last time that was written whole."""
    return float(path.read_text().split("\n")[-2])


def test_stopped_with_term(desk: Desk) -> None:
    """Whoever heeds TERM has time to tidy up; 76 says what happened."""
    process = desk.holding("job", "--ttl", "2s", script=POLITE)
    evict(desk)
    code, out, err = desk.ended(process)
    assert (code, out) == (76, "")
    assert "leasehold: the lease on job is lost (evicted): the command is stopped\n" in err
    assert desk.path("tidied").exists()


def test_dead_before_the_next_begins(desk: Desk) -> None:
    """A command that ignores TERM is killed, and wrote its last before the next one starts."""
    process = desk.holding("job", "--ttl", "2s", script=STUBBORN)
    after = desk.start("run", "job", "--", "sh", "-c", "date +%s.%N > began")
    desk.until(lambda: desk.hold.inspect("job").waiters, after)
    evict(desk)
    assert desk.ended(process)[0] == 76
    assert not alive(*pids(desk.path("pid")))
    assert desk.path("told").read_text().split() == ["TERM"]
    assert desk.ended(after)[0] == 0
    assert last(desk.path("beats")) < last(desk.path("began"))


def test_the_store_does_not_answer(desk: Desk) -> None:
    """No renewal succeeds: the command is stopped in the margin, before the store could give the lease to another."""
    process = desk.holding("job", "--ttl", "3s", "--json", script=STUBBORN)
    with closing(sqlite3.connect(desk.path("leases.db"), isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")  # nobody else gets a word in
        code, _, err = desk.ended(process)
        connection.execute("COMMIT")
    assert code == 76
    (lost,) = [json.loads(line) for line in err.splitlines() if '"lost"' in line]
    assert lost["reason"] == "renewal_failed"
    assert desk.path("told").read_text().split() == ["TERM"]
    done = desk.run("run", "job", "--", "date", "+%s.%N")
    assert last(desk.path("beats")) < float(done.stdout)


def test_the_server_dies(desk: Desk, own_redis: Callable[..., RedisServer]) -> None:
    """On Redis the same: a server that is gone takes the command along, in time."""
    server = own_redis()
    process = desk.holding("job", "--ttl", "3s", "--url", server.url, script=STUBBORN)
    server.kill()
    code, _, err = desk.ended(process)
    assert (code, "is lost (renewal_failed): the command is stopped" in err) == (76, True)
    assert desk.path("told").read_text().split() == ["TERM"]
    assert not alive(*pids(desk.path("pid")))


def test_the_store_forgot(desk: Desk) -> None:
    """The row is gone: lost, and the command is stopped."""
    process = desk.holding("job", "--ttl", "1.5s", script=STUBBORN)
    forget(desk)
    code, _, err = desk.ended(process)
    assert (code, "is lost (deleted)" in err) == (76, True)
    assert not alive(*pids(desk.path("pid")))


def test_all_that_it_started_ends_with_it(desk: Desk) -> None:
    """Its children, their children in sessions of their own, and orphans: nobody works on."""
    family = """
        trap '' TERM
        sleep 60 & echo $! >> family
        setsid sh -c "echo \\$\\$ >> family; trap '' TERM; sleep 60 & wait" &
        sh -c "setsid sh -c 'echo \\$\\$ >> family; exec sleep 60' &"
        touch up; wait; sleep 60
    """
    process = desk.holding("job", "--ttl", "2s", script=family)
    desk.until(lambda: len(pids(desk.path("family"))) == 3)
    evict(desk)
    assert desk.ended(process)[0] == 76
    assert [pid for pid in pids(desk.path("family")) if alive(pid)] == []


def test_kill_at_once(desk: Desk) -> None:
    """``--on-lost kill``: not a word before."""
    process = desk.holding("job", "--ttl", "2s", "--on-lost", "kill", script=STUBBORN)
    evict(desk)
    code, _, err = desk.ended(process)
    assert (code, err) == (76, "leasehold: the lease on job is lost (evicted): the command is killed\n")
    assert not desk.path("told").exists()
    assert not alive(*pids(desk.path("pid")))


def test_only_warn(desk: Desk) -> None:
    """``--on-lost warn``: said, and left alone; 76 at the end, whatever the command's own code is."""
    script = "touch up; while ! test -e go; do sleep 0.02; done; touch done; exit 3"
    process = desk.holding("job", "--ttl", "1.5s", "--on-lost", "warn", script=script)
    evict(desk)
    assert process.stderr is not None
    assert process.stderr.readline() == "leasehold: the lease on job is lost (evicted): the command goes on\n"
    desk.path("go").touch()
    assert desk.ended(process)[0] == 76
    assert desk.path("done").exists()


def test_lost_as_the_command_ends(desk: Desk) -> None:
    """The command was done, but its lease was not there any more: 76, since somebody else may have been at work."""
    process = desk.holding("job", "--ttl", "30s", script="touch up; while ! test -e go; do sleep 0.02; done")
    forget(desk)  # it would hear of that with its next renewal, in ten seconds
    desk.path("go").touch()
    code, _, err = desk.ended(process)
    assert code == 76
    assert "it was over before the command was" in err


def test_frozen_past_the_end(desk: Desk) -> None:
    """We were frozen and wake up too late: the command is killed at once, without a grace that is long over."""
    process = desk.holding("job", "--ttl", "1.5s", script=STUBBORN)
    process.send_signal(subprocess.signal.SIGSTOP)  # type: ignore[attr-defined]  # it imports what it re-exports
    desk.until(lambda: not desk.hold.inspect("job").held)
    process.send_signal(subprocess.signal.SIGCONT)  # type: ignore[attr-defined]  # it imports what it re-exports
    code, _, err = desk.ended(process)
    assert (code, "(expired): the command is killed" in err) == (76, True)
    assert not desk.path("told").exists()


def test_a_killed_stub_is_a_killed_command() -> None:
    """Whoever kills the process before it became the command is told so by its code, and nobody hangs."""
    import os

    child = Child(["true"], set())
    os.kill(child.pid, 9)
    _, status = os.waitpid(child.pid, 0)
    child.start({"LEASEHOLD_FENCE": "1"})
    child.ended(status)
    assert (child.code, child.start_error()) == (137, 0)
    child.abandon()
