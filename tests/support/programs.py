"""Runs a program as a user would: a file of its own, a process of its own, warnings as errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import leasehold
from tests.support.waiting import PATIENCE

SOURCE = str(Path(leasehold.__file__).parents[1])  # what this process runs
WARNINGS = ("-W", "error", "-W", "ignore:This process:DeprecationWarning")  # newer Pythons dislike forks with threads


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would change the defaults of Leasehold."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
    return {**kept, "PYTHONPATH": SOURCE, **more}


def run(code: str, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    return subprocess.run(
        [sys.executable, *WARNINGS, str(program), *map(str, arguments)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def play(code: str, folder: Path, *arguments: object) -> list[str]:
    """What it prints; it must end well, and quietly."""
    done = run(code, folder, *arguments)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()
