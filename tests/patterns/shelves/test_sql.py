"""SQLShelf: inside somebody's own transaction, its table, old rows, and what begins a transaction."""

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

from leasehold.errors import InvalidRequest, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.sql.dialects import Statement
from leasehold.patterns.results import SQLShelf
from leasehold.patterns.results.sql import PURGE_EVERY
from leasehold.patterns.results.statements import STEP, TEXTS
from leasehold.testing.results import Holder
from tests.guards.conftest import place_of
from tests.guards.desks import Desk, open_desk
from tests.patterns.shelves.stage import EVERY, _psycopg, _pymysql, parameters, table

NAME = "order:42"
OLD, NEW = Holder(NAME, 10), Holder(NAME, 11)


class Spilt(Exception):
    """Something of the user's own."""


def beside(desk: Desk) -> SQLShelf:
    """A shelf in the database of a desk, in transactions of its own."""
    place: Any = desk.place
    if isinstance(place, str):
        shelf = SQLShelf(lambda: sqlite3.connect(place, timeout=30), table())
    else:
        shelf = SQLShelf((_psycopg if place.scheme == "postgresql" else _pymysql)(place), table())
    shelf.create()
    return shelf


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
        shelf = beside(desk)
        with desk.begin() as tx:
            assert tx.do(lambda raw: shelf.open(OLD, tx=raw)) is None
            tx.do(lambda raw: shelf.write(OLD, "Grüße", 60, tx=raw))
            assert tx.do(lambda raw: shelf.open(OLD, tx=raw)).text == "Grüße"
        assert shelf.read(NAME)[:2] == ("Grüße", 10)
        with suppress(Spilt), desk.begin() as tx:
            tx.do(lambda raw: shelf.write(NEW, "never", 60, tx=raw))
            raise Spilt
        assert shelf.open(OLD).text == "Grüße"
        shelf.open(NEW)
        with pytest.raises(StaleOwner) as refused, desk.begin() as tx:
            tx.do(lambda raw: shelf.write(OLD, "late", 60, tx=raw))
        assert refused.value.seen == 11
        assert shelf.read(NAME).text == "Grüße"
    finally:
        desk.close()


def test_a_refusal_leaves_no_lock_behind(tmp_path: Path) -> None:
    """On SQLite a transaction that began with the refused write has ended with it, so that others can write."""
    path = tmp_path / "app.db"
    shelf = SQLShelf(lambda: sqlite3.connect(path, timeout=0))
    shelf.create()
    shelf.write(NEW, "new", 60)
    with closing(sqlite3.connect(path, timeout=0)) as stale:
        with pytest.raises(StaleOwner):
            shelf.write(OLD, "late", 60, tx=stale)
        shelf.write(NEW, "more", 60)


def test_a_connection_that_commits_each_statement_is_refused(tmp_path: Path) -> None:
    """The rule, the text and the user's own effect would not be one step."""
    path = tmp_path / "app.db"
    shelf = SQLShelf(lambda: sqlite3.connect(path))
    shelf.create()
    with closing(sqlite3.connect(path, isolation_level=None)) as tx, pytest.raises(InvalidRequest, match="BEGIN"):
        shelf.write(OLD, "text", 60, tx=tx)


# ---------------------------------------------------------------- the table

SQL_WAYS = {name: EVERY[name] for name in ("sqlite3", "psycopg pool", "asyncpg pool", "MariaDB engine")}


@pytest.mark.parametrize("shelf", parameters(SQL_WAYS), indirect=True)
def test_a_missing_table(shelf: Any) -> None:
    """The error says what to call. To create twice is no mistake."""
    shelf.create()
    inner = getattr(shelf, "shelf", shelf)
    inner.table = "shelf_that_is_not_there"
    for call in ((shelf.read, NAME), (shelf.open, OLD), (shelf.write, OLD, "text", 60), (shelf.purge,)):
        with pytest.raises(StoreUnavailable, match=r"shelf_that_is_not_there is missing.*shelf\.create\(\)") as refused:
            call[0](*call[1:])
        assert refused.value.__cause__ is not None


def test_a_table_of_somebody_else(tmp_path: Path) -> None:
    """One of that name that was not made for a shelf is not written to."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE leasehold_shelf (resource TEXT PRIMARY KEY, body TEXT)")
    shelf = SQLShelf(lambda: sqlite3.connect(path))
    for call in ((shelf.read, NAME), (shelf.open, OLD), (shelf.write, OLD, "text", 60)):
        with pytest.raises(StoreUnavailable, match="not made for"):
            call[0](*call[1:])


@pytest.mark.parametrize("dialect", TEXTS)
def test_ddl_says_what_create_does(dialect: str) -> None:
    """For a migration, in each dialect; an unknown one is refused, and so is a name that is none."""
    shelf = SQLShelf(lambda: sqlite3.connect(":memory:"), "app.shelf")
    said = shelf.ddl(dialect)
    assert "CREATE TABLE IF NOT EXISTS app.shelf (" in said and "forgotten" in said and said.endswith(";")
    with pytest.raises(InvalidRequest):
        shelf.ddl("oracle")
    with pytest.raises(InvalidRequest):
        SQLShelf(lambda: sqlite3.connect(":memory:"), "shelf; DROP TABLE x")


@pytest.mark.parametrize("shelf", parameters(SQL_WAYS), indirect=True)
def test_ddl_makes_the_same_table(shelf: Any) -> None:
    """What the migration makes, create() finds, and a shelf can use."""
    inner = getattr(shelf, "shelf", shelf)
    inner.table = table()
    do(shelf, lambda dialect: inner.ddl(dialect).split(";\n"))
    shelf.create()
    shelf.write(OLD, "text", 60)
    assert shelf.purge() == 0
    assert shelf.read(NAME).text == "text"


# ---------------------------------------------------------------- old rows


def do(shelf: Any, work: Callable[[str], list[str]]) -> None:
    """Statements of the test's own, in the dialect of the shelf."""
    inner = getattr(shelf, "shelf", shelf)

    def steps(dialect: Any) -> Any:
        for one in work(dialect.name):
            yield Statement((one.rstrip(";"),), (), gives=False)

    (shelf.loop.run if hasattr(shelf, "loop") else lambda call, *args: call(*args))(inner._own, steps)


def change(shelf: Any, what: str) -> None:
    """Do something to the rows themselves."""
    do(shelf, lambda _: [f"UPDATE {shelf.table} SET {what}"])


@pytest.mark.parametrize("shelf", parameters(SQL_WAYS), indirect=True)
def test_old_rows_are_purged(shelf: Any) -> None:
    """Those that have ended and whose fence need not be remembered, and no others; however many there are."""
    for number in range(STEP + 5):
        shelf.write(Holder(f"old:{number}", 10), "text", 0.001)
    shelf.write(Holder("kept:1", 10), "text", 60)
    shelf.write(Holder("remembered:1", 10), "text", 0.001)
    assert shelf.purge() == 0
    change(shelf, "forgotten_at = 1 WHERE resource LIKE 'old:%'")
    assert shelf.purge() == STEP + 5
    assert shelf.purge() == 0
    assert shelf.read("kept:1").text == "text"
    with pytest.raises(StaleOwner):
        shelf.open(Holder("remembered:1", 9))
    shelf.open(Holder("old:1", 1))


@pytest.mark.parametrize("shelf", parameters(SQL_WAYS), indirect=True)
def test_old_rows_go_while_others_are_written(shelf: Any) -> None:
    """Nobody has to call purge(): every so many writes take some away (trap 37)."""
    for number in range(10):
        shelf.write(Holder(f"old:{number}", 10), "text", 0.001)
    change(shelf, "forgotten_at = 1")
    for _ in range(PURGE_EVERY):
        shelf.write(NEW, "text", 60)
    assert shelf.purge() == 0
    shelf.open(Holder("old:1", 1))


@pytest.mark.parametrize("shelf", parameters(SQL_WAYS), indirect=True)
def test_a_clock_that_was_turned_back(shelf: Any) -> None:
    """What was written in the future is not kept for longer than it was to be, and is not younger than new."""
    shelf.write(NEW, "text", 60)
    hour = 3_600_000
    change(shelf, f"written_at = written_at + {hour}, ends_at = ends_at + {hour}")
    found = shelf.read(NAME)
    assert (found.text, found.age, found.left) == ("text", 0.0, 60.0)
    assert 0 < found.ahead <= 3600
    change(shelf, f"ends_at = ends_at - 2 * {hour}")
    assert shelf.read(NAME) is None
    with pytest.raises(StaleOwner):
        shelf.open(OLD)


@pytest.mark.parametrize("shelf", parameters(SQL_WAYS), indirect=True)
def test_to_open_forgets_nothing(shelf: Any) -> None:
    """A row is kept for a day longer than its text, whoever has looked at it meanwhile."""
    day = 86_400_000
    shelf.write(OLD, "text", "30d")
    shelf.open(NEW)
    change(shelf, f"forgotten_at = forgotten_at - {30 * day}")
    assert shelf.purge() == 0
    change(shelf, f"forgotten_at = forgotten_at - {2 * day}")
    assert shelf.purge() == 1


# ---------------------------------------------------------------- what begins a transaction


def test_a_pool_that_is_empty(tmp_path: Path) -> None:
    """It says nothing about what is written: it may be tried again, and is not taken for a text that nobody takes."""
    engine = create_engine(
        f"sqlite:///{tmp_path}/app.db", poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0
    )
    shelf = SQLShelf(engine)
    shelf.create()
    with engine.connect(), pytest.raises(StoreUnavailable, match="no connection that works") as caught:
        shelf.write(Holder("order:42", 7), "paid", "1h")
    assert caught.value.__cause__ is not None
    shelf.write(Holder("order:42", 7), "paid", "1h")
    assert shelf.read("order:42").text == "paid"
    engine.dispose()


@pytest.mark.parametrize("thing", [None, 42, "sqlite:///app.db", sqlite3.Connection])
def test_what_begins_nothing(thing: Any) -> None:
    """It is said when the shelf is made."""
    with pytest.raises(InvalidRequest, match="engine"):
        SQLShelf(thing)


def test_one_connection_is_not_enough() -> None:
    """It serves one caller: a function that gives connections is wanted."""
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(InvalidRequest):
        SQLShelf(connection)


def test_a_function_that_gives_a_context_manager(tmp_path: Path) -> None:
    """It begins, commits and rolls back itself; one that swallows errors is found out."""
    path = tmp_path / "app.db"
    ended = []

    @contextmanager
    def begin() -> Any:
        with closing(sqlite3.connect(path)) as connection, connection:
            yield connection
        ended.append(True)

    shelf = SQLShelf(begin)
    shelf.create()
    shelf.write(NEW, "text", 60)
    assert shelf.read(NAME).text == "text" and len(ended) == 3

    @contextmanager
    def swallowing() -> Any:
        try:
            yield sqlite3.connect(path / "nowhere")
        except Exception:
            ended.append(False)

    with pytest.raises(StoreUnavailable):
        SQLShelf(swallowing).read(NAME)


class Unsteady(sqlite3.Connection):
    """Its commits fail after they have happened, as when the network breaks at that moment."""

    def commit(self) -> None:
        """Done, and nobody hears of it."""
        super().commit()
        raise sqlite3.OperationalError("the connection was lost")


def test_a_commit_that_is_not_answered(tmp_path: Path) -> None:
    """Nobody knows whether it happened; the same holder repeats it."""
    path = tmp_path / "app.db"
    good = SQLShelf(lambda: sqlite3.connect(path))
    good.create()
    with pytest.raises(OutcomeUnknown):
        SQLShelf(lambda: sqlite3.connect(path, factory=Unsteady)).write(NEW, "text", 60)
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

    shelf = SQLShelf(connect)
    with pytest.raises(StoreUnavailable):
        shelf.read(NAME)
    shelf.create()
    shelf.write(NEW, "text", 60)
    with pytest.raises(StaleOwner):
        shelf.write(OLD, "late", 60)
    assert open_now == []


def test_a_cancelled_call_is_rolled_back(tmp_path: Path) -> None:
    """In asyncio: nothing is half done, and the shelf goes on."""
    import aiosqlite

    path = tmp_path / "app.db"

    async def main() -> None:
        shelf = SQLShelf(lambda: aiosqlite.connect(path, timeout=30))
        await shelf.create()
        for _ in range(20):
            task = asyncio.create_task(shelf.write(NEW, "text", 60))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await shelf.write(NEW, "done", 60)
        assert (await shelf.read(NAME)).text == "done"

    asyncio.run(main())
