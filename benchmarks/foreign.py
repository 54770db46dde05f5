"""The contenders that are not written in Python: bsm/redislock and redsync (Go), and Redisson (Java).

Each is a small program of ours, in ``go`` and ``java``, that uses the library as people do. They take part in a full
run when the tools to build them are installed and can download the libraries; else the report says why not.

A program is started as ``program LOCK ADDRESS``. For each line ``PARTIES SECONDS`` it lets so many threads take turns
on one lock for so long, and answers with one line of JSON. With one party nobody waits, and its rate is of pairs."""

from __future__ import annotations

import json
import select
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.race import PeerFailed, Result
from benchmarks.report.machine import ROOT
from benchmarks.rounds import Setup
from benchmarks.server import Server

HERE, BUILT = Path(__file__).parent, ROOT / "build" / "foreign"
LONGEST_BUILD, LONGEST_ANSWER = 300, 60  # seconds
CATCH_UP = 0.3  # seconds for what was due while it was stopped


class Program:
    """One lock of one library, in a process of its own that stays warm between rounds. It is stopped while others run:
    a virtual machine is never idle, and what it does then would be part of their time."""

    def __init__(self, name: str, setup: Setup, server: Server, process: subprocess.Popen[str]) -> None:
        self._name, self._effort, self._server, self._process = name, setup.effort, server, process
        self.failed = ""  # why it takes part no longer

    def pairs(self, _count: int) -> float:
        """A run without contention; returns its rate."""
        found = self.play(1, self._effort.seconds)
        return float(found["turns"] / found["seconds"])

    def race(self, _folder: Path, parties: int) -> Result:
        """A race of threads."""
        self._server.empty()
        before = self._server.usage()
        found = self.play(parties, self._effort.race_seconds)
        spent = self._server.usage().since(before)
        if found["handoffs"] < 2:
            raise self._failure(f"{found['handoffs']} handoffs with {parties} parties: one is stuck")
        percent = statistics.quantiles(found["took_us"], n=100)
        return Result(
            found["handoffs"] / found["seconds"],
            found["most"] / found["fewest"] if found["fewest"] else float("inf"),
            percent[49],
            percent[98],
            spent.commands / found["total"],
            spent.requests / found["total"],
            found["took_us"],
        )

    def play(self, parties: int, seconds: float) -> dict[str, Any]:
        """What the program answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        time.sleep(CATCH_UP)
        self._process.stdin.write(f"{parties} {seconds}\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], seconds + LONGEST_ANSWER)
        line = self._process.stdout.readline() if ready else ""
        self._process.send_signal(signal.SIGSTOP)
        if not line:
            raise self._failure(f"it failed or hung with {parties} parties")
        found: dict[str, Any] = json.loads(line)
        return found

    def _failure(self, why: str) -> PeerFailed:
        self.failed = f"{self._name}: left out, because {why}."
        return PeerFailed(self.failed)


@contextmanager
def programs(setup: Setup, server: Server) -> Iterator[tuple[dict[str, Program], list[str]]]:
    """Every program that can be built, by the name of its lock, and why others are missing."""
    found: dict[str, Program] = {}
    notes = ["Locks that are not written in Python are left out of a quick run."] if setup.effort.quick else []
    with ExitStack() as stack:
        for language in () if setup.effort.quick else LANGUAGES:
            if error := language.build():
                notes.append(f"{', '.join(language.locks)}: left out, because {error}.")
                continue
            for name, lock in language.locks.items():
                command = [*language.command, lock, f"127.0.0.1:{server.port}"]
                found[name] = Program(name, setup, server, stack.enter_context(_started(command)))
                found[name].play(1, language.warm_up)
        yield found, notes


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """It ends when its input does."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, bufsize=1) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.send_signal(signal.SIGCONT)
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


# ---------------------------------------------------------------- building


class Language(NamedTuple):
    """The locks of one language: their names and how the program calls them, how it is built and started."""

    locks: dict[str, str]
    build: Callable[[], str]  # returns why it failed, or nothing
    command: list[str]
    warm_up: float  # seconds until a virtual machine has compiled what is used most


def build_go() -> str:
    """A program that contains its libraries."""
    return run_tool(["go", "build", "-o", str(BUILT / "go-peers"), "."], HERE / "go")


def build_java() -> str:
    """Redisson and what it needs, then our class."""
    libraries = BUILT / "java" / "lib"
    fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
    compile_ = ["javac", "-cp", f"{libraries}/*", "-d", str(BUILT / "java"), "Peers.java"]
    fetched = libraries.exists() and libraries.stat().st_mtime > (HERE / "java" / "pom.xml").stat().st_mtime
    return (not fetched and run_tool(fetch, HERE / "java")) or run_tool(compile_, HERE / "java")


def run_tool(command: list[str], folder: Path) -> str:
    """Runs it in this folder; returns why that failed, or nothing."""
    if shutil.which(command[0]) is None:
        return f"`{command[0]}` is not installed"
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=LONGEST_BUILD)
    except subprocess.TimeoutExpired:
        return f"`{command[0]}` took more than {LONGEST_BUILD} s"
    lines = (ended.stderr + ended.stdout).strip().splitlines() or ["no reason given"]
    return f"`{' '.join(command[:2])}` failed: {lines[-1]}" if ended.returncode else ""


LANGUAGES = [
    Language({"bsm/redislock, Go": "redislock", "redsync, Go": "redsync"}, build_go, [str(BUILT / "go-peers")], 0.1),
    Language(
        {"Redisson fenced lock, Java": "fenced", "Redisson fair lock, Java": "fair"},
        build_java,
        ["java", "-cp", f"{BUILT}/java:{BUILT}/java/lib/*", "Peers"],
        3.0,
    ),
]
