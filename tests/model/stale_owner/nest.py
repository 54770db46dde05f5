"""A process that has loaded everything, and forks workers: to start Python eight times takes longer than a storm.

python -m tests.model.stale_owner.nest SOCKET

An order is JSON, with the worker's stdin, stdout and stderr beside it; the answer is its pid. No thread runs here and
nothing is open when it forks. Who is left ends with the nest, and the nest with the test that made it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from tests.model.stale_owner import worker
from tests.model.stale_owner.targets import Description, open_target
from tests.support.waiting import PATIENCE, until
from tests.support.workers.crew import ROOT, status

SIZE = 65_536


class Nest:
    """The test's side."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        self._line.settimeout(PATIENCE)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.model.stale_owner.nest", str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def hatch(self, arguments: list[str], folder: Path, errors: Path) -> Hatched:
        """A new worker."""
        (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
        with errors.open("wb") as output:
            order = json.dumps({"arguments": arguments, "folder": str(folder)}).encode()
            socket.send_fds(self._line, [order], [their_in, their_out, output.fileno()])
        answer = self._line.recv(SIZE)
        os.close(their_in)
        os.close(their_out)
        return Hatched(json.loads(answer), os.fdopen(our_out, "wb"), os.fdopen(our_in, "rb"))

    def close(self) -> None:
        """And everybody in it."""
        self._line.close()
        self._process.wait(PATIENCE)


class Hatched:
    """What a ``Popen`` would be for somebody who is not our own child."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout

    def poll(self) -> int | None:
        """Has it ended? Nobody knows how."""
        try:
            return -1 if status(self.pid) == "Z" else None
        except (FileNotFoundError, ProcessLookupError):
            return -1

    def send_signal(self, signal: int) -> None:
        """Any."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended."""
        until(lambda: self.poll() is not None, f"{self.pid} ends", timeout or PATIENCE)
        return -1


# ---------------------------------------------------------------- in the nest


def serve(line: socket.socket) -> None:
    """Fork for each order, until there are no more."""
    known: set[str] = set()
    alive: set[int] = set()
    while True:
        order, files, *_ = socket.recv_fds(line, SIZE, 3)
        bury(alive)
        if not order:
            break
        wanted = json.loads(order)
        warm_up(Description(*json.loads(wanted["arguments"][2])["target"]), known)
        pid = os.fork()
        if pid == 0:
            line.close()
            live(wanted, files)
        alive.add(pid)
        for file in files:
            os.close(file)
        line.send(json.dumps(pid).encode())
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def warm_up(description: Description, known: set[str]) -> None:
    """Load what its target needs, by a look at a counter that is not there."""
    key = json.dumps([description.kind, description.extra.get("way")])
    if key in known:
        return
    known.add(key)
    with contextlib.suppress(Exception), contextlib.closing(open_target(description)) as target:  # a worker will tell
        target.value("warm-up")


def bury(alive: set[int]) -> None:
    """Those who have ended."""
    for pid in list(alive):
        if os.waitpid(pid, os.WNOHANG)[0]:
            alive.discard(pid)


def live(wanted: dict[str, Any], files: list[int]) -> None:
    """In a child: be a worker, and end."""
    code = 1
    try:
        os.setsid()
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        os.chdir(wanted["folder"])
        random.seed()
        worker.main(wanted["arguments"])
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
