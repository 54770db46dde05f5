"""Processes that write to one place at the same time, and ones that are frozen or killed in the middle of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from leasehold.errors import StaleOwner
from leasehold.patterns.results import SQLiteResultStore
from leasehold.testing.results import Presenter
from tests.processes.patterns.results.race import judge, open_results
from tests.support.servers.database import Database
from tests.support.servers.redis import RedisServer

pytestmark = pytest.mark.slow


def test_a_race_for_a_file(tmp_path: Path) -> None:
    """Three processes at one file, which all of them make."""
    judge("file", str(tmp_path / "race.results"), 3)


def test_a_race_on_redis(redis_server: RedisServer, redis_url: str) -> None:
    """Two processes at one server."""
    judge("redis", str(redis_server.port), 2)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_race_for_a_row(kind: str, request: pytest.FixtureRequest) -> None:
    """Two processes at one row."""
    database: Database = request.getfixturevalue("postgres_database" if kind == "postgresql" else "mariadb_database")
    where = json.dumps(asdict(database))
    with open_results(kind, where) as results:
        results.create()
    judge(kind, where, 2)


WORKER = """if True:
    import sys
    from leasehold.patterns.results import SQLiteResultStore
    from leasehold.testing.results import Presenter
    results = SQLiteResultStore(sys.argv[1])
    results.open(Presenter("page:1", 10))
    print("open", flush=True)
    sys.stdin.readline()
    try:
        results.write(Presenter("page:1", 10), "late", 60)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


def test_a_holder_that_was_frozen(tmp_path: Path) -> None:
    """It has read, sleeps while another one takes over, and wakes up to write: refused, though the entry has ended."""
    path = tmp_path / "page.results"
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None and worker.stdin is not None
        assert worker.stdout.readline() == "open\n"
        os.kill(worker.pid, signal.SIGSTOP)
        worker.stdin.write("go\n")
        worker.stdin.flush()
        results = SQLiteResultStore(path)
        results.open(Presenter("page:1", 11))
        results.write(Presenter("page:1", 11), None, 60)
        os.kill(worker.pid, signal.SIGCONT)
        assert worker.communicate(timeout=50)[0] == "StaleOwner\n"
    assert results.read("page:1") is None
    results.close()


KILLED = """if True:
    import sys
    from leasehold.patterns.results import SQLiteResultStore
    from leasehold.testing.results import Presenter
    results = SQLiteResultStore(sys.argv[1])
    for number in range(1, 100_000):
        results.write(Presenter("page:1", number), f"{number} " * 200, 60)
        print(number, flush=True)
"""


def test_a_writer_that_was_killed(tmp_path: Path) -> None:
    """In the middle of a write: what was said to be written is there, whole, and the next one goes on."""
    path = tmp_path / "page.results"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        said = [int(worker.stdout.readline()) for _ in range(20)][-1]
        worker.kill()
    results = SQLiteResultStore(path)
    found = results.read("page:1")
    assert found is not None and found.fence >= said and found.text == f"{found.fence} " * 200
    results.write(Presenter("page:1", found.fence + 1), "next", 60)
    with pytest.raises(StaleOwner):
        results.write(Presenter("page:1", found.fence), "late", 60)
    results.close()
