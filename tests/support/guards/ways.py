"""The ways to a transaction that FenceGuard knows, and a database to try them on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

SECRET = "5ec2e7" * 6
A, B = f"host-1:11:{SECRET}.1", f"host-2:22:{SECRET}.2"
RESOURCE = "report-export:42"

Begin = Callable[[Path], AbstractContextManager[Any]]


@contextmanager
def by_sqlite3(path: Path) -> Iterator[sqlite3.Connection]:
    """sqlite3 as it comes: it begins on its own."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection


@contextmanager
def by_sqlite3_begin(path: Path) -> Iterator[sqlite3.Connection]:
    """sqlite3 with a transaction that the user began."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection


@contextmanager
def by_engine(path: Path) -> Iterator[sqlalchemy.Connection]:
    """SQLAlchemy, in the form of the README."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def by_autobegin(path: Path) -> Iterator[sqlalchemy.Connection]:
    """SQLAlchemy, begun by its first statement and committed as you go."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() as connection:
            yield connection
            connection.commit()
    finally:
        engine.dispose()


@contextmanager
def by_session(path: Path) -> Iterator[Session]:
    """An ORM session."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def by_scoped_session(path: Path) -> Iterator[scoped_session[Session]]:
    """The session of a thread, as web frameworks keep it."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    session = scoped_session(sessionmaker(engine))
    try:
        yield session
        session.commit()
    finally:
        session.remove()
        engine.dispose()


WAYS = [by_sqlite3, by_sqlite3_begin, by_engine, by_autobegin, by_session, by_scoped_session]


def write(tx: Any, body: str) -> None:
    """The write that is worth guarding, in either dialect of Python."""
    sql = f"UPDATE reports SET body = '{body}' WHERE report_id = 42"
    tx.execute(sql if isinstance(tx, sqlite3.Connection) else sqlalchemy.text(sql))


def rows(path: Path, table: str = "leasehold_fences") -> list[tuple[Any, ...]]:
    """What a table holds for everybody to see."""
    with by_sqlite3(path) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()
