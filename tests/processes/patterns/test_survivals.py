"""What each pattern survives, with real processes: a crowd, a clerk that is frozen, one that dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import NotAcquired
from leasehold.patterns import insert_once, row_lock, transition
from tests.support.guards.desks import Desk, Place
from tests.support.patterns.cases import COLUMNS
from tests.support.patterns.crowd import REQUESTS, ROUNDS, opened
from tests.support.servers import process
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow
MANY = 8
KEY = {"case_id": 7}
FIXTURES = {"postgresql": "postgres_database", "mariadb": "mariadb_database"}


class Stage:
    """A database of its own, and programs on it."""

    def __init__(self, database: str, place: Place) -> None:
        self.database, self.place = database, place
        self.desk: Desk = opened(database, place)

    def rows(self, *statements: str) -> list[tuple[Any, ...]]:
        """In one transaction; what the last one gave."""
        with self.desk.begin() as tx:
            return [tx.rows(one) for one in statements][-1]

    def do(self, pattern: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """On the cases, in a transaction of its own."""
        with self.desk.begin() as tx:
            return tx.do(lambda raw: pattern(raw, "cases", *arguments, **more))

    @contextmanager
    def clerk(self, what: str, first_word: str) -> Iterator[subprocess.Popen[str]]:
        """A process that has said its first word, and waits."""
        command = self._command("clerk", what)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
            try:
                assert started.stdout is not None
                assert started.stdout.readline() == first_word + "\n"
                yield started
            finally:
                started.kill()

    def crowd(self) -> Counter[str]:
        """All of them, to their end."""
        return Counter(json.loads(subprocess.check_output(self._command("crowd", str(MANY)), text=True)))

    def _command(self, program: str, last: str) -> list[str]:
        told = json.dumps(self.place if isinstance(self.place, str) else asdict(self.place))
        return [sys.executable, "-m", f"tests.support.patterns.{program}", self.database, told, last]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """With one case that is ready."""
    fixture = FIXTURES.get(request.param)
    stage = Stage(request.param, request.getfixturevalue(fixture) if fixture else str(tmp_path / "app.db"))
    if not fixture:
        stage.rows("PRAGMA journal_mode = WAL")
    stage.rows(f"CREATE TABLE cases ({COLUMNS})", "INSERT INTO cases VALUES (7, 'READY', NULL, 3)")
    return stage


def test_a_crowd(stage: Stage) -> None:
    """Each version is left once, so no update is lost; each request has one winner, and everybody knows who it was."""
    stage.rows(
        "CREATE TABLE crowd_counter (id INTEGER PRIMARY KEY, number INTEGER, version INTEGER)",
        "INSERT INTO crowd_counter VALUES (1, 0, 0)",
        "CREATE TABLE crowd_requests (request_id VARCHAR(20) PRIMARY KEY, worker INTEGER)",
    )
    counts = stage.crowd()
    assert counts["moved"] + counts["late"] == MANY * ROUNDS, "a worker has failed"
    assert stage.rows("SELECT number, version FROM crowd_counter") == [(counts["moved"], counts["moved"])]
    assert {name: count for name, count in counts.items() if "-" in name} == {f"r-{n}": 1 for n in range(REQUESTS)}
    assert stage.rows("SELECT COUNT(*) FROM crowd_requests") == [(REQUESTS,)]


def test_a_clerk_that_is_frozen_comes_too_late(stage: Stage) -> None:
    """It saw the case, was paused, and goes on when another one has it: its write does not happen, and it is told."""
    with stage.clerk("transition", "saw") as clerk:
        process.freeze(clerk.pid)
        seen = {"status": "READY", "version": 3}
        assert stage.do(transition, key=KEY, when=seen, set={"status": "ASSIGNED", "clerk": "Ada"})
        thaw(clerk)
        assert clerk.communicate("\n")[0] == "late\n"
    assert stage.rows("SELECT status, clerk, version FROM cases") == [("ASSIGNED", "Ada", 4)]


def test_a_clerk_that_is_frozen_keeps_nobody_waiting(stage: Stage) -> None:
    """It has the row and is paused: others know at once. When it dies its lock and its changes are gone with it."""
    with stage.clerk("row_lock", "locked") as clerk:
        process.freeze(clerk.pid)
        for _ in range(3):
            with pytest.raises(NotAcquired):
                stage.do(row_lock, key=KEY)
        clerk.kill()
        clerk.wait()
    assert stage.do(row_lock, key=KEY, nowait=False)["clerk"] is None


def test_a_clerk_that_goes_on_has_still_its_row(stage: Stage) -> None:
    """Paused for however long, it wakes up and commits: the lock is the database's, and has no end in time."""
    with stage.clerk("row_lock", "locked") as clerk:
        process.freeze(clerk.pid)
        with pytest.raises(NotAcquired):
            stage.do(row_lock, key=KEY)
        thaw(clerk)
        assert clerk.communicate("\n")[0] == "committed\n"
    assert stage.do(row_lock, key=KEY)["clerk"] == "paused"


@pytest.mark.parametrize("dies", [True, False])
def test_a_clerk_that_has_inserted_and_not_committed(stage: Stage, dies: bool) -> None:
    """Whoever inserts the same waits for its end: if it dies the row is his own, if it commits he is told of it."""
    values = {"case_id": 8, "status": "READY", "clerk": "Ada"}
    with stage.clerk("insert_once", "inserted") as clerk, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stage.do, insert_once, values, key="case_id")
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        if dies:
            clerk.kill()
        else:
            assert clerk.communicate("\n")[0] == "committed\n"
        done = waiting.result(PATIENCE)
    assert bool(done) is dies
    assert done.row["clerk"] == ("Ada" if dies else "paused")


def thaw(clerk: subprocess.Popen[str]) -> None:
    """It goes on."""
    clerk.send_signal(signal.SIGCONT)
