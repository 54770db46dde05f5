"""What a run was measured on and with: figures mean little without it."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("leasehold", "redis", "hiredis", "python-redis-lock", "filelock", "procrastinate", "dogpile.cache")
ROOT = Path(__file__).parents[2]


def facts() -> dict[str, str]:
    """Names and values, in the order in which they are shown."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "CPUs": str(len(os.sched_getaffinity(0))),
        "CPU": _cpu(),
        "system": platform.platform(terse=True),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "redis-server": _redis(),
        **{name: found for name in PACKAGES if (found := _installed(name))},
    }


def _commit() -> str:
    """With a mark when the files differ from it."""
    return _output("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*") or "unknown"


def _redis() -> str:
    words = dict(word.partition("=")[::2] for word in _output("redis-server", "--version").split())
    return words.get("v", "not installed")


def _cpu() -> str:
    """The name of the processor, or the kind of machine."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _output(*command: str) -> str:
    """What the program prints; nothing when it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else ""
