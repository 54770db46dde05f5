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
from leasehold.patterns.results import SQLiteShelf
from leasehold.testing.results import Holder
from tests.patterns.shelves.race import judge, open_shelf
from tests.servers.database import Database
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.slow


def test_a_race_for_a_file(tmp_path: Path) -> None:
    """Three processes at one file, which all of them make."""
    judge("file", str(tmp_path / "race.shelf"), 3)


def test_a_race_on_redis(redis_server: RedisServer, redis_url: str) -> None:
    """Two processes at one server."""
    judge("redis", str(redis_server.port), 2)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_race_for_a_row(kind: str, request: pytest.FixtureRequest) -> None:
    """Two processes at one row."""
    database: Database = request.getfixturevalue("postgres_database" if kind == "postgresql" else "mariadb_database")
    where = json.dumps(asdict(database))
    with open_shelf(kind, where) as shelf:
        shelf.create()
    judge(kind, where, 2)


WORKER = """if True:
    import sys
    from leasehold.patterns.results import SQLiteShelf
    from leasehold.testing.results import Holder
    shelf = SQLiteShelf(sys.argv[1])
    shelf.open(Holder("page:1", 10))
    print("open", flush=True)
    sys.stdin.readline()
    try:
        shelf.write(Holder("page:1", 10), "late", 60)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


def test_a_holder_that_was_frozen(tmp_path: Path) -> None:
    """It has read, sleeps while another one takes over, and wakes up to write: refused, though the entry has ended."""
    path = tmp_path / "page.shelf"
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None and worker.stdin is not None
        assert worker.stdout.readline() == "open\n"
        os.kill(worker.pid, signal.SIGSTOP)
        worker.stdin.write("go\n")
        worker.stdin.flush()
        shelf = SQLiteShelf(path)
        shelf.open(Holder("page:1", 11))
        shelf.write(Holder("page:1", 11), None, 60)
        os.kill(worker.pid, signal.SIGCONT)
        assert worker.communicate(timeout=50)[0] == "StaleOwner\n"
    assert shelf.read("page:1") is None
    shelf.close()


KILLED = """if True:
    import sys
    from leasehold.patterns.results import SQLiteShelf
    from leasehold.testing.results import Holder
    shelf = SQLiteShelf(sys.argv[1])
    for number in range(1, 100_000):
        shelf.write(Holder("page:1", number), f"{number} " * 200, 60)
        print(number, flush=True)
"""


def test_a_writer_that_was_killed(tmp_path: Path) -> None:
    """In the middle of a write: what was said to be written is there, whole, and the next one goes on."""
    path = tmp_path / "page.shelf"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        said = [int(worker.stdout.readline()) for _ in range(20)][-1]
        worker.kill()
    shelf = SQLiteShelf(path)
    found = shelf.read("page:1")
    assert found is not None and found.fence >= said and found.text == f"{found.fence} " * 200
    shelf.write(Holder("page:1", found.fence + 1), "next", 60)
    with pytest.raises(StaleOwner):
        shelf.write(Holder("page:1", found.fence), "late", 60)
    shelf.close()
