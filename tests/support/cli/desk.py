"""A folder with a store of its own, commands that run on it as users run them, and a look at what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import leasehold
from leasehold.cli.process import descendants

SOURCE = Path(leasehold.__file__).parents[1]
COMMAND = [sys.executable, "-m", "leasehold"]
SOON = 100.0  # seconds that anything may take on a busy machine; a test has 180
T = TypeVar("T")

# Runs the commands that it is given, each in a process of its own.
EACH = """
import json, os, sys
import leasehold.cli.commands, leasehold.cli.cron, leasehold.cli.elect, leasehold.cli.metrics
from leasehold.cli import main

codes = []
for number, (words, environment) in enumerate(json.loads(sys.argv[1])):
    child = os.fork()
    if child == 0:
        for name, value in environment.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
        for stream, descriptor in {"out": 1, "err": 2}.items():
            os.dup2(os.open(f"{number}.{stream}", os.O_CREAT | os.O_WRONLY), descriptor)
        sys.argv = ["leasehold", *words]
        main()
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


class Desk:
    """Where commands are run. Everything that was started is gone when it is closed."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.url = url or f"sqlite:///{folder}/leases.db"
        self.hold = leasehold.connect(self.url)
        self._started: list[subprocess.Popen[str]] = []

    def shell(self, script: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a script, which has our Python as ``$0`` and the arguments."""
        process = self._start(["sh", "-c", script, sys.executable, *arguments], **more)
        out, err = process.communicate(timeout=SOON)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def program(self, text: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a program of Python with this text, in the folder."""
        return self._start([sys.executable, "-c", text, *arguments])

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        """Start ``leasehold`` with these arguments, in the folder."""
        return self._start([*COMMAND, *arguments], **more)

    def _start(self, command: list[str], **more: Any) -> subprocess.Popen[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
        env = {**kept, "LEASEHOLD_URL": self.url, "PYTHONPATH": str(SOURCE), **more.pop("env", {})}
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=env, cwd=self.folder, **{**pipes, **more})
        self._started.append(process)
        return process

    def run(self, *arguments: str, stdin: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
        """The same, to its end."""
        process = self.start(*arguments, **{"stdin": subprocess.PIPE, **more})
        out, err = process.communicate(stdin, timeout=SOON)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def each(
        self, commands: Sequence[tuple[Sequence[str], Mapping[str, str | None]]]
    ) -> list[subprocess.CompletedProcess[str]]:
        """Run several commands, one after the other, to their ends; each has additions to its environment, where None
        stands for a variable that it lacks. They are forked from a process that has loaded everything, which takes a
        tenth of the time that they would take to start."""
        done = self._start([sys.executable, "-c", EACH, json.dumps(commands)])
        out, err = done.communicate(timeout=SOON)
        assert done.returncode == 0, err
        return [
            subprocess.CompletedProcess(
                words, code, self.path(f"{number}.out").read_text(), self.path(f"{number}.err").read_text()
            )
            for number, ((words, _), code) in enumerate(zip(commands, json.loads(out), strict=True))
        ]

    def holding(self, name: str, *options: str, script: str = "touch up; exec sleep 60") -> subprocess.Popen[str]:
        """One that holds: its command is running when this returns. The script makes the file ``up``."""
        process = self.start("run", name, *options, "--", "sh", "-c", script)
        self.until(self.path("up").exists, process)
        return process

    def path(self, name: str) -> Path:
        """A file in the folder."""
        return self.folder / name

    def until(self, condition: Callable[[], T], process: subprocess.Popen[str] | None = None) -> T:
        """Wait until it is so; what ``process`` said, if it ended before."""
        give_up = time.monotonic() + SOON
        while not (found := condition()):
            if process is not None and process.poll() is not None and not condition():
                raise AssertionError(f"it ended with {process.returncode}: {process.communicate()}")
            assert time.monotonic() < give_up, "it never came to that"
            time.sleep(0.01)
        return found

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        """Its exit code, and what it wrote."""
        out, err = process.communicate(timeout=SOON)
        return process.returncode, out, err

    def close(self) -> None:
        """End whatever a failed test left."""
        for process in self._started:
            if process.poll() is None:
                for pid in [*descendants(process.pid), process.pid]:
                    kill(pid)
            process.communicate()
        self.hold.close()


def kill(pid: int) -> None:
    """End it, if it is there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def alive(pid: int) -> bool:
    """Is there such a process, and not as a zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pids(path: Path) -> Sequence[int]:
    """The numbers in a file, once it is there."""
    return [int(word) for word in path.read_text().split()]
