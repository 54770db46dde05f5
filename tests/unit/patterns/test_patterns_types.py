"""How a type checker sees the patterns. mypy reads this file in `make check`; here it only has to run."""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine
from typing import Any, assert_type

import aiosqlite
import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from leasehold import patterns
from leasehold.patterns import Insertion, advisory_lock, insert_once, row_lock, transition

KEY = {"id": 1}
Found = dict[str, Any]


def is_done_at_once(
    plain: sqlite3.Connection,
    postgres: psycopg.Connection,
    maria: pymysql.Connection[pymysql.cursors.Cursor],
    core: sqlalchemy.Connection,
    session: Session,
) -> None:
    """These give what was asked for."""
    assert_type(transition(plain, "t", key=KEY, when=KEY, set=KEY), bool)
    assert_type(transition(core, "t", key=KEY, when=KEY, set=KEY, version=None), bool)
    assert_type(row_lock(postgres, "t", key=KEY, nowait=True), Found)
    assert_type(row_lock(session, "t", key=KEY), Found)
    assert_type(insert_once(maria, "t", KEY, key="id"), Insertion)
    assert_type(insert_once(core, "t", KEY, key=("id",)), Insertion)


def is_awaited(
    lite: aiosqlite.Connection, postgres: psycopg.AsyncConnection, core: AsyncConnection, session: AsyncSession
) -> list[Any]:
    """These give something to await: a checker complains where nobody does."""
    return [
        assert_type(transition(lite, "t", key=KEY, when=KEY, set=KEY), Coroutine[Any, Any, bool]),
        assert_type(transition(session, "t", key=KEY, when=KEY, set=KEY), Coroutine[Any, Any, bool]),
        assert_type(row_lock(postgres, "t", key=KEY), Coroutine[Any, Any, Found]),
        assert_type(insert_once(core, "t", KEY, key="id"), Coroutine[Any, Any, Insertion]),
        assert_type(advisory_lock(postgres, "ledger", 7, wait="5s"), Coroutine[Any, Any, None]),
        assert_type(advisory_lock(session, "ledger", wait=None), Coroutine[Any, Any, None]),
    ]


def test_public_names_are_loaded_when_asked_for() -> None:
    """Each of ``__all__`` is there, a name that is none says so, and ``dir`` shows them."""
    assert [name for name in patterns.__all__ if getattr(patterns, name).__name__ != name] == []
    assert set(patterns.__all__) <= set(dir(patterns))
    assert sorted(patterns.__all__) == patterns.__all__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = patterns.Nothing
