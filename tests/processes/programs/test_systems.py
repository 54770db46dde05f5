"""Other systems: every module can be imported, ``memory://`` works, and what needs Linux says so with a way out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.programs import other_system

CONFIG = "78"


@pytest.mark.slow
@pytest.mark.timeout(180)  # every module is loaded twice, with all that it needs
@pytest.mark.parametrize("system", ["macos", "windows"])
def test_another_system(system: str, tmp_path: Path) -> None:
    """No import touches what it lacks; a store or a command that needs more says so at once, without a traceback, and
    names what can be used there."""
    ended = subprocess.run(
        [sys.executable, other_system.__file__, system],
        env={key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    modules, first, second, default, named, results, redis, postgresql, *commands = ended.stdout.splitlines()
    assert set(modules.split()[1:]) == set(other_system.modules())
    assert (first, second) == ("held held True None", "held held")
    assert all(line.startswith("Unsupported: ") and "needs Linux" in line for line in (default, named, results))
    if system == "windows":
        assert all("Subsystem for Linux, or memory:// in tests" in one for one in (default, named, redis, postgresql))
    else:
        assert all("use redis://host, or memory:// in tests" in one for one in (default, named))
        assert (redis, postgresql) == (
            "<Leasehold on redis://localhost:6379/0>",
            "<Leasehold on postgresql://localhost:5432/>",
        )
    assert "use SQLResultStore in your database, RedisResultStore, or MemoryResultStore in tests" in results
    assert [line.split()[:2] for line in commands] == [[one, CONFIG] for one in ("run", "elect", "demo", "ls")]
    assert all("needs Linux" in line for line in commands) and "use a machine or a container with Linux" in commands[2]
    assert not list(tmp_path.iterdir())
