"""Who waits for whom: two connections step by step, on every database and at every isolation that it has."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
import sqlalchemy

from leasehold._sql.dialects import DIALECTS, Dialect
from leasehold.errors import StaleOwner
from leasehold.guards.sql import Conflict, FenceGuard
from tests.support.guards.desks import Place
from tests.support.guards.lines import LEVELS, Line
from tests.support.guards.race import GUARD, Race, prepare
from tests.support.servers.database import Database
from tests.support.waiting import PATIENCE, until

A, B = "host-1:11:secret.1", "host-2:22:secret.2"
SERVERS = ("psycopg", "asyncpg", "pymysql")
WAYS = [pytest.param((line, level), marks=pytest.mark.slow) for line in SERVERS for level in LEVELS]


class Pair:
    """Two connections and a place for a call that has to wait."""

    def __init__(self, race: Race) -> None:
        self.race = race
        self.a, self.b = race.open(), race.open()
        self.witness = Race(
            "psycopg" if race.line == "asyncpg" else race.line, LEVELS[0], "", race.place, 1, 1, 0
        ).open()
        self.pool = ThreadPoolExecutor(1)
        # Who has waited for a lock has a snapshot from before it: in all but these it must begin again.
        self.goes_on = race.level == "READ COMMITTED" or (race.line, race.level) == ("pymysql", "REPEATABLE READ")

    def close(self) -> None:
        """Nothing waits any more."""
        for line in (self.a, self.b, self.witness):
            line.close()
        self.pool.shutdown()

    def later(self, waiting: Line, call: Callable[[], None]) -> Future[None]:
        """Begin a call, and come back when the database says that it waits for a lock."""
        future = self.pool.submit(call)
        until(lambda: future.done() or self._waits(waiting), "the call waits for a lock")
        assert not future.done(), f"it did not wait: {future.exception()}"
        return future

    def _waits(self, line: Line) -> bool:
        return bool(self.ask(_WAITS[self.race.line].format(line.number)))

    def ask(self, sql: str) -> int:
        """On a connection of its own, which sees what is committed."""
        ((answer,),) = self.witness.tx.rows(sql)
        self.witness.rollback()
        return int(answer)

    def number(self) -> int:
        """The counter, for everybody to see."""
        return self.ask("SELECT number FROM race_counter")


_POSTGRES = "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = {} AND wait_event_type = 'Lock'"
_WAITS = {
    "psycopg": _POSTGRES,
    "asyncpg": _POSTGRES,
    # Of the whole server, which nobody else uses. The table of transactions is not renewed for whoever looks often.
    "pymysql": "SELECT variable_value FROM information_schema.global_status"
    " WHERE variable_name = 'innodb_row_lock_current_waits'",
}


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(way).replace(" ", "_").lower())
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two connections to a database of their own."""
    with opened(request, *request.param) as pair:
        yield pair


@contextmanager
def opened(request: pytest.FixtureRequest, line: str, level: str) -> Iterator[Pair]:
    """The tables are there, and nobody was here before."""
    place: Place = request.getfixturevalue("mariadb_database" if line == "pymysql" else "postgres_database")
    race = Race(line, level, "check", place, 2, 1, 0)
    prepare(race)
    with closing(Pair(race)) as pair:
        yield pair


def check(line: Line, fence: int, owner: str, resource: str = "race:1", shared: bool = False) -> None:
    """Present a fence."""
    line.tx.do(lambda raw: GUARD.check(raw, fence, resource=resource, owner=owner, shared=shared))


def count(line: Line) -> int:
    """Read the counter and write it: what is lost would show."""
    ((number,),) = line.tx.rows("SELECT number FROM race_counter WHERE id = 1")
    line.tx.rows(f"UPDATE race_counter SET number = {number + 1} WHERE id = 1")
    return int(number)


def known(pair: Pair) -> None:
    """Somebody was here before."""
    pair.a.begin()
    check(pair.a, 5, A)
    pair.a.commit()


FIRST_EVER = pytest.mark.parametrize("first_ever", [True, False])


@FIRST_EVER
def test_the_newer_one_waits_and_sees(pair: Pair, first_ever: bool) -> None:
    """B, newer, waits for A's transaction and then reads A's write. Where its snapshot is older it begins again."""
    if not first_ever:
        known(pair)
    pair.a.begin()
    check(pair.a, 10, A)
    assert count(pair.a) == 0
    pair.b.begin()
    waiting = pair.later(pair.b, lambda: check(pair.b, 11, B))
    pair.a.commit()
    if not pair.goes_on:
        with pytest.raises(Conflict):
            waiting.result(PATIENCE)
        pair.b.rollback()
        pair.b.begin()
        check(pair.b, 11, B)
    else:
        waiting.result(PATIENCE)
    assert count(pair.b) == 1
    pair.b.commit()
    assert pair.number() == 2


@FIRST_EVER
def test_the_older_one_waits_and_is_refused(pair: Pair, first_ever: bool) -> None:
    """A, older, waits for B's transaction and is refused, at once or when it begins again."""
    if not first_ever:
        known(pair)
    pair.b.begin()
    check(pair.b, 11, B)
    pair.a.begin()
    waiting = pair.later(pair.a, lambda: check(pair.a, 10, A))
    pair.b.commit()
    if not pair.goes_on:
        with pytest.raises(Conflict):
            waiting.result(PATIENCE)
        pair.a.rollback()
        pair.a.begin()
        waiting = pair.pool.submit(lambda: check(pair.a, 10, A))
    with pytest.raises(StaleOwner) as caught:
        waiting.result(PATIENCE)
    assert caught.value.seen == 11
    pair.a.rollback()


@FIRST_EVER
def test_the_older_one_waits_for_a_rollback(pair: Pair, first_ever: bool) -> None:
    """A, older, waits for B; B rolls back, so B was never there and A is accepted."""
    if not first_ever:
        known(pair)
    pair.b.begin()
    check(pair.b, 11, B)
    pair.a.begin()
    waiting = pair.later(pair.a, lambda: check(pair.a, 10, A))
    pair.b.rollback()
    waiting.result(PATIENCE)
    assert count(pair.a) == 0
    pair.a.commit()
    assert pair.number() == 1


@pytest.mark.parametrize("repeated", [False, True])
def test_a_snapshot_that_is_older_than_the_check(pair: Pair, repeated: bool) -> None:
    """B has looked at something else before, so its reads may be of an old snapshot: it is told, or it reads A's write.
    Also when A had presented its fence before, and a database could leave the row as it is."""
    if repeated:
        pair.a.begin()
        check(pair.a, 10, A)
        pair.a.commit()
    pair.b.begin()
    pair.b.tx.rows("SELECT COUNT(*) FROM race_other")
    pair.a.begin()
    check(pair.a, 10, A)
    count(pair.a)
    pair.a.commit()
    if pair.race.level == "REPEATABLE READ" or (pair.race.level == "SERIALIZABLE" and pair.race.line != "pymysql"):
        with pytest.raises(Conflict):
            check(pair.b, 11, B)
        pair.b.rollback()
        pair.b.begin()
    check(pair.b, 11, B)
    assert count(pair.b) == 1
    pair.b.commit()


@pytest.mark.parametrize("repeated", [False, True])
def test_a_reader_with_an_old_snapshot(pair: Pair, repeated: bool) -> None:
    """A reader that is accepted reads what the writers before it have written, or the state before all of them."""
    if repeated:
        pair.a.begin()
        check(pair.a, 10, A)
        pair.a.commit()
    pair.b.begin()
    pair.b.tx.rows("SELECT COUNT(*) FROM race_other")
    pair.a.begin()
    check(pair.a, 10, A)
    count(pair.a)
    pair.a.commit()
    try:
        check(pair.b, 11, B, shared=True)
    except Conflict:
        assert pair.race.level != "READ COMMITTED"
        return
    old = pair.race.line != "pymysql" and pair.race.level != "READ COMMITTED"  # the first row came after the snapshot
    assert pair.b.tx.rows("SELECT number FROM race_counter") == [(0 if old and not repeated else 1,)]
    assert not (old and repeated)


@pytest.mark.slow
def test_mariadb_would_lose_the_update(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why each statement asks for ``innodb_snapshot_isolation``: without it A's write is lost, and nobody told."""
    monkeypatch.setattr(type(DIALECTS["mariadb"]), "deciding", "")
    with opened(request, "pymysql", "REPEATABLE READ") as pair:
        pair.b.begin()
        pair.b.tx.rows("SELECT COUNT(*) FROM race_other")
        pair.a.begin()
        check(pair.a, 10, A)
        count(pair.a)
        pair.a.commit()
        check(pair.b, 11, B)
        count(pair.b)
        pair.b.commit()
        assert pair.number() == 1


# ---------------------------------------------------------------- readers


def test_a_writer_waits_for_a_reader(pair: Pair) -> None:
    """What a reader has checked stays as it is until its transaction ends."""
    known(pair)
    pair.a.begin()
    check(pair.a, 10, A, shared=True)
    pair.b.begin()
    waiting = pair.later(pair.b, lambda: check(pair.b, 11, B))
    assert pair.a.tx.rows("SELECT number FROM race_counter") == [(0,)]
    pair.a.commit()
    waiting.result(PATIENCE)
    pair.b.commit()


def test_readers_do_not_wait_for_each_other(pair: Pair) -> None:
    """Two transactions hold the same row, shared."""
    known(pair)
    for line, fence in ((pair.a, 10), (pair.b, 11)):
        line.begin()
        check(line, fence, A, shared=True)
    pair.a.commit()
    pair.b.commit()


# ---------------------------------------------------------------- conflicts


def test_a_deadlock(pair: Pair) -> None:
    """Two resources in opposite order: one of the two gets Conflict, and the other goes on."""
    for line in (pair.a, pair.b):
        if pair.race.line != "pymysql":
            line.tx.rows("SET deadlock_timeout = '20ms'")
            line.commit() if pair.race.line == "psycopg" else None
        line.begin()
    check(pair.a, 10, A, "race:1")
    check(pair.b, 10, B, "race:2")
    waiting = pair.later(pair.a, lambda: check(pair.a, 10, A, "race:2"))
    failed, going_on = pair.a, pair.b
    try:
        check(pair.b, 10, B, "race:1")
    except Conflict:
        failed, going_on = pair.b, pair.a
        pair.b.rollback()
        waiting.result(PATIENCE)
    else:
        with pytest.raises(Conflict):
            waiting.result(PATIENCE)
        pair.a.rollback()
    assert failed is not going_on
    going_on.commit()


LIMITS = {
    "psycopg": "SET LOCAL lock_timeout = '20ms'",
    "asyncpg": "SET LOCAL lock_timeout = '20ms'",
    "pymysql": "SET SESSION innodb_lock_wait_timeout = 1",
}


def test_a_lock_that_takes_too_long(pair: Pair) -> None:
    """What the database gives up is Conflict: nothing was accepted, and the same may be tried again."""
    pair.a.begin()
    check(pair.a, 10, A)
    pair.b.begin()
    pair.b.tx.rows(LIMITS[pair.race.line])
    with pytest.raises(Conflict) as caught:
        check(pair.b, 11, B)
    assert caught.value.__cause__ is not None
    pair.b.rollback()
    pair.a.commit()
    pair.b.begin()
    check(pair.b, 11, B)
    pair.b.commit()


# ---------------------------------------------------------------- a row that comes and goes


@contextmanager
def between(connection: sqlalchemy.Connection, word: str, act: Callable[[], None]) -> Iterator[list[str]]:
    """Something happens after the first statement that has this word in it. -> the statements."""
    statements: list[str] = []

    def heard(_: Any, __: Any, statement: str, *___: Any) -> None:
        statements.append(statement)
        if sum(word in one for one in statements) == 1 and word in statement:
            act()

    sqlalchemy.event.listen(connection, "after_cursor_execute", heard)
    yield statements
    sqlalchemy.event.remove(connection, "after_cursor_execute", heard)


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.slow) for one in ("psycopg", "pymysql")])
def rows(request: pytest.FixtureRequest) -> Iterator[tuple[sqlalchemy.Engine, Callable[[str], None]]]:
    """A table without a row, at READ COMMITTED, and somebody else who is faster."""
    place: Database = request.getfixturevalue("mariadb_database" if request.param == "pymysql" else "postgres_database")
    engine = sqlalchemy.create_engine(place.sqlalchemy_url(request.param), isolation_level="READ COMMITTED")

    def at_once(sql: str) -> None:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(sql))

    at_once("CREATE TABLE reports (id INTEGER PRIMARY KEY, body VARCHAR(10), last_fencing_token BIGINT)")
    yield engine, at_once
    engine.dispose()


def write(connection: sqlalchemy.Connection, fence: int = 10) -> None:
    """Through the fence column."""
    GUARD.update(connection, "reports", key={"id": 1}, values={"body": "A"}, lease=fence, resource="race:1")


@pytest.mark.parametrize("fence", ["NULL", "9", "10"])
def test_a_row_that_comes_in_the_meantime_is_written(rows: Any, fence: str) -> None:
    """An update that finds no row, and then one that it may write, writes it: it never says that it did and did not."""
    engine, at_once = rows
    with (
        engine.begin() as connection,
        between(connection, "UPDATE", lambda: at_once(f"INSERT INTO reports VALUES (1, '', {fence})")) as statements,
    ):
        write(connection)
    assert len(statements) == 3
    with engine.begin() as connection:
        assert connection.execute(sqlalchemy.text("SELECT body, last_fencing_token FROM reports")).one() == ("A", 10)


def test_a_row_that_comes_with_a_newer_fence(rows: Any) -> None:
    """It is a stale owner then."""
    engine, at_once = rows
    with (
        engine.begin() as connection,
        between(connection, "UPDATE", lambda: at_once("INSERT INTO reports VALUES (1, '', 11)")),
        pytest.raises(StaleOwner),
    ):
        write(connection)


@pytest.mark.slow
def test_a_row_that_comes_and_goes(postgres_database: Database) -> None:
    """Where the row cannot be held, it may be gone again: Conflict, and nothing was written."""
    engine = sqlalchemy.create_engine(postgres_database.sqlalchemy_url("psycopg"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE reports (id INTEGER, body TEXT, last_fencing_token BIGINT)"))

    def at_once(sql: str) -> None:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(sql))

    with (
        engine.begin() as connection,
        between(connection, "UPDATE", lambda: at_once("INSERT INTO reports VALUES (1, '', NULL)")),
        between(connection, "SELECT", lambda: at_once("DELETE FROM reports")),
        pytest.raises(Conflict),
    ):
        write(connection)
    engine.dispose()


# ---------------------------------------------------------------- two make the table

MAKER = """
import json, sys
from leasehold.guards.sql import FenceGuard
kind, where = sys.argv[1], json.loads(sys.argv[2])
if kind == "psycopg":
    import psycopg
    connection = psycopg.connect(where)
elif kind == "psycopg-autocommit":
    import psycopg
    connection = psycopg.connect(where, autocommit=True)
elif kind == "pymysql":
    import pymysql
    connection = pymysql.connect(**where, ssl_disabled=True)
else:
    import sqlite3
    connection = sqlite3.connect(where, timeout=30)
print("ready", flush=True)
for line in sys.stdin:
    FenceGuard("made_" + line.strip()).create(connection)
    connection.commit()
    print("made", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["psycopg", "psycopg-autocommit", "pymysql", "sqlite3"])
def test_two_processes_make_the_table(request: pytest.FixtureRequest, kind: str) -> None:
    """At the same time, again and again: neither stumbles."""
    if kind == "sqlite3":
        where: Any = str(request.getfixturevalue("tmp_path") / "made.db")
    elif kind == "pymysql":
        where = request.getfixturevalue("mariadb_database").parameters
    else:
        where = request.getfixturevalue("postgres_database").dsn
    command = [sys.executable, "-c", MAKER, kind, json.dumps(where)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    makers = [subprocess.Popen(command, **pipes) for _ in range(2)]
    assert [maker.stdout.readline() for maker in makers] == ["ready\n"] * 2  # type: ignore[union-attr] # a pipe
    for number in range(20):
        for maker in makers:
            maker.stdin.write(f"{number}\n")  # type: ignore[union-attr] # a pipe
        assert [maker.stdout.readline() for maker in makers] == ["made\n"] * 2  # type: ignore[union-attr] # a pipe
    for maker in makers:
        maker.communicate(timeout=PATIENCE)
    assert [maker.returncode for maker in makers] == [0, 0]


# ---------------------------------------------------------------- SQLite, which locks all of it


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_sqlite_readers_and_a_writer(tmp_path: Any, journal: str) -> None:
    """A shared check begins a transaction: what is read after it is of one moment, whoever writes meanwhile."""
    path = tmp_path / "app.db"
    guard = FenceGuard()
    with closing(sqlite3.connect(path)) as writer, closing(sqlite3.connect(path, timeout=0)) as reader:
        writer.execute(f"PRAGMA journal_mode = {journal}")
        writer.execute("PRAGMA busy_timeout = 0")
        guard.create(writer)
        writer.execute("CREATE TABLE reports (body TEXT)")
        guard.check(writer, 10, resource="race:1", owner=A)
        writer.execute("INSERT INTO reports VALUES ('of A')")
        writer.commit()

        guard.check(reader, 10, resource="race:1", owner=A, shared=True)
        assert reader.in_transaction
        guard.check(writer, 11, resource="race:1", owner=B)
        writer.execute("UPDATE reports SET body = 'of B'")
        if journal == "WAL":
            writer.commit()
        else:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                writer.commit()
        assert reader.execute("SELECT body FROM reports").fetchall() == [("of A",)]
        reader.commit()
        writer.commit()

        with pytest.raises(StaleOwner):
            guard.check(reader, 10, resource="race:1", owner=A, shared=True)
        assert not reader.in_transaction


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_sqlite_conflicts(tmp_path: Any, journal: str) -> None:
    """A lock that takes too long, and in WAL a transaction that has read before somebody wrote: Conflict."""
    path = tmp_path / "app.db"
    guard = FenceGuard()
    with closing(sqlite3.connect(path)) as first, closing(sqlite3.connect(path, timeout=0.05)) as second:
        first.execute(f"PRAGMA journal_mode = {journal}")
        guard.create(first)
        guard.check(first, 10, resource="race:1", owner=A)
        with pytest.raises(Conflict, match="SQLITE_BUSY"):
            guard.check(second, 11, resource="race:1", owner=B)
        first.commit()
        if journal == "WAL":
            second.execute("BEGIN")
            second.execute("SELECT * FROM leasehold_fences").fetchall()
            guard.check(first, 10, resource="race:1", owner=A)
            first.execute("CREATE TABLE reports (body TEXT)")
            first.commit()
            with pytest.raises(Conflict, match="SQLITE_BUSY_SNAPSHOT"):
                guard.check(second, 11, resource="race:1", owner=B)
            second.rollback()
        guard.check(second, 11, resource="race:1", owner=B)


def test_the_dialects_have_what_they_need() -> None:
    """Only MariaDB needs something before its statements, and only there an update may count nothing."""
    found: dict[str, Dialect] = DIALECTS
    assert [name for name, one in found.items() if one.deciding] == ["mariadb"]
    assert [name for name, one in found.items() if one.counts_changes] == ["mariadb"]
