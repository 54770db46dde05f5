"""``leasehold run``: what the command gets, what comes back, and what is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leasehold._core.ops import Inspect, View
from tests.support.cli.desk import COMMAND, SOON, SOURCE, Desk, alive, pids

pytestmark = pytest.mark.slow

UNAVAILABLE = 69
HINT = "for a line that a shell is to read, write: -- sh -c "


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["true"], 0, ""),
        (["sh", "-c", "exit 3"], 3, ""),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["sh", "-c", "kill -TERM $$"], 143, ""),
        (["no-such-command"], 127, "leasehold: no-such-command: command not found\n"),
        (["./absent/command"], 127, "leasehold: ./absent/command: command not found\n"),
        (["./text"], 126, "leasehold: ./text: Permission denied\n"),
        (["./nonsense"], 126, "leasehold: ./nonsense: Exec format error\n"),
        ([""], 127, "leasehold: : command not found\n"),
        (["echo hi"], 127, f"leasehold: echo hi: command not found; {HINT}'echo hi'\n"),
        (["cd", "/tmp"], 127, f"leasehold: cd: command not found; {HINT}'cd /tmp'\n"),
        (["A=1", "env"], 127, f"leasehold: A=1: command not found; {HINT}'A=1 env'\n"),
        (["./a=b"], 127, "leasehold: ./a=b: command not found\n"),
        (["ls|wc"], 127, f"leasehold: ls|wc: command not found; {HINT}'ls|wc'\n"),
        (["true; " * 50], 126, f"leasehold: {'true; ' * 50}: File name too long; {HINT}'{'true; ' * 50}'\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_exit_codes_of_the_command(desk: Desk, command: list[str], code: int, said: str) -> None:
    """The command's own code, 128+n for a signal, and the shells' codes where it cannot start; nothing stays held."""
    desk.path("text").write_text("no program")
    desk.path("nonsense").write_text("no program")
    desk.path("nonsense").chmod(0o755)
    done = desk.run("run", "job", "--", *command)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)
    assert not desk.hold.inspect("job").held


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "job", "--url", "redis://127.0.0.1:1", "-n", "--", "true"], 69, "cannot be reached"),
        (["run", "job", "--url", "sqlite:////no/such/folder/x.db", "--", "true"], 69, "has no folder"),
        (["run", "job", "--url", "carrier-pigeon://loft", "--", "true"], 78, "unknown scheme"),
        (["run", "job", "--url", "zk://", "--", "true"], 78, "the URL names no host"),
        (["--namespace", "", "--url", "nonsense", "run", "job", "--", "true"], 78, "no URL"),
        (["run", "job", "--ttl", "soon", "--", "true"], 2, "not a duration"),
        (["run", "job", "--ttl", "1ms", "--", "true"], 2, "between 50 ms and 24 h"),
        (["run", "job", "--wait", "-1s", "--", "true"], 2, "negative"),
        (["run", "job:%zz", "--", "true"], 2, "write %25"),
        (["run", "job:", "--", "true"], 2, "empty"),
        (["run", "acme/job", "--namespace", "other", "--", "true"], 2, "not in the namespace other"),
        (["run"], 2, "needs the NAME"),
        (["run", "--", "true"], 2, "needs the NAME"),
        (["run", "job"], 2, "needs -- and the command"),
        (["run", "job", "true"], 2, "write -- before"),
        (["run", "job", "--"], 2, "no command"),
        (["run", "job", "-n", "--wait", "1s", "--", "true"], 2, "leave out --wait"),
        (["run", "job", "-E", "3", "--skip-ok", "--", "true"], 2, "leave out -E"),
        (["run", "job", "-E", "256", "--", "true"], 2, "from 0 to 255"),
        (["run", "job", "--on-lost", "pray", "--", "true"], 2, "term, kill, warn"),
        (["run", "job", "--share", "--", "true"], 2, "no such option: --share"),
        (["run", "job", "--shared", "--limit", "2", "--", "true"], 2, "leave out one of them"),
        (["run", "job", "--shared=yes", "--", "true"], 2, "takes no value"),
        (["run", "job", "--limit", "0", "--", "true"], 2, "limit"),
        (["run", "job", "--limit", "2.5", "--", "true"], 2, "a number such as 3"),
        (["run", "job", "--limit", "-1", "--", "true"], 2, "a number such as 3"),
        (["run", "job", "--limit", "1000000", "--", "true"], 2, "limit"),
        (["run", "job", "--limit", "--", "true"], 2, "needs a value"),
        (["run", "job", "--ttl"], 2, "needs a value"),
        (["run", "job", "--ttl", "--", "true"], 2, "needs a value"),
        (["run", "job", "--ttl", "0", "--", "true"], 2, "between 50 ms and 24 h"),
        (["run", "job", "--wait", "nan", "--", "true"], 2, "finite"),
        (["run", "job", "-nx", "--", "true"], 2, "no such option: -x"),
        (["run", "job", "--json=yes", "--", "true"], 2, "takes no value"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_exit_codes_without_the_command(desk: Desk, arguments: list[str], code: int, said: str) -> None:
    """No store is 69, a bad URL 78, a mistake 2: said in words, and the command never runs."""
    done = desk.run(*[word for one in arguments for word in (("touch", "ran") if one == "true" else (one,))])
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not desk.path("ran").exists()


@pytest.mark.parametrize("scheme", ["etcd", "zk"])
def test_a_driver_prints_nothing(desk: Desk, scheme: str) -> None:
    """One line of ours says that a server is not there: what its client library logs is not printed."""
    done = desk.run("run", "job", "--url", f"{scheme}://127.0.0.1:1", "-n", "--", "true")
    assert done.returncode == 69
    assert re.fullmatch(r"leasehold: the store is unavailable: .*127[.]0[.]0[.]1:1 cannot be reached.*\n", done.stderr)


def test_busy(desk: Desk) -> None:
    """75 when somebody holds it, at once or when the wait is over; ``-E`` changes it, ``--skip-ok`` makes it quiet."""
    desk.holding("job")
    for options, code, said in (
        (["-n"], 75, True),
        (["--wait", "0.2s"], 75, True),
        (["-n", "-E9"], 9, True),
        (["-n", "--busy-code=0"], 0, True),
        (["-n", "--skip-ok"], 0, False),
    ):
        done = desk.run("run", "job", *options, "--", "touch", "ran")
        assert (done.returncode, "job is held by" in done.stderr) == (code, said)
        assert said or done.stderr == ""
    assert not desk.path("ran").exists()


def test_the_environment(desk: Desk) -> None:
    """The command finds its fence, the resource and the public part of the owner; all else is as it was."""
    script = "echo $LEASEHOLD_FENCE $LEASEHOLD_RESOURCE $LEASEHOLD_OWNER $OWN; touch up; sleep 60"
    process = desk.holding("report-export:42", "--namespace", "acme", script=f"{{ {script}; }} > said")
    holder = desk.hold.inspect("acme/report-export:42").holder
    assert holder is not None
    assert desk.path("said").read_text().split() == [str(holder.fence), "acme/report-export:42", holder.owner]
    assert holder.owner.endswith(f":{process.pid}")


def test_shared(desk: Desk) -> None:
    """Readers run beside readers, and nobody who wants it alone beside them; the command knows that it only reads."""
    script = "echo $LEASEHOLD_SHARED $LEASEHOLD_RESOURCE ${LEASEHOLD_SLOT-none} > said; touch up; exec sleep 60"
    process = desk.holding("job", "--shared", script=script)
    assert desk.path("said").read_text().split() == ["1", "job", "none"]
    assert desk.run("run", "job", "--shared", "-n", "--", "true").returncode == 0
    for options in ([], ["--limit", "5"]):
        busy = desk.run("run", "job", *options, "-n", "--", "touch", "ran")
        assert (busy.returncode, "job is held by" in busy.stderr) == (75, True)
    assert desk.hold.rwlock("job").read().try_acquire() is not None  # the same as in Python
    process.terminate()
    assert process.wait(SOON) == 143
    assert not desk.path("ran").exists()


def test_limit(desk: Desk) -> None:
    """Up to N at a time, each in a slot of its own, under whose name a guard is told the fence."""
    script = "echo $LEASEHOLD_SLOT $LEASEHOLD_RESOURCE > said; touch up; exec sleep 60"
    process = desk.holding("job", "--limit", "2", script=script)
    assert desk.path("said").read_text().split() == ["0", "job::0"]
    done = desk.run("run", "job", "--limit", "2", "-n", "--", "sh", "-c", "echo $LEASEHOLD_SLOT")
    assert (done.returncode, done.stdout) == (0, "1\n")
    with desk.hold.semaphore("job", limit=2) as permit:
        assert permit.slot == 1
        assert desk.run("run", "job", "--limit", "2", "-n", "--", "touch", "ran").returncode == 75
    process.terminate()
    assert process.wait(SOON) == 143
    assert not desk.path("ran").exists()


def test_limits_that_differ(desk: Desk) -> None:
    """Each goes by its own, and whoever comes later says so; not when it is told to be quiet."""
    with desk.hold.semaphore("job", limit=2):
        done = desk.run("run", "job", "--limit", "3", "-n", "--", "true")
        assert (done.returncode, done.stderr) == (
            0, "leasehold: job: others use a limit of 2, this one 3: give the same --limit everywhere\n"
        )  # fmt: skip
        assert desk.run("run", "job", "--limit", "3", "--skip-ok", "--", "true").stderr == ""
        told = desk.run("run", "job", "--limit", "1", "-n", "--json", "--", "true").stderr.splitlines()
        assert [json.loads(line)["event"] for line in told] == ["limit", "busy"]
        assert desk.run("run", "job", "--limit", "2", "-n", "--", "true").stderr == ""


@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C"}], ids=str)
def test_the_environment_of_a_crontab(desk: Desk, locale: dict[str, str]) -> None:
    """The command's is ours and three variables more. Python's own idea of a locale is not for it."""
    given = {"LEASEHOLD_URL": desk.url, "PYTHONPATH": str(SOURCE), **locale}
    command = [*COMMAND, "run", "job", "--", "/usr/bin/env", "-0"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=SOON, check=True)
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    added = {"LEASEHOLD_FENCE", "LEASEHOLD_RESOURCE", "LEASEHOLD_OWNER"}
    assert {key: value for key, value in found.items() if key not in added} == given


def test_any_environment(desk: Desk) -> None:
    """The command gets it, whatever it contains and however long it is."""
    given = {
        b"LEASEHOLD_URL": desk.url.encode(), b"PYTHONPATH": bytes(SOURCE), b"PATH": b"/nowhere:/usr/bin:/bin",
        b"BASH_FUNC_f%%": b"() { echo = \n}", b"a.b-c": b"", b"NO_TEXT": b"\xff\xfe", b"ONE": b"o" * 100_000,
        b"OTHER": b"t" * 100_000,
    }  # fmt: skip
    command = [*COMMAND, "run", "job", "--", "env", "-0"]
    done = subprocess.run(command, env=given, capture_output=True, timeout=SOON, check=True)
    found = dict(line.split(b"=", 1) for line in done.stdout.split(b"\0") if line)
    assert done.stderr == b""
    assert {key: value for key, value in found.items() if key in given or not key.startswith(b"LEASEHOLD_")} == given


def test_the_descriptors_are_those_of_the_caller(desk: Desk) -> None:
    """A descriptor that the caller passes on reaches the command; none of ours does."""
    passed, other = os.pipe()
    try:
        command = ["python3", "-ISc", "import posix; print(posix.listdir('/proc/self/fd'))"]
        plain = subprocess.run(command, capture_output=True, text=True, check=True, pass_fds=[passed])
        done = desk.run("run", "job", "--", *command, pass_fds=[passed])
    finally:
        os.close(passed)
        os.close(other)
    assert (done.stdout, done.stderr) == (plain.stdout, "") and f"'{passed}'" in plain.stdout


def test_it_locks_what_python_locks(desk: Desk) -> None:
    """NAME is the text form: it is the same resource as in Python, also where a part needs escapes."""
    names: list[tuple[str, tuple[Any, ...]]] = [
        ("job", ("job",)),
        ("report:42", ("report", 42)),
        ("a:b%3Ac:%25", ("a", "b:c", "%")),
    ]
    for name, parts in names:
        with desk.hold.lock(*parts):
            assert desk.run("run", name, "-n", "--", "true").returncode == 75
        assert desk.run("run", name, "-n", "--", "true").returncode == 0


def test_it_holds_while_the_command_runs_and_no_longer(desk: Desk) -> None:
    """Held, and renewed, until the command has ended."""
    process = desk.holding("job", "--ttl", "1.5s", script="touch up; while ! test -e go; do sleep 0.02; done")
    first = desk.hold.inspect("job").holder
    assert first is not None
    desk.until(lambda: (holder := desk.hold.inspect("job").holder) and holder.expires_in < first.expires_in)
    desk.until(lambda: (holder := desk.hold.inspect("job").holder) and holder.expires_in > first.ttl * 0.8)
    desk.path("go").touch()
    assert desk.ended(process) == (0, "", "")
    assert not desk.hold.inspect("job").held


def test_standard_streams_are_the_commands(desk: Desk) -> None:
    """Input, output and errors pass untouched, every byte; so does a descriptor that somebody opened."""
    data = bytes(range(256)) * 4096
    script = "cat; echo oops >&2"
    process: Any = desk.start("run", "job", "--", "sh", "-c", script, stdin=subprocess.PIPE, text=False)
    assert process.communicate(data, timeout=SOON) == (data, b"oops\n")
    reading, writing = os.pipe()
    desk.run("run", "job", "--", "sh", "-c", f"echo through > /dev/fd/{writing}", pass_fds=[writing])
    assert os.read(reading, 99) == b"through\n"
    os.close(reading)
    os.close(writing)


def test_arguments_are_the_commands(desk: Desk) -> None:
    """What stands behind ``--`` is not looked at: options, more dashes, spaces, bytes that are no text."""
    odd = os.fsdecode(b"\xff")
    done = desk.run("run", "job", "--", "printf", "%s|", "-n", "--", "--help", "a b", "", odd, errors="surrogateescape")
    assert (done.returncode, done.stdout) == (0, f"-n|--|--help|a b||{odd}|")


def test_a_nested_run_is_busy(desk: Desk) -> None:
    """The command is not its parent: what it finds in the environment gives it no right (trap 45)."""
    done = desk.run("run", "job", "--", *COMMAND, "run", "job", "-n", "--", "true")
    assert done.returncode == 75
    assert "job is held by" in done.stderr


def test_at_least(desk: Desk) -> None:
    """With ``--at-least`` nobody is next before that time, however short the command was."""
    assert desk.run("run", "tick", "--at-least", "1h", "--", "true").returncode == 0
    assert desk.run("run", "tick", "-n", "--", "true").returncode == 75
    assert desk.hold.inspect("tick").closed_for > 3000


def test_json_events(desk: Desk) -> None:
    """With ``--json`` every event is one object in a line of standard error; output stays the command's."""
    done = desk.run("--json", "run", "job", "--ttl", "2h", "--", "echo", "hello")
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert [event["event"] for event in events] == ["warning", "acquired", "exited"]
    assert (events[1]["resource"], events[1]["ttl"], events[2]["code"]) == ("job", 7200, 0)
    desk.hold.lock("job").acquire()
    (busy,) = [json.loads(line) for line in desk.run("run", "job", "--json", "-n", "--", "true").stderr.splitlines()]
    assert (busy["event"], busy["holder"]) == ("busy", f"{os.uname().nodename}:{os.getpid()}")


def test_who_waits_is_told_who_holds(desk: Desk) -> None:
    """After a second of waiting: who holds it, and how many wait."""
    with desk.hold.lock("job"):
        process = desk.start("run", "job", "--json", "--", "true")
        assert process.stderr is not None
        event = json.loads(process.stderr.readline())
    assert (event["event"], event["waiters"]) == ("waiting", 1)
    assert event["holder"].endswith(f":{os.getpid()}")
    assert desk.ended(process)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_ends_the_waiting(desk: Desk, number: signal.Signals) -> None:
    """Whoever waits leaves at once and leaves nothing: no place in the queue, no process, no lease."""
    with desk.hold.lock("job"):
        process = desk.start("run", "job", "--", "touch", "ran")
        desk.until(lambda: desk.hold.inspect("job").waiters, process)
        process.send_signal(number)
        assert desk.ended(process) == (128 + number, "", "")
        assert not desk.hold.inspect("job").waiters
    assert not desk.hold.inspect("job").held
    assert not desk.path("ran").exists()


def test_the_command_dies_with_us(desk: Desk) -> None:
    """kill -9 cannot be caught: the kernel ends the command, and the lease ends by itself."""
    process = desk.holding("job", "--ttl", "1s", script="echo $$ > pid; touch up; exec sleep 170")  # longer than SOON
    (pid,) = pids(desk.path("pid"))
    process.kill()
    desk.until(lambda: not alive(pid))
    desk.until(lambda: not desk.hold.inspect("job").held)


def test_who_waits_and_is_killed_leaves_no_process(desk: Desk) -> None:
    """The process that would become the command goes, too."""
    with desk.hold.lock("job"):
        process = desk.start("run", "job", "--", "touch", "ran")
        desk.until(lambda: desk.hold.inspect("job").waiters, process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (stub,) = pids(children)
        process.kill()
        desk.until(lambda: not alive(stub))
    assert not desk.path("ran").exists()


def test_no_secret_is_shown(desk: Desk) -> None:
    """The owner token stays in the store: it is in no title, no environment and no output."""
    script = "echo $$ > pid; env; touch up; while ! test -e go; do sleep 0.02; done"
    process = desk.holding("job", "--json", script=script)
    view = desk.hold._engine.store.execute(Inspect("job"))
    assert isinstance(view, View)
    token = view.holders[0].owner
    secret = token.rsplit(":", 1)[1].split(".")[0]
    assert len(secret) == 22
    for pid in (process.pid, *pids(desk.path("pid"))):
        for what in ("cmdline", "environ", "comm"):
            assert secret.encode() not in Path(f"/proc/{pid}/{what}").read_bytes()
    desk.path("go").touch()
    code, out, err = desk.ended(process)
    assert code == 0
    assert secret not in out + err


def test_the_rights_of_the_file(desk: Desk) -> None:
    """The store that a first run makes is the user's own."""
    assert desk.run("run", "job", "--", "true").returncode == 0
    assert stat.S_IMODE(desk.path("leases.db").stat().st_mode) == 0o600
    with sqlite3.connect(desk.path("leases.db")) as connection:
        assert connection.execute("SELECT name FROM resources").fetchall() == [("job",)]
    connection.close()


@pytest.mark.parametrize("size", [16, pytest.param(50, marks=pytest.mark.soak)])
def test_many_at_once(size: int, desk: Desk) -> None:
    """Of many that try once at the same time exactly one runs; the others are told that it is busy."""
    script = "echo $$ >> ran; while ! test -e go; do sleep 0.05; done"

    def tries() -> subprocess.Popen[str]:
        return desk.start("run", "one", "-n", "--", "sh", "-c", script)

    crowd = [tries() for _ in range(size)]

    def one_is_left() -> bool:
        for place, process in enumerate(crowd):
            if process.poll() == UNAVAILABLE:  # others kept the file for a second, on a busy machine: it tries again
                crowd[place] = tries()
        return sum(process.poll() is not None for process in crowd) == size - 1

    desk.until(one_is_left)
    desk.path("go").touch()
    assert sorted(desk.ended(process)[0] for process in crowd) == [0, *[75] * (size - 1)]
    assert len(pids(desk.path("ran"))) == 1
    assert not desk.hold.inspect("one").held
