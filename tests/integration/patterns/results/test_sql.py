"""SQLResultStore: inside somebody's own transaction, its table, old rows, and what begins a transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import QueuePool

from leasehold._sql.dialects import DIALECTS
from leasehold._sql.statements import Statement
from leasehold.errors import InvalidRequest, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.patterns.results import SQLResultStore
from leasehold.patterns.results.sql import PURGE_EVERY
from leasehold.patterns.results.statements import STEP
from leasehold.testing.results import Presenter
from tests.support.guards.desks import Desk, open_desk
from tests.support.guards.fixtures import place_of
from tests.support.patterns.results.stage import EVERY, _psycopg, _pymysql, parameters, table

NAME = "order:42"
OLD, NEW = Presenter(NAME, 10), Presenter(NAME, 11)


class Spilt(Exception):
    """Something of the user's own."""


def beside(desk: Desk) -> SQLResultStore:
    """A result store in the database of a desk, in transactions of its own."""
    place: Any = desk.place
    if isinstance(place, str):
        results = SQLResultStore(lambda: sqlite3.connect(place, timeout=30), table())
    else:
        results = SQLResultStore((_psycopg if place.scheme == "postgresql" else _pymysql)(place), table())
    results.create()
    return results


DESKS = [  # one of each driver; tests of asking.py sit at all of them
    "sqlite-sqlite3", "sqlite-async-session", "sqlite-django", "postgresql-psycopg", "postgresql-asyncpg",
    "postgresql-session", "mariadb-pymysql", "mariadb-connector", "mariadb-async-sqlalchemy",
]  # fmt: skip


@pytest.mark.parametrize(
    "way", [pytest.param(one, marks=[] if one.startswith("sqlite") else pytest.mark.slow) for one in DESKS]
)
def test_in_somebodys_own_transaction(way: str, request: pytest.FixtureRequest) -> None:
    """Over every driver: what is written in it is there when it is committed, and not when it is rolled back."""
    desk = open_desk(way, place_of(way, request))
    try:
        results = beside(desk)
        with desk.begin() as tx:
            assert tx.do(lambda raw: results.open(OLD, tx=raw)) is None
            tx.do(lambda raw: results.write(OLD, "Grüße", 60, tx=raw))
            assert tx.do(lambda raw: results.open(OLD, tx=raw)).text == "Grüße"
        assert results.read(NAME)[:2] == ("Grüße", 10)
        with suppress(Spilt), desk.begin() as tx:
            tx.do(lambda raw: results.write(NEW, "never", 60, tx=raw))
            raise Spilt
        assert results.open(OLD).text == "Grüße"
        results.open(NEW)
        with pytest.raises(StaleOwner) as refused, desk.begin() as tx:
            tx.do(lambda raw: results.write(OLD, "late", 60, tx=raw))
        assert refused.value.seen == 11
        assert results.read(NAME).text == "Grüße"
    finally:
        desk.close()


def test_a_refusal_leaves_no_lock_behind(tmp_path: Path) -> None:
    """On SQLite a transaction that began with the refused write has ended with it, so that others can write."""
    path = tmp_path / "app.db"
    results = SQLResultStore(lambda: sqlite3.connect(path, timeout=0))
    results.create()
    results.write(NEW, "new", 60)
    with closing(sqlite3.connect(path, timeout=0)) as stale:
        with pytest.raises(StaleOwner):
            results.write(OLD, "late", 60, tx=stale)
        results.write(NEW, "more", 60)


def test_a_connection_that_commits_each_statement_is_refused(tmp_path: Path) -> None:
    """The rule, the text and the user's own effect would not be one step."""
    path = tmp_path / "app.db"
    results = SQLResultStore(lambda: sqlite3.connect(path))
    results.create()
    with closing(sqlite3.connect(path, isolation_level=None)) as tx, pytest.raises(InvalidRequest, match="BEGIN"):
        results.write(OLD, "text", 60, tx=tx)


# ---------------------------------------------------------------- the table

SQL_WAYS = {name: EVERY[name] for name in ("sqlite3", "psycopg pool", "asyncpg pool", "MariaDB engine")}


@pytest.mark.parametrize("results", parameters(SQL_WAYS), indirect=True)
def test_a_missing_table(results: Any) -> None:
    """The error says what to call. To create twice is no mistake."""
    results.create()
    inner = getattr(results, "results", results)
    inner.table = "results_that_is_not_there"
    for call in ((results.read, NAME), (results.open, OLD), (results.write, OLD, "text", 60), (results.purge,)):
        with pytest.raises(
            StoreUnavailable, match=r"results_that_is_not_there is missing.*results\.create\(\)"
        ) as refused:
            call[0](*call[1:])
        assert refused.value.__cause__ is not None


def test_a_table_of_somebody_else(tmp_path: Path) -> None:
    """One of that name that was not made for a result store is not written to."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE leasehold_results (resource TEXT PRIMARY KEY, body TEXT)")
    results = SQLResultStore(lambda: sqlite3.connect(path))
    for call in ((results.read, NAME), (results.open, OLD), (results.write, OLD, "text", 60)):
        with pytest.raises(StoreUnavailable, match="not made for"):
            call[0](*call[1:])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_ddl_says_what_create_does(dialect: str) -> None:
    """For a migration, in each dialect; an unknown one is refused, and so is a name that is none."""
    results = SQLResultStore(lambda: sqlite3.connect(":memory:"), "app.results")
    said = results.ddl(dialect)
    assert "CREATE TABLE IF NOT EXISTS app.results (" in said and "forgotten" in said and said.endswith(";")
    with pytest.raises(InvalidRequest):
        results.ddl("oracle")
    with pytest.raises(InvalidRequest):
        SQLResultStore(lambda: sqlite3.connect(":memory:"), "result store; DROP TABLE x")


@pytest.mark.parametrize("results", parameters(SQL_WAYS), indirect=True)
def test_ddl_makes_the_same_table(results: Any) -> None:
    """What the migration makes, create() finds, and a result store can use."""
    inner = getattr(results, "results", results)
    inner.table = table()
    do(results, lambda dialect: inner.ddl(dialect).split(";\n"))
    results.create()
    results.write(OLD, "text", 60)
    assert results.purge() == 0
    assert results.read(NAME).text == "text"


# ---------------------------------------------------------------- old rows


def do(results: Any, work: Callable[[str], list[str]]) -> None:
    """Statements of the test's own, in the dialect of the results."""
    inner = getattr(results, "results", results)

    def steps(dialect: Any) -> Any:
        for one in work(dialect.name):
            yield Statement((one.rstrip(";"),), (), gives=False)

    (results.loop.run if hasattr(results, "loop") else lambda call, *args: call(*args))(inner._run_alone, steps)


def change(results: Any, what: str) -> None:
    """Do something to the rows themselves."""
    do(results, lambda _: [f"UPDATE {results.table} SET {what}"])


@pytest.mark.parametrize("results", parameters(SQL_WAYS), indirect=True)
def test_old_rows_are_purged(results: Any) -> None:
    """Those that have ended and whose fence need not be remembered, and no others; however many there are."""
    for number in range(STEP + 5):
        results.write(Presenter(f"old:{number}", 10), "text", 0.001)
    results.write(Presenter("kept:1", 10), "text", 60)
    results.write(Presenter("remembered:1", 10), "text", 0.001)
    assert results.purge() == 0
    change(results, "forgotten_at = 1 WHERE resource LIKE 'old:%'")
    assert results.purge() == STEP + 5
    assert results.purge() == 0
    assert results.read("kept:1").text == "text"
    with pytest.raises(StaleOwner):
        results.open(Presenter("remembered:1", 9))
    results.open(Presenter("old:1", 1))


@pytest.mark.parametrize("results", parameters(SQL_WAYS), indirect=True)
def test_old_rows_go_while_others_are_written(results: Any) -> None:
    """Nobody has to call purge(): every so many writes take some away (trap 37)."""
    for number in range(10):
        results.write(Presenter(f"old:{number}", 10), "text", 0.001)
    change(results, "forgotten_at = 1")
    for _ in range(PURGE_EVERY):
        results.write(NEW, "text", 60)
    assert results.purge() == 0
    results.open(Presenter("old:1", 1))


@pytest.mark.parametrize("results", parameters(SQL_WAYS), indirect=True)
def test_a_clock_that_was_turned_back(results: Any) -> None:
    """What was written in the future is not kept for longer than it was to be, and is not younger than new."""
    results.write(NEW, "text", 60)
    hour = 3_600_000
    change(results, f"written_at = written_at + {hour}, ends_at = ends_at + {hour}")
    found = results.read(NAME)
    assert (found.text, found.age, found.left) == ("text", 0.0, 60.0)
    assert 0 < found.ahead <= 3600
    change(results, f"ends_at = ends_at - 2 * {hour}")
    assert results.read(NAME) is None
    with pytest.raises(StaleOwner):
        results.open(OLD)


@pytest.mark.parametrize("results", parameters(SQL_WAYS), indirect=True)
def test_to_open_forgets_nothing(results: Any) -> None:
    """A row is kept for a day longer than its text, whoever has looked at it meanwhile."""
    day = 86_400_000
    results.write(OLD, "text", "30d")
    results.open(NEW)
    change(results, f"forgotten_at = forgotten_at - {30 * day}")
    assert results.purge() == 0
    change(results, f"forgotten_at = forgotten_at - {2 * day}")
    assert results.purge() == 1


# ---------------------------------------------------------------- what begins a transaction


def test_a_pool_that_is_empty(tmp_path: Path) -> None:
    """It says nothing about what is written: it may be tried again, and is not taken for a text that nobody takes."""
    engine = create_engine(
        f"sqlite:///{tmp_path}/app.db", poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0
    )
    results = SQLResultStore(engine)
    results.create()
    with engine.connect(), pytest.raises(StoreUnavailable, match="no connection that works") as caught:
        results.write(Presenter("order:42", 7), "paid", "1h")
    assert caught.value.__cause__ is not None
    results.write(Presenter("order:42", 7), "paid", "1h")
    assert results.read("order:42").text == "paid"
    engine.dispose()


@pytest.mark.parametrize("thing", [None, 42, "sqlite:///app.db", sqlite3.Connection])
def test_what_begins_nothing(thing: Any) -> None:
    """It is said when the result store is made."""
    with pytest.raises(InvalidRequest, match="engine"):
        SQLResultStore(thing)


def test_one_connection_is_not_enough() -> None:
    """It serves one caller: a function that gives connections is wanted."""
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(InvalidRequest):
        SQLResultStore(connection)


def test_a_function_that_gives_a_context_manager(tmp_path: Path) -> None:
    """It begins, commits and rolls back itself; one that swallows errors is found out."""
    path = tmp_path / "app.db"
    ended = []

    @contextmanager
    def begin() -> Any:
        with closing(sqlite3.connect(path)) as connection, connection:
            yield connection
        ended.append(True)

    results = SQLResultStore(begin)
    results._writes = 0  # one write in 64 also purges, and the count begins at random
    results.create()
    results.write(NEW, "text", 60)
    assert results.read(NAME).text == "text" and len(ended) == 3

    @contextmanager
    def swallowing() -> Any:
        try:
            yield sqlite3.connect(path / "nowhere")
        except Exception:
            ended.append(False)

    with pytest.raises(StoreUnavailable):
        SQLResultStore(swallowing).read(NAME)


class Unsteady(sqlite3.Connection):
    """Its commits fail after they have happened, as when the network breaks at that moment."""

    def commit(self) -> None:
        """Done, and nobody hears of it."""
        super().commit()
        raise sqlite3.OperationalError("the connection was lost")


def test_a_commit_that_is_not_answered(tmp_path: Path) -> None:
    """Nobody knows whether it happened; the same holder repeats it."""
    path = tmp_path / "app.db"
    good = SQLResultStore(lambda: sqlite3.connect(path))
    good.create()
    with pytest.raises(OutcomeUnknown):
        SQLResultStore(lambda: sqlite3.connect(path, factory=Unsteady)).write(NEW, "text", 60)
    good.write(NEW, "text", 60)
    assert good.read(NAME).text == "text"


def test_connections_are_closed(tmp_path: Path) -> None:
    """After every call, whatever becomes of it: done, refused, or failed."""
    open_now: list[sqlite3.Connection] = []

    class Counted(sqlite3.Connection):
        def close(self) -> None:
            open_now.remove(self)
            super().close()

    def connect() -> sqlite3.Connection:
        open_now.append(sqlite3.connect(tmp_path / "app.db", factory=Counted))
        return open_now[-1]

    results = SQLResultStore(connect)
    with pytest.raises(StoreUnavailable):
        results.read(NAME)
    results.create()
    results.write(NEW, "text", 60)
    with pytest.raises(StaleOwner):
        results.write(OLD, "late", 60)
    assert open_now == []


def test_a_cancelled_call_is_rolled_back(tmp_path: Path) -> None:
    """In asyncio: nothing is half done, and the result store goes on."""
    import aiosqlite

    path = tmp_path / "app.db"

    async def main() -> None:
        results = SQLResultStore(lambda: aiosqlite.connect(path, timeout=30))
        await results.create()
        for _ in range(20):
            task = asyncio.create_task(results.write(NEW, "text", 60))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await results.write(NEW, "done", 60)
        assert (await results.read(NAME)).text == "done"

    asyncio.run(main())
