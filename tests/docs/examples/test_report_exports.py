"""The report exports under chaos, as their reader runs them: with the guard nothing gets through, without it much."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.report_exports import servers
from tests.support.servers import process
from tests.support.servers.database import Database
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
TRIES = 4  # when a worker is frozen, and whether it then comes too late, is chance


def command(*words: str) -> list[str]:
    """As it is typed."""
    return [sys.executable, "-m", "examples.report_exports", *words]


def environment(**more: str) -> dict[str, str]:
    """Whatever is not installed is found in our own path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), **more}


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """To its end."""
    ways: dict[str, Any] = {"cwd": ROOT, "env": environment(**more), "capture_output": True, "text": True}
    return subprocess.run(command(*words), **ways, timeout=50, check=False)


def result(*words: str) -> dict[str, Any]:
    """As data."""
    ended = run("--json", *words)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.fixture
def places(redis_url: str, postgres_database: Database) -> list[str]:
    """Where leases and reports live."""
    return ["--redis", redis_url, "--postgres", postgres_database.dsn]


@pytest.fixture
def folder() -> Iterator[Path]:
    """For temporary files. Root starts PostgreSQL as nobody, who has to find his way."""
    with tempfile.TemporaryDirectory(dir=process.home()) as name:
        Path(name).chmod(0o711)
        yield Path(name)


def test_with_the_guard_nothing_stale_is_accepted(places: list[str]) -> None:
    """Stale writes are tried, and none gets through; no update is lost, and nobody is refused without a reason. The
    tables stand in a schema of their own, which goes."""
    tried = 0
    for seed in range(TRIES):
        found = result(*places, "--seconds", "3", "--seed", str(seed))
        assert found["guard"] and found["clean"], found
        assert (found["stale_accepted"], found["updates_lost"], found["wrongly_refused"]) == (0, 0, 0)
        assert found["exports"] and found["frozen"]
        tried += found["stale_tried"]
        if tried:
            break
    assert tried
    with psycopg.connect(places[-1]) as connection:
        schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'report%'").fetchall()
    assert schemas == []


def test_without_the_guard_the_judge_finds_them(places: list[str]) -> None:
    """The same workers and the same chaos: stale writes are accepted, and the exit code says nothing of it."""
    accepted = 0
    for seed in range(TRIES):
        found = result(*places, "--seconds", "3", "--seed", str(seed), "--no-guard")
        assert not found["guard"] and found["stale_tried"] == found["stale_accepted"]
        accepted += found["stale_accepted"]
        if accepted:
            break
    assert accepted


def test_it_brings_servers_of_its_own(folder: Path) -> None:
    """Without addresses it starts what is installed, tells people how it goes, and leaves no file behind."""
    ended = run("--seconds", "1", "--workers", "4", TMPDIR=str(folder))
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "stale writes accepted       0\n" in ended.stdout and "with the guard" in ended.stdout
    assert "exports, " in ended.stderr and "\033" not in ended.stdout + ended.stderr
    assert list(folder.iterdir()) == []


def test_it_can_be_interrupted(folder: Path) -> None:
    """Ctrl-C ends its workers, also one that is frozen, and its servers, and their folders go."""
    assert interrupted(signal.SIGINT, "--workers", "4", TMPDIR=str(folder)) == 130
    assert list(folder.iterdir()) == []


def test_it_can_be_stopped(places: list[str]) -> None:
    """So does SIGTERM."""
    assert interrupted(signal.SIGTERM, "--workers", "4", *places) == 143


def interrupted(what: signal.Signals, *words: str, **more: str) -> int:
    """When one of its workers is frozen. Nothing that it has started is left."""
    ways: dict[str, Any] = {"cwd": ROOT, "env": environment(**more), "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command("--seconds", "40", *words), **ways) as running:
        started: list[int] = []

        def one_is_frozen() -> bool:
            started[:] = process.children(running.pid)
            return any(process.status(pid) == "T" for pid in started)

        until(one_is_frozen, "a worker is frozen", within=4 * PATIENCE)
        running.send_signal(what)
        code = running.wait(2 * PATIENCE)
    assert len(started) >= 4
    until(lambda: not any(process.status(pid) for pid in started), "all that it has started has ended")
    return code


def test_it_says_that_redis_is_missing(places: list[str], tmp_path: Path) -> None:
    """A server that is not installed is named, with what to type."""
    ended = run(*places[2:], PATH=str(tmp_path))
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert "apt-get install redis-server" in ended.stderr and "--redis" in ended.stderr


def test_it_says_that_postgresql_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same; Debian keeps it in a folder of its own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(servers, "DEBIAN", tmp_path)
    with pytest.raises(servers.Missing, match=r"apt-get install postgresql.* --postgres "), servers.postgres_server():
        pass


def test_an_address_that_leads_nowhere_is_no_crash(places: list[str]) -> None:
    """The error is told in a line or two."""
    ended = run(*places[:2], "--postgres", "postgresql://nobody@127.0.0.1:1/none")
    assert ended.returncode == 2 and "report_exports: " in ended.stderr and "Traceback" not in ended.stderr
