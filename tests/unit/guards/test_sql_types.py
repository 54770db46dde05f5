"""How a type checker sees the SQL guard. mypy reads this file in `make check`; here it only has to run."""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine
from contextlib import closing
from typing import Any, assert_type

import aiosqlite
import psycopg
import pymysql
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

import leasehold
from leasehold.guards import Guard, memory
from leasehold.guards.sql import FenceGuard

guard = FenceGuard()
Awaited = Coroutine[Any, Any, None]


def is_done_at_once(
    plain: sqlite3.Connection,
    postgres: psycopg.Connection,
    maria: pymysql.Connection[pymysql.cursors.Cursor],
    core: sqlalchemy.Connection,
    session: Session,
    scoped: scoped_session[Session],
) -> None:
    """These give nothing."""
    assert_type(guard.check(plain, 1, resource="a"), None)
    assert_type(guard.check(postgres, 1, resource="a"), None)
    assert_type(guard.check(maria, 1, resource="a"), None)
    assert_type(guard.check(core, 1, resource="a"), None)
    assert_type(guard.check(session, 1, resource="a"), None)
    assert_type(guard.check(scoped, 1, resource="a"), None)
    assert_type(guard.create(core), None)


def is_awaited(
    lite: aiosqlite.Connection, postgres: psycopg.AsyncConnection, core: AsyncConnection, session: AsyncSession
) -> list[Awaited]:
    """These give something to await: a checker complains where nobody does."""
    return [
        assert_type(guard.check(lite, 1, resource="a"), Awaited),
        assert_type(guard.check(postgres, 1, resource="a"), Awaited),
        assert_type(guard.check(core, 1, resource="a"), Awaited),
        assert_type(guard.update(session, "t", key={"a": 1}, values={}, lease=1, resource="a"), Awaited),
        assert_type(guard.create(core), Awaited),
    ]


def test_leases_and_fences() -> None:
    """Leases of both flavours and bare fences are taken; text is not, and neither is what is no connection."""
    with leasehold.connect("memory://types-guards") as hold, closing(sqlite3.connect(":memory:")) as connection:
        guard.create(connection)
        with hold.lock("job") as lease:
            guard.check(connection, lease)
            is_guard: Guard = memory.FenceGuard()
            is_guard.check(lease)
            is_guard = guard.within(lambda: connection)
            is_guard.check(lease)
        for wrong in (
            lambda: guard.check(connection, "12", resource="a"),  # type: ignore[call-overload] # a text is no fence
            lambda: guard.check("app.db", 12, resource="a"),  # type: ignore[call-overload] # a path is no connection
        ):
            try:
                wrong()  # type: ignore[no-untyped-call] # as it stands there
            except leasehold.InvalidRequest:
                continue
            raise AssertionError("it was taken")
