"""The contenders that are written in Go: bsm/redislock and redsync, by a small program of ours in ``go/main.go``.

They take part in a full run when ``go`` is installed and can build the program; it downloads the two libraries. Else
the result has a note that says why they are missing."""

from __future__ import annotations

import functools
import json
import shutil
import statistics
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import race
from benchmarks.report.machine import ROOT
from benchmarks.rounds import Run, Setup
from benchmarks.server import Server

LIBRARIES = {"bsm/redislock, Go": "redislock", "redsync, Go": "redsync"}
SOURCE = Path(__file__).parent / "go"
PROGRAM = ROOT / "build" / "bench-go" / "peers"
Play = Callable[[str, int, int, float], dict[str, Any]]  # library, port, parties, seconds -> what the program prints


def pairs(setup: Setup, port: int) -> tuple[dict[str, Run], list[str]]:
    """For each library: a run without contention, which measures its rate itself."""
    missing = why_missing(setup)

    def run(library: str, _count: int) -> float:
        found = _play(library, port, 1, setup.effort.seconds)
        return float(found["turns"] / found["seconds"])

    return ({}, missing) if missing else ({name: partial(run, library) for name, library in LIBRARIES.items()}, [])


def racers(setup: Setup, server: Server) -> tuple[dict[str, race.Racer], list[str]]:
    """For each library: a race of goroutines, which ask every millisecond whether the lock is free."""
    missing = why_missing(setup)

    def run(library: str, _folder: Path, parties: int) -> race.Result:
        server.empty()
        before = server.usage()
        found = _play(library, server.port, parties, setup.effort.race_seconds)
        spent = server.usage().since(before)
        percent = statistics.quantiles(found["took_us"], n=100)
        return race.Result(
            found["handoffs"] / found["seconds"],
            found["most"] / found["fewest"] if found["fewest"] else float("inf"),
            percent[49],
            percent[98],
            spent.commands / found["total"],
            spent.requests / found["total"],
            found["took_us"],
        )

    return ({}, missing) if missing else ({name: partial(run, library) for name, library in LIBRARIES.items()}, [])


def _play(library: str, port: int, parties: int, seconds: float) -> dict[str, Any]:
    command = [str(PROGRAM), library, f"127.0.0.1:{port}", str(parties), str(seconds)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    if ended.returncode:
        raise race.Broken(f"{library}: {ended.stderr.strip()}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def why_missing(setup: Setup) -> list[str]:
    """A note when they cannot take part."""
    if setup.effort.quick:
        return ["The locks written in Go are left out of a quick run."]
    error = _build()
    return [f"The locks written in Go are left out: {error}."] if error else []


@functools.cache
def _build() -> str:
    """Builds the program once; returns why that failed, or nothing."""
    if shutil.which("go") is None:
        return "`go` is not installed"
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run(
        ["go", "build", "-o", str(PROGRAM), "."], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    return "`go build` failed: " + ended.stderr.strip().splitlines()[-1] if ended.returncode else ""
