"""The demo: a frozen holder, its stale write, and the guard that refuses it.

Two acts with the same workers and the same events; only the second has a guard. The director, this process, sends them
commands and signals and waits for each reply, so that the order of events does not depend on timing. The result that is
shown at the end is read from the database.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol, cast

import click

from leasehold.cli.demo_worker import PATIENCE, TTL
from leasehold.cli.output import ExitCode
from leasehold.cli.terminal import coloured
from leasehold.errors import Unsupported
from leasehold.guards.sql import FenceGuard
from leasehold.stores.sqlite.file import boot_id

# ---------------------------------------------------------------- screens
#
# How events are shown: as a timeline for people, or as JSON lines for programs.


PROLOGUE = f"""
Two workers, A and B, export the same report. Only the one that holds the lease should write it.

  lease        the right to do something, with an end: {TTL:g} s here, renewed while its holder is awake
  stale owner  believes in a lease that has ended: it was frozen (a paused VM, a long GC, swapping)
  fence        a number that comes with each lease; a later lease has a higher one
  guard        stands at the database and refuses a fence lower than one that it has seen"""

ACTS = {
    False: "Act 1  No guard",
    True: "Act 2  The same again, with one more line before the write: guard.check(tx, lease)",
}

EPILOGUE = """
Why fences jump: a fence is the store's clock in microseconds, or the last fence + 1 if that is
more. So fences grow even when the store has lost its memory. Only their order counts.
"""

SUMMARY = "Stale writes accepted: 1 of 1 without a guard, 0 of 1 with one. A lease asks, a guard insists."

WIDTH = 48  # of the text in a line: with a fence beside it, the line fits into 100 columns
COLOURS = {"A": "cyan", "B": "magenta"}


class JsonLines:
    """Prints one event in a line, and nothing else."""

    def show(self, event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)


class Timeline:
    """Prints the time, the worker, what happened and, at the right, the fence."""

    def __init__(self, plain: bool = False) -> None:
        self._plain = plain or not coloured()
        self._older = ""

    def show(self, event: dict[str, Any]) -> None:
        """Print one event, as it happens."""
        special: dict[str, Callable[[dict[str, Any]], None]] = {
            "act": self._act,
            "failed": self._failed,
            "summary": self._summary,
        }
        special.get(event["event"], self._line)(event)

    def _act(self, event: dict[str, Any]) -> None:
        if event["act"] == 1:
            self._print(self._paint("Leasehold demo: what is a stale owner, and what stops it?", bold=True))
            self._print(PROLOGUE)
        self._print("\n" + self._paint(ACTS[event["guard"]], bold=True))

    def _line(self, event: dict[str, Any]) -> None:
        what, colour = _description(event)
        who = event["who"]
        at = self._paint(f"{event['at']:6.2f} s", dim=True)
        text = self._paint(what, fg=colour, bold=True) if colour else what
        gap = " " * (WIDTH - len(what))
        name = self._paint(who, fg=COLOURS[who], bold=True) if who in COLOURS else " "
        self._print(f"{at}  {name}  {text}{gap}{self._fence(event)}".rstrip())

    def _fence(self, event: dict[str, Any]) -> str:
        """The fence; the digits in which it differs from the one before are bold."""
        if event["event"] not in ("acquired", "stale_write_accepted", "stale_write_refused"):
            return ""
        digits = f"{event['fence']:_}"
        if "before" not in event:
            self._older = digits
            return "fence " + digits
        same = next((at for at, pair in enumerate(zip(digits, self._older, strict=False)) if len({*pair}) > 1), 0)
        higher = f"+{event['fence'] - event['before']:_}"
        return f"fence {digits[:same]}{self._paint(digits[same:], bold=True)}  {self._paint(higher, bold=True)}"

    def _failed(self, event: dict[str, Any]) -> None:
        self._print(self._paint(f"\nThe demo did not go as it should: {event['why']}", fg="red"), err=True)

    def _summary(self, _event: dict[str, Any]) -> None:
        self._print(EPILOGUE)
        self._print(self._paint(SUMMARY, bold=True))

    def _paint(self, text: str, **style: Any) -> str:
        return text if self._plain else click.style(text, **style)

    def _print(self, text: str, err: bool = False) -> None:
        click.echo(text, err=err, color=not self._plain)


def _description(event: dict[str, Any]) -> tuple[str, str | None]:
    """An event in plain words, and its colour when it has one."""
    descriptions: dict[str, tuple[str, str | None]] = {
        "acquired": ("gets the lease", None),
        "queued": ("wants it too, and waits in the queue", None),
        "frozen": ("is FROZEN in the middle of its work (SIGSTOP)", "yellow"),
        "expired": ("A's lease ends: a frozen holder renews nothing", None),
        "wrote": ("writes the report and gives the lease back", None),
        "woke": ("wakes up (SIGCONT), as if no time had passed", "yellow"),
        "stale_write_accepted": ("stale write ACCEPTED: B's result is gone", "red"),
        "stale_write_refused": ("stale write REFUSED (StaleOwner): B's is safe", "green"),
        "lease_lost": (f"leaves its with block: LeaseLost, {_how_bad(event)}", None),
        "report": (f"report 42 in the database is the work of {event.get('written_by')}", None),
    }
    return descriptions[event["event"]]


def _how_bad(event: dict[str, Any]) -> str:
    return "no harm done" if event.get("guard") else "too late"


# ---------------------------------------------------------------- workers
#
# A worker process as the director sees it: it receives commands and sends replies, and is frozen, woken and ended.


FAILED = 1
# The worker must find the same modules as this process, wherever they came from.
START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from leasehold.cli.demo_worker import main; "


class DemoFailed(Exception):
    """The demo did not go as it should. ``code`` is the exit code."""

    def __init__(self, why: str, code: int = FAILED) -> None:
        super().__init__(why)
        self.code = code


class DemoWorker:
    """One worker process."""

    def __init__(self, name: str, folder: Path, guarded: bool) -> None:
        self.name = name
        self._errors = folder / f"{name}.err"
        self._received = b""
        program = START + f"main({name!r}, {str(folder)!r}, {guarded!r})"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")},
                start_new_session=True,  # Ctrl-C is for the director, which ends the workers in order
            )
        self._commands = cast(IO[bytes], self._process.stdin)
        self._replies = cast(IO[bytes], self._process.stdout)

    def send(self, command: str) -> None:
        with suppress(BrokenPipeError):  # it has ended: receive() finds out why
            self._commands.write(f"{command}\n".encode())

    def receive(self, *expected: str) -> dict[str, Any]:
        """Its next reply, which must be one of these."""
        reply: dict[str, Any] = json.loads(self._line())
        if reply["event"] == "error":
            code = ExitCode.UNAVAILABLE if reply["kind"] == "StoreUnavailable" else FAILED
            raise DemoFailed(f"worker {self.name} failed with {reply['kind']}: {reply['text']}", code)
        if reply["event"] not in expected:
            raise DemoFailed(f"worker {self.name} sent {reply['event']!r} where {' or '.join(expected)} was due")
        return reply

    def _line(self) -> bytes:
        give_up = time.monotonic() + PATIENCE
        while b"\n" not in self._received:
            ready, _, _ = select.select([self._replies], [], [], max(give_up - time.monotonic(), 0))
            data = os.read(self._replies.fileno(), 4096) if ready else b""
            if not data:
                ended = "ended" if ready else f"sent nothing for {PATIENCE:g} s"
                raise DemoFailed(f"worker {self.name} {ended}. {self._last_errors()}".rstrip())
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _last_errors(self) -> str:
        return self._errors.read_text(errors="replace").strip()[-1000:]

    def freeze(self) -> None:
        """Stop it, and return when the kernel reports that it has stopped."""
        self._process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise DemoFailed(f"worker {self.name} ended and could not be frozen. {self._last_errors()}")

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Let it end by itself."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"worker {self.name} did not end") from None
        if code != 0:
            raise DemoFailed(f"worker {self.name} ended with {code}. {self._last_errors()}".rstrip())

    def end(self) -> None:
        """End it now if it has not ended, frozen or not, and leave no zombie."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._commands.close()
        self._replies.close()


@contextmanager
def workers(folder: Path, guarded: bool) -> Iterator[tuple[DemoWorker, DemoWorker]]:
    """A and B, ready. Both have ended when the block is left, whatever happened."""
    started: list[DemoWorker] = []
    try:
        started.extend(DemoWorker(name, folder, guarded) for name in "AB")
        for worker in started:
            worker.receive("ready")
        yield started[0], started[1]
    finally:
        for worker in started:
            worker.end()


# ---------------------------------------------------------------- the demo


class Screen(Protocol):
    """Where the events are shown."""

    def show(self, event: dict[str, Any]) -> None: ...


class DemoAct:
    """One act: its folder and database, and its events as they happen."""

    def __init__(self, number: int, guarded: bool, folder: Path, screen: Screen) -> None:
        self.guarded = guarded
        self.folder = folder
        self._number = number
        self._screen = screen
        self._began = time.monotonic()

    def _show(self, who: str, event: str, **details: Any) -> None:
        at = round(time.monotonic() - self._began, 3)
        self._screen.show({"act": self._number, "at": at, "who": who, "event": event, **details})

    def play(self) -> None:
        self._create_database()
        with workers(self.folder, self.guarded) as (a, b):
            self._began = time.monotonic()
            self._show("director", "act", guard=self.guarded)
            older = self._freeze_the_holder(a, b)
            newer = self._take_over(b, older)
            self._wake_the_stale_owner(a, older, newer)
            for worker in (a, b):
                worker.finish()
        self._check_report()

    def _create_database(self) -> None:
        self.folder.mkdir()
        with closing(sqlite3.connect(self.folder / "reports.db")) as connection, connection:
            connection.execute("CREATE TABLE reports (report_id INTEGER PRIMARY KEY, written_by TEXT, fence BIGINT)")
            connection.execute("INSERT INTO reports VALUES (42, 'nobody', 0)")
            FenceGuard().create(connection)

    def _freeze_the_holder(self, a: DemoWorker, b: DemoWorker) -> int:
        a.send("acquire")
        a.receive("claiming")
        fence: int = a.receive("acquired")["fence"]
        self._show("A", "acquired", fence=fence)
        b.send("acquire")
        b.receive("claiming")
        self._show("B", "queued")
        a.freeze()
        self._show("A", "frozen")
        return fence

    def _take_over(self, b: DemoWorker, older: int) -> int:
        granted = b.receive("acquired")
        newer: int = granted["fence"]
        self._show("store", "expired", fence=older)
        self._show("B", "acquired", fence=newer, before=older, waited=granted["waited"])
        if newer <= older:
            raise DemoFailed(f"B's fence {newer} is not above A's {older}")
        b.send("write")
        b.receive("wrote")
        b.receive("released")
        self._show("B", "wrote", fence=newer)
        return newer

    def _wake_the_stale_owner(self, a: DemoWorker, older: int, newer: int) -> None:
        a.wake()
        self._show("A", "woke")
        a.send("write")
        outcome = a.receive("wrote", "refused")
        if outcome["event"] == "refused":
            self._show("A", "stale_write_refused", fence=outcome["fence"], seen=outcome["seen"])
        else:
            self._show("A", "stale_write_accepted", fence=older, newer=newer)
        lost = a.receive("lost", "released")
        if lost["event"] != "lost":
            raise DemoFailed("A was frozen past the end of its lease and did not notice that it was lost")
        self._show("A", "lease_lost", reason=lost["reason"], guard=self.guarded)

    def _check_report(self) -> None:
        with closing(sqlite3.connect(self.folder / "reports.db")) as connection:
            author, fence = connection.execute("SELECT written_by, fence FROM reports").fetchone()
        self._show("reports", "report", written_by=author, fence=fence)
        if self.guarded and author != "B":
            raise DemoFailed("the guard failed: B's report was overwritten by a stale owner")
        if not self.guarded and author != "A":
            raise DemoFailed("the stale write was not seen, although nothing guards against it")


def run(screen: Screen) -> int:
    """Play both acts; the exit code."""
    try:
        boot_id("the demo", "a machine or a container with Linux")
        with _tidy_when_terminated(), tempfile.TemporaryDirectory(prefix="leasehold-demo-") as folder:
            for number, guarded in ((1, False), (2, True)):
                DemoAct(number, guarded, Path(folder, f"act-{number}"), screen).play()
    except Unsupported as error:
        screen.show({"event": "failed", "why": str(error)})
        return ExitCode.CONFIG
    except DemoFailed as error:
        screen.show({"event": "failed", "why": str(error)})
        return error.code
    except KeyboardInterrupt:
        screen.show({"event": "failed", "why": "interrupted; the workers have ended and nothing is left behind"})
        return ExitCode.of_signal(signal.SIGINT)
    screen.show({"event": "summary", "ok": True, "accepted_without_guard": 1, "accepted_with_guard": 0})
    return 0


@contextmanager
def _tidy_when_terminated() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does, so that every ``finally`` runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, _leave) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(ExitCode.of_signal(number))
