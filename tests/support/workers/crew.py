"""The test's side: starts workers, tells them what to do, freezes and kills them, and reaps every one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, Protocol

from leasehold._core.policy import beat_every_ms
from leasehold._core.types import State
from leasehold.stores import state_text
from tests.support.waiting import PATIENCE, until
from tests.support.workers import journal

ROOT = Path(__file__).parents[3]
SLACK = 10.0  # seconds that a busy machine may add to a bound of the protocol


def report(text: str) -> None:
    """Shown with -s, and with every failure."""
    print(text)  # noqa: T201


def beat(ttl: float) -> float:
    """Seconds between two beats of a waiter."""
    return beat_every_ms(round(ttl * 1000)) / 1000


class Running(Protocol):
    """What is needed of a ``Popen``."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None:
        """None while it runs."""

    def kill(self) -> None:
        """SIGKILL."""

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended."""

    def send_signal(self, signal: int) -> None:
        """Any."""


class Worker:
    """One process."""

    def __init__(self, name: str, process: Running, errors: Path) -> None:
        self.name = name
        self.process = process
        self._errors = errors
        self.pid = self.process.pid
        self._answers: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    # ------------------------------------------------------------ talking

    def tell(self, do: str, **more: Any) -> None:
        """A command; its answer is heard later."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, within: float = PATIENCE) -> dict[str, Any]:
        """The next answer."""
        try:
            answer = self._answers.get(timeout=within)
        except Empty:
            raise AssertionError(f"{self.name} says nothing for {within} s\n{self.errors()}") from None
        assert answer is not None, f"{self.name} has ended\n{self.errors()}"
        return answer

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """A command and its answer."""
        self.tell(do, **more)
        return self.hear()

    def silent(self) -> bool:
        """Has it nothing to say, as far as one can tell now?"""
        return self._answers.empty()

    def errors(self) -> str:
        """What it wrote to stderr."""
        return self._errors.read_text(errors="replace")

    # ------------------------------------------------------------ harming

    def stop(self) -> None:
        """SIGSTOP, and wait until it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: status(self.pid) == "T", f"{self.name} stands still")

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def interrupt(self) -> int:
        """SIGINT, and its exit code. Python does not notice one that arrives just before a system call until that is
        over, which may be never: then another."""
        for _ in range(5):
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(PATIENCE / 5)
        return self.end()

    def end(self) -> int:
        """Its exit code, when it has ended by itself."""
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """Gone, with its children, whatever it was doing."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Crew:
    """The workers of one test, one lease file and one journal. What is stored elsewhere has a crew of its own."""

    module = "tests.support.workers.worker"  # what they run

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.path = str(folder / "leases.db")
        self.url = url or f"sqlite:///{self.path}"
        self.data = self.prepare()
        self.workers: list[Worker] = []

    def prepare(self) -> str:
        """What the workers protect, and how they are told of it."""
        data = str(self.folder / "journal.db")
        journal.create(data)
        return data

    def spawn(self, flavour: str = "sync", url: str | None = None) -> Worker:
        """Another worker; it is ready when it answers."""
        name = f"w{len(self.workers)}"
        errors = self.folder / f"{name}.stderr"
        worker = Worker(name, self.start([flavour, url or self.url, self.data, name], errors), errors)
        self.workers.append(worker)
        return worker

    def ready(self, *flavours: str) -> list[Worker]:
        """Workers that have started: what they are asked then takes none of a lease's time for that."""
        workers = [self.spawn(flavour) for flavour in flavours]
        for worker in workers:
            worker.ask("chdir", folder=".")
        return workers

    def start(self, arguments: list[str], errors: Path) -> Running:
        """A new process."""
        with errors.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", self.module, *arguments],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # so that its children can be ended with it
            )

    def peek(self, resource: str) -> State:
        """The stored state as it lies there: a look that advances nothing."""
        connection = sqlite3.connect(self.path, timeout=PATIENCE)
        try:
            row = connection.execute("SELECT state FROM resources WHERE name = ?", (resource,)).fetchone()
        except sqlite3.OperationalError:  # nobody has been there yet
            row = None
        finally:
            connection.close()
        return state_text.decode(row[0]) if row else State()

    def waiting(self, resource: str, count: int) -> None:
        """Until so many stand in the queue."""
        until(lambda: len(self.peek(resource).queue) == count, f"{count} wait for {resource}")

    def freeze(self, worker: Worker) -> None:
        """Stop it, but not in the middle of a transaction, where it would stop everybody: that is another test."""
        for _ in range(100):
            worker.stop()
            connection = sqlite3.connect(self.path, timeout=0.05, isolation_level=None)
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                return
            except sqlite3.OperationalError:
                worker.go_on()
            finally:
                connection.close()
            time.sleep(0.003)
        raise AssertionError(f"{worker.name} is always inside a transaction")

    def bad_moment(self, victim: Worker) -> bool:
        """Can it do most harm when it wakes up now? Every moment is as good as any."""
        return True

    def sound(self) -> None:
        """The lease file is not damaged."""
        connection = sqlite3.connect(self.path, timeout=PATIENCE)
        try:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        finally:
            connection.close()

    def close(self) -> None:
        """Reap everybody."""
        for worker in self.workers:
            worker.close()


def status(pid: int) -> str:
    """The kernel's letter for what it does; T: it stands still, Z: it has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
