"""A disk that is slow to confirm: strace delays each fdatasync of a server. Nothing is mounted or preloaded."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers.server import Server
from tests.support.waiting import PATIENCE, until


@contextmanager
def stalled_disk(server: Server, seconds: float) -> Iterator[None]:
    """Each sync of a file takes so long, until the end of the block."""
    pid = server.pid
    traced = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "strace", "-f", "-qq", "-p", str(pid), "-e", "trace=fdatasync",
         "-e", f"inject=fdatasync:delay_enter={round(seconds * 1e6)}", "-o", str(server.folder / "strace.log")]
    )  # fmt: skip
    try:
        until(lambda: _traced(pid), "strace is attached to all threads")
        yield
    finally:
        traced.send_signal(signal.SIGINT)
        traced.wait(PATIENCE)


def _traced(pid: int) -> bool:
    """Strace attaches to one thread after the other."""
    return all(_tracer(task) != 0 for task in Path(f"/proc/{pid}/task").iterdir())


def _tracer(task: Path) -> int:
    try:
        lines = (task / "status").read_text().splitlines()
    except FileNotFoundError:  # the thread has ended
        return 1
    return int(next(line for line in lines if line.startswith("TracerPid")).split()[1])
