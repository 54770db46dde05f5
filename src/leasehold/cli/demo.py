"""The demo: a frozen holder, its stale write, and the guard that refuses it.

Two acts with the same workers and the same story; only in the second they have a guard. The director sends them
words and signals and waits for each answer, so the order of events is never a matter of luck. What is told at the
end is what the database says.
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
from leasehold.cli.exit_codes import CONFIG
from leasehold.errors import Unsupported
from leasehold.guards.sql import FenceGuard
from leasehold.stores.sqlite.file import boot_id

# ---------------------------------------------------------------- demo screen
#
# How the demo is told: as a timeline for people, or as JSON lines for programs.


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

WIDTH = 48  # of the words in a line: with a fence beside them it fits into 100 columns
COLOURS = {"A": "cyan", "B": "magenta"}


class JsonLines:
    """One event in a line, and nothing else."""

    def show(self, event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)


class Timeline:
    """Time, who, what happened and, at the right, the fence."""

    def __init__(self, plain: bool = False) -> None:
        self._plain = plain or _no_colours()
        self._older = ""

    def show(self, event: dict[str, Any]) -> None:
        """Tell one event, as it happens."""
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
        what, colour = _told(event)
        who = event["who"]
        at = self._paint(f"{event['at']:6.2f} s", dim=True)
        words = self._paint(what, fg=colour, bold=True) if colour else what
        gap = " " * (WIDTH - len(what))
        name = self._paint(who, fg=COLOURS[who], bold=True) if who in COLOURS else " "
        self._print(f"{at}  {name}  {words}{gap}{self._fence(event)}".rstrip())

    def _fence(self, event: dict[str, Any]) -> str:
        """The digits in which it differs from the one before stand out."""
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


def _told(event: dict[str, Any]) -> tuple[str, str | None]:
    """An event in plain words, and its colour when it matters."""
    words: dict[str, tuple[str, str | None]] = {
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
    return words[event["event"]]


def _how_bad(event: dict[str, Any]) -> str:
    return "no harm done" if event.get("guard") else "too late"


def _no_colours() -> bool:
    """https://no-color.org, and whoever reads us through a pipe."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()


# ---------------------------------------------------------------- demo actor
#
# A worker process as the director of the demo sees it: told what to do, listened to, frozen, woken, ended.


FAILED, NO_STORE = 1, 69
# The worker must find the same modules as we did, wherever those came from.
START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from leasehold.cli.demo_worker import main; "


class DemoFailed(Exception):
    """Something did not go as the demo tells it. ``code`` is what to exit with."""

    def __init__(self, why: str, code: int = FAILED) -> None:
        super().__init__(why)
        self.code = code


class DemoProcess:
    """One worker process."""

    def __init__(self, name: str, folder: Path, guarded: bool) -> None:
        self.name = name
        self._errors = folder / f"{name}.err"
        self._heard = b""
        program = START + f"main({name!r}, {str(folder)!r}, {guarded!r})"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")},
                start_new_session=True,  # Ctrl-C is for the director, who ends everybody in order
            )
        self._words = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)

    def tell(self, word: str) -> None:
        with suppress(BrokenPipeError):  # it has ended: hear() says why
            self._words.write(f"{word}\n".encode())

    def hear(self, *wanted: str) -> dict[str, Any]:
        """What it tells next, which must be one of these."""
        told: dict[str, Any] = json.loads(self._line())
        if told["event"] == "error":
            code = NO_STORE if told["kind"] == "StoreUnavailable" else FAILED
            raise DemoFailed(f"worker {self.name} failed with {told['kind']}: {told['text']}", code)
        if told["event"] not in wanted:
            raise DemoFailed(f"worker {self.name} told {told['event']!r} where {' or '.join(wanted)} was due")
        return told

    def _line(self) -> bytes:
        give_up = time.monotonic() + PATIENCE
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._answers], [], [], max(give_up - time.monotonic(), 0))
            data = os.read(self._answers.fileno(), 4096) if ready else b""
            if not data:
                ended = "ended" if ready else f"said nothing for {PATIENCE:g} s"
                raise DemoFailed(f"worker {self.name} {ended}. {self._last_words()}".rstrip())
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _last_words(self) -> str:
        return self._errors.read_text(errors="replace").strip()[-1000:]

    def freeze(self) -> None:
        """Stop it, and return when the kernel says that it stands still."""
        self._process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise DemoFailed(f"worker {self.name} ended and could not be frozen. {self._last_words()}")

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Let it end by itself."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"worker {self.name} did not end") from None
        if code != 0:
            raise DemoFailed(f"worker {self.name} ended with {code}. {self._last_words()}".rstrip())

    def end(self) -> None:
        """End it now if it has not ended, frozen or not, and leave no zombie."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._words.close()
        self._answers.close()


@contextmanager
def workers(folder: Path, guarded: bool) -> Iterator[tuple[DemoProcess, DemoProcess]]:
    """A and B, ready; both have ended when this is left, whatever happened."""
    actors: list[DemoProcess] = []
    try:
        actors.extend(DemoProcess(name, folder, guarded) for name in "AB")
        for actor in actors:
            actor.hear("ready")
        yield actors[0], actors[1]
    finally:
        for actor in actors:
            actor.end()


# ---------------------------------------------------------------- demo


INTERRUPTED = 128 + signal.SIGINT


class Screen(Protocol):
    """Where the events of the story go."""

    def show(self, event: dict[str, Any]) -> None: ...


class DemoRun:
    """One act: its stage, and the events as they happen."""

    def __init__(self, number: int, guarded: bool, folder: Path, screen: Screen) -> None:
        self.guarded = guarded
        self.folder = folder
        self._number = number
        self._screen = screen
        self._began = time.monotonic()

    def tell(self, who: str, event: str, **details: Any) -> None:
        at = round(time.monotonic() - self._began, 3)
        self._screen.show({"act": self._number, "at": at, "who": who, "event": event, **details})

    def play(self) -> None:
        self._set_stage()
        with workers(self.folder, self.guarded) as (a, b):
            self._began = time.monotonic()
            self.tell("director", "act", guard=self.guarded)
            older = self._freeze_the_holder(a, b)
            newer = self._take_over(b, older)
            self._wake_the_stale_owner(a, older, newer)
            for actor in (a, b):
                actor.finish()
        self._look_at_the_report()

    def _set_stage(self) -> None:
        self.folder.mkdir()
        with closing(sqlite3.connect(self.folder / "reports.db")) as connection, connection:
            connection.execute("CREATE TABLE reports (report_id INTEGER PRIMARY KEY, written_by TEXT, fence BIGINT)")
            connection.execute("INSERT INTO reports VALUES (42, 'nobody', 0)")
            FenceGuard().create(connection)

    def _freeze_the_holder(self, a: DemoProcess, b: DemoProcess) -> int:
        a.tell("acquire")
        a.hear("asks")
        fence: int = a.hear("acquired")["fence"]
        self.tell("A", "acquired", fence=fence)
        b.tell("acquire")
        b.hear("asks")
        self.tell("B", "queued")
        a.freeze()
        self.tell("A", "frozen")
        return fence

    def _take_over(self, b: DemoProcess, older: int) -> int:
        granted = b.hear("acquired")
        newer: int = granted["fence"]
        self.tell("store", "expired", fence=older)
        self.tell("B", "acquired", fence=newer, before=older, waited=granted["waited"])
        if newer <= older:
            raise DemoFailed(f"B's fence {newer} is not above A's {older}")
        b.tell("write")
        b.hear("wrote")
        b.hear("released")
        self.tell("B", "wrote", fence=newer)
        return newer

    def _wake_the_stale_owner(self, a: DemoProcess, older: int, newer: int) -> None:
        a.wake()
        self.tell("A", "woke")
        a.tell("write")
        outcome = a.hear("wrote", "refused")
        if outcome["event"] == "refused":
            self.tell("A", "stale_write_refused", fence=outcome["fence"], seen=outcome["seen"])
        else:
            self.tell("A", "stale_write_accepted", fence=older, newer=newer)
        lost = a.hear("lost", "released")
        if lost["event"] != "lost":
            raise DemoFailed("A was frozen past the end of its lease and was not told that it is lost")
        self.tell("A", "lease_lost", reason=lost["reason"], guard=self.guarded)

    def _look_at_the_report(self) -> None:
        with closing(sqlite3.connect(self.folder / "reports.db")) as connection:
            author, fence = connection.execute("SELECT written_by, fence FROM reports").fetchone()
        self.tell("reports", "report", written_by=author, fence=fence)
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
                DemoRun(number, guarded, Path(folder, f"act-{number}"), screen).play()
    except Unsupported as error:
        screen.show({"event": "failed", "why": str(error)})
        return CONFIG
    except DemoFailed as error:
        screen.show({"event": "failed", "why": str(error)})
        return error.code
    except KeyboardInterrupt:
        screen.show({"event": "failed", "why": "interrupted; the workers have ended and nothing is left behind"})
        return INTERRUPTED
    screen.show({"event": "summary", "ok": True, "accepted_without_guard": 1, "accepted_with_guard": 0})
    return 0


@contextmanager
def _tidy_when_terminated() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: by way of every ``finally``."""
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
    raise SystemExit(128 + number)
