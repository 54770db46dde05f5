"""One worker of the demo, in a process of its own. A and B run this same program.

It reads commands from its standard input, one in a line, and writes what happened to its standard output, in JSON. The
commands only say when, so that the order of events does not depend on how fast the machine is.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import leasehold
from leasehold.guards.sql import FenceGuard

TTL = 1.0  # seconds
PATIENCE = 10.0  # seconds that any step may take before the demo gives up
PR_SET_PDEATHSIG = 1


def work(name: str, folder: Path, guarded: bool) -> None:
    """Export report 42 under a lease: what a program of yours would do, with pauses where the director wants them."""
    with leasehold.connect(f"sqlite:///{quote(str(folder / 'leases.db'))}") as hold:
        send("ready")
        expect("acquire")
        send("claiming")
        claimed = time.monotonic()
        try:
            with hold.lock("report-export", 42, ttl=TTL, wait=PATIENCE) as lease:
                send("acquired", fence=lease.fence, waited=round(time.monotonic() - claimed, 3))
                expect("write")  # A is frozen here, in the middle of its work
                write(name, folder, lease, guarded)
        except leasehold.LeaseLost as loss:
            send("lost", reason=loss.reason)
        else:
            send("released")


def write(name: str, folder: Path, lease: leasehold.Lease, guarded: bool) -> None:
    """The side effect that the lease is meant to protect."""
    try:
        with closing(sqlite3.connect(folder / "reports.db")) as connection, connection:
            if guarded:
                FenceGuard().check(connection, lease)
            connection.execute("UPDATE reports SET written_by = ?, fence = ?", (name, lease.fence))
        send("wrote")
    except leasehold.StaleOwner as error:
        send("refused", fence=error.fence, seen=error.seen)


def send(event: str, **details: Any) -> None:
    print(json.dumps({"event": event, **details}), flush=True)


def expect(command: str) -> None:
    if sys.stdin.readline().strip() != command:
        raise SystemExit("the director of the demo has ended")


def die_with_parent() -> None:
    """A worker that is frozen when the director is killed would stay frozen for ever."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(name: str, folder: str, guarded: bool) -> None:
    die_with_parent()
    try:
        work(name, Path(folder), guarded)
    except leasehold.LeaseholdError as error:
        send("error", kind=type(error).__name__, text=str(error))
        raise
