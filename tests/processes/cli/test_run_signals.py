"""``leasehold run`` and signals: passed on, once each, and job control works as without it."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli.desk import SOON, SOURCE, Desk, pids

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

# Says which signals it hears; USR2 ends it. They are blocked and waited for: a handler of Python runs only when the
# call that it interrupts returns, and a signal that comes just before a sleep begins would be heard at its end.
LISTENER = """
import os, signal, sys
numbers = {1, 2, 3, 10, 12, 14, 15, 18, 28, 40}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
open("pid", "w").write(str(os.getpid()))
open("up", "w").close()
while True:
    number = signal.sigwait(numbers)
    os.write(1, b"%d\\n" % number)
    if number == signal.SIGUSR2:
        sys.exit(7)
"""


def listening(desk: Desk, **more: object) -> subprocess.Popen[str]:
    """A command that says which signals it hears."""
    process = desk.start("run", "job", "--", sys.executable, "-c", LISTENER, **more)
    desk.until(desk.path("up").exists, process)
    return process


def startup(desk: Desk, code: str) -> dict[str, str]:
    """An environment in which Python runs this code before its program: it wraps a call of the program, so that a
    signal arrives at a moment that is otherwise too short to be met."""
    desk.path("sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{SOURCE}:{desk.folder}"}


def state(pid: int) -> str:
    """T when it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_forwarded(desk: Desk) -> None:
    """Each signal that somebody sends to us reaches the command, once."""
    process = listening(desk)
    assert process.stdout is not None
    for number in (1, 2, 3, 10, 14, 15, 18, 28, 40, 12):
        process.send_signal(number)
        assert process.stdout.readline() == f"{number}\n"
    assert desk.ended(process) == (7, "", "")
    assert not desk.hold.inspect("job").held


def test_however_the_tests_are_started() -> None:
    """nohup and shells have what they start ignore some signals; a program that a test starts does not inherit that."""
    program = """
import signal, subprocess
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
import tests.conftest
subprocess.run(["grep", "SigIgn", "/proc/self/status"])
"""
    said = subprocess.check_output([sys.executable, "-c", program], text=True, cwd=ROOT, timeout=SOON)
    assert int(said.split()[1], 16) & 0b111 == 0


def test_one_that_ends_the_command(desk: Desk) -> None:
    """The command ends by the signal, and so its code says."""
    process = desk.holding("job")
    process.send_signal(signal.SIGTERM)
    assert desk.ended(process) == (143, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_one_before_the_command_is_there(desk: Desk, number: int) -> None:
    """It is kept until the command is executed, and ends the command."""
    wrapper = f"""
import os
fork = os.fork
def fork_and_send():
    if pid := fork():
        os.kill(pid, {number})
    return pid
os.fork = fork_and_send
"""
    process = desk.start("run", "job", "--", "sleep", "60", env=startup(desk, wrapper))
    assert desk.ended(process) == (128 + number, "", "")


def test_signals_are_to_the_command_as_without_us(desk: Desk) -> None:
    """Blocked and ignored signals are those that it would have had: also the ones that Python ignores."""
    command = ["grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status"]

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})

    plain = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=ignore)
    assert desk.run("run", "job", "--", *command, preexec_fn=ignore).stdout == plain.stdout
    ignored = next(line.split()[1] for line in plain.stdout.splitlines() if line.startswith("SigIgn"))
    assert int(ignored, 16) & 1 << (signal.SIGHUP - 1)  # others may be inherited from whoever runs the tests


def test_what_nohup_ignores_stays_ignored(desk: Desk) -> None:
    """A hangup that is ignored when we start ends neither us nor the command."""
    script = "echo $$ > pid; touch up; while ! test -e go; do sleep 0.02; done"
    process = desk.start("run", "job", "--", "sh", "-c", script, preexec_fn=lambda: signal.signal(1, signal.SIG_IGN))
    desk.until(desk.path("up").exists, process)
    process.send_signal(signal.SIGHUP)
    desk.path("go").touch()
    assert desk.ended(process) == (0, "", "")


def test_stopped_and_continued(desk: Desk) -> None:
    """SIGTSTP stops the command first and then us, so that no command runs unminded; SIGCONT wakes both."""
    script = "echo $$ > pid; touch up; while ! test -e go; do sleep 0.02; done"
    process = desk.start("run", "job", "--", "sh", "-c", script, process_group=0)
    desk.until(desk.path("up").exists, process)
    (pid,) = pids(desk.path("pid"))
    process.send_signal(signal.SIGTSTP)
    desk.until(lambda: state(process.pid) == "T")
    assert state(pid) == "T"
    desk.path("go").touch()
    process.send_signal(signal.SIGCONT)
    assert desk.ended(process) == (0, "", "")


def test_continued_when_only_the_command_has_stopped(desk: Desk) -> None:
    """SIGCONT that arrives after the command has stopped, and before we have: both go on."""
    wrapper = """
import os, signal
waitpid = os.waitpid
def wait_and_continue(pid, options):
    found = waitpid(pid, options)
    if os.WIFSTOPPED(found[1]):
        os.kill(os.getpid(), signal.SIGCONT)
    return found
os.waitpid = wait_and_continue
"""
    script = ("sh", "-c", "kill -TSTP $$; echo went on")
    process = desk.start("run", "job", "--", *script, process_group=0, env=startup(desk, wrapper))
    assert desk.ended(process) == (0, "went on\n", "")


def test_continued_before_it_has_stopped(desk: Desk) -> None:
    """SIGCONT that arrives just after SIGTSTP, while the lease is waited for: the wait goes on."""
    wrapper = """
import _signal, os
sigwaitinfo = _signal.sigwaitinfo
def wait_and_continue(numbers):
    info = sigwaitinfo(numbers)
    if info.si_signo == _signal.SIGTSTP:
        os.kill(os.getpid(), _signal.SIGCONT)
        open("continued", "w").close()
    return info
_signal.sigwaitinfo = wait_and_continue
"""
    with desk.hold.lock("job"):
        process = desk.start("run", "job", "--", "true", process_group=0, env=startup(desk, wrapper))
        desk.until(lambda: desk.hold.inspect("job").waiters, process)
        process.send_signal(signal.SIGTSTP)
        desk.until(desk.path("continued").exists, process)
    assert desk.ended(process) == (0, "", "")


def test_who_ignores_the_stop_is_minded_on(desk: Desk) -> None:
    """A command that does not stop at SIGTSTP runs on, and so do we: its lease is renewed."""
    script = "trap '' TSTP; touch up; while ! test -e go; do sleep 0.02; done"
    process = desk.start("run", "job", "--ttl", "1.5s", "--", "sh", "-c", script, process_group=0)
    desk.until(desk.path("up").exists, process)
    process.send_signal(signal.SIGTSTP)
    first = desk.hold.inspect("job").holder
    assert first is not None
    desk.until(lambda: (holder := desk.hold.inspect("job").holder) and holder.expires_in < first.expires_in)
    desk.until(lambda: (holder := desk.hold.inspect("job").holder) and holder.expires_in > first.ttl * 0.8)
    assert state(process.pid) != "T"
    desk.path("go").touch()
    assert desk.ended(process) == (0, "", "")


def test_a_lease_that_ended_while_stopped(desk: Desk) -> None:
    """Both were stopped past the end of the lease: the command is killed in its sleep, and does nothing more."""
    script = "echo $$ > pid; touch up; while :; do sleep 0.02; test -e go && touch woke; done"
    process = desk.start("run", "job", "--ttl", "1.5s", "--", "sh", "-c", script, process_group=0)
    desk.until(desk.path("up").exists, process)
    process.send_signal(signal.SIGTSTP)
    desk.until(lambda: state(process.pid) == "T")
    desk.until(lambda: not desk.hold.inspect("job").held)
    desk.path("go").touch()
    process.send_signal(signal.SIGCONT)
    code, _, err = desk.ended(process)
    assert (code, "(expired): the command is killed" in err) == (76, True)
    assert not desk.path("woke").exists()


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Our end of a terminal, and the end of those who live on it."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_keys_reach_the_command_once(desk: Desk, terminal: tuple[int, int]) -> None:
    """Ctrl-C and Ctrl-\\ go to the whole foreground group: the command has them already, and gets no second one."""
    ours, theirs = terminal
    process = listening(
        desk,
        stdin=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
    )
    assert process.stdout is not None
    for key, number in ((b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT)):
        process.send_signal(signal.SIGSTOP)  # so that what we pass on cannot melt together with the terminal's own
        desk.until(lambda: state(process.pid) == "T")
        os.write(ours, key)
        assert f"{number:d}\n" in iter(process.stdout.readline, "")
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGUSR1)
        heard = list(iter(process.stdout.readline, f"{signal.SIGUSR1:d}\n"))
        assert f"{number:d}\n" not in heard
    process.send_signal(signal.SIGUSR2)
    assert desk.ended(process)[0] == 7


def test_a_terminal_that_hangs_up(desk: Desk) -> None:
    """Where we lead the session, the hangup is sent to us alone: it is passed on."""
    ours, theirs = pty.openpty()
    process = desk.start(
        "run", "job", "--", sys.executable, "-c", LISTENER,
        stdin=theirs, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    desk.until(desk.path("up").exists, process)
    os.close(theirs)
    os.close(ours)
    assert process.stdout is not None
    heard = [process.stdout.readline() for _ in range(2)]
    assert "1\n" in heard
    process.send_signal(signal.SIGUSR2)
    assert desk.ended(process)[0] == 7


def test_progress_on_a_terminal(desk: Desk, terminal: tuple[int, int]) -> None:
    """People who wait are told who holds it; through a pipe nothing is said."""
    ours, theirs = terminal
    with desk.hold.lock("job"):
        quiet = desk.start("run", "job", "--", "true")
        process = desk.start("run", "job", "--", "true", stderr=theirs)
        said = os.read(ours, 200).decode()
    assert said.startswith("leasehold: waiting: job is held by ") and f":{os.getpid()}" in said
    assert desk.ended(process)[0] == 0
    assert desk.ended(quiet) == (0, "", "")
