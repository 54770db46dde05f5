"""The demo: a frozen holder, its stale write, and the guard that refuses it.

Two acts with the same workers and the same story; only in the second they have a guard. The director sends them
words and signals and waits for each answer, so the order of events is never a matter of luck. What is told at the
end is what the database says.
"""

from __future__ import annotations

import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from leasehold.cli.demo_actor import Actor, DemoFailed, workers
from leasehold.cli.exit_codes import CONFIG
from leasehold.errors import Unsupported
from leasehold.guards.sql import FenceGuard
from leasehold.stores.sqlite.machine import boot_id

INTERRUPTED = 128 + signal.SIGINT


class Screen(Protocol):
    """Where the events of the story go."""

    def show(self, event: dict[str, Any]) -> None: ...


class Act:
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

    def _freeze_the_holder(self, a: Actor, b: Actor) -> int:
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

    def _take_over(self, b: Actor, older: int) -> int:
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

    def _wake_the_stale_owner(self, a: Actor, older: int, newer: int) -> None:
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
                Act(number, guarded, Path(folder, f"act-{number}"), screen).play()
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
