"""What the tests of the embedded store share: short ops, other processes, a file to lock."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import leasehold.errors
from leasehold._core import ops
from leasehold.stores.sqlite import SQLiteStore

SOURCES = str(Path(leasehold.errors.__file__).parents[1])  # what this process runs
ROOM = "report:42"
TTL = 30_000

PREAMBLE = """
import os, sys, time
import leasehold.errors
from leasehold._core import ops
from leasehold.errors import LeaseholdError
from leasehold.stores.sqlite import SQLiteStore
path = sys.argv[1]
store = SQLiteStore(path)
def claim(owner, **more):
    return store.execute(ops.Claim("report:42", owner, **{"ttl_ms": 30_000, **more}))
"""


def bind(made: socket.socket, path: Path) -> None:
    """However deep the path lies: the address of a socket has 108 bytes at most."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def claim(store: SQLiteStore, owner: str, **more: Any) -> ops.Reply:
    """Ask for the room."""
    return store.execute(ops.Claim(ROOM, owner, **{"ttl_ms": TTL, **more}))


def take(store: SQLiteStore, owner: str, **more: Any) -> ops.Granted:
    """A claim that must be granted."""
    reply = claim(store, owner, **more)
    assert isinstance(reply, ops.Granted), reply
    return reply


def release(store: SQLiteStore, owner: str, fence: int) -> ops.Reply:
    """Give the room back."""
    return store.execute(ops.Release(ROOM, owner, fence))


def look(store: SQLiteStore) -> ops.View:
    """The room as the store sees it."""
    reply = store.execute(ops.Inspect(ROOM))
    assert isinstance(reply, ops.View)
    return reply


def start(code: str, path: object, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """A Python process that has ``store`` and ``claim`` at hand; it ends when the test does its part."""
    command = [sys.executable, "-c", PREAMBLE + code, str(path), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    return subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
    )


def run(code: str, path: object, *arguments: object, **options: Any) -> str:
    """What such a process prints."""
    process = start(code, path, *arguments, **options)
    out, _ = process.communicate(timeout=50)
    assert process.returncode == 0, out
    return out.strip()


def next_line(process: subprocess.Popen[str]) -> str:
    """What it prints next."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    """Let it go on from its ``input()``."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
