"""Running the command line as users do: in a process of its own, with a temporary folder that can be looked into."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "leasehold"]
UNTIDY = {  # none of these may change what the demo does
    "LEASEHOLD_URL": "redis://nowhere.invalid",
    "LEASEHOLD_NAMESPACE": "somebody-elses",
    "LEASEHOLD_ID_KEY": "key",
}


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start it; what it would leave behind, it leaves in ``folder``."""
    env = {**os.environ, "TMPDIR": str(folder), **UNTIDY, **environment}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*COMMAND, *arguments], env=env, text=True, **pipes)


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = start(folder, *arguments, **environment)
    out, err = process.communicate(timeout=50)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def left_behind(folder: Path) -> list[str]:
    """Files in the folder, and processes that were started with it."""
    found = [str(path) for path in folder.iterdir()]
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if str(folder).encode() in command:
            found.append(f"process {entry.name}")
    return found
