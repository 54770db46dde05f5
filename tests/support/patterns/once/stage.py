"""Where once is tested: both flavours, at every place where results can be kept, and a rival in another program."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from leasehold.patterns.results import ResultStore, SQLResultStore
from tests.support.patterns.results.stage import table
from tests.support.servers.database import Database

PLACES = ("memory", "sqlite", "redis", "postgresql", "sql-sqlite", "sql-postgresql", "sql-mariadb")
QUICK = ("memory", "sqlite", "sql-sqlite")
DRIVERS = {"sql-postgresql": ("psycopg", "psycopg"), "sql-mariadb": ("pymysql", "aiomysql")}
_numbers = itertools.count(1)


class Stage:
    """One flavour at one place. What a test says is the same for all of them."""

    def __init__(
        self, asynchronous: bool, target: str, result_stores: tuple[ResultStore | None, ResultStore | None]
    ) -> None:
        self.asynchronous = asynchronous
        self.stack = ExitStack()
        self.runner = self.stack.enter_context(asyncio.Runner()) if asynchronous else None
        self.rival: leasehold.Leasehold = self.stack.enter_context(leasehold.connect(target))
        self.rival_results = result_stores[0]
        self.results = result_stores[asynchronous]
        self.hold: Any = leasehold.aio.connect(target) if asynchronous else leasehold.connect(target)

    def decorated(self, function: Callable[..., Any], *name: Any, **options: Any) -> Callable[..., Any]:
        """The function behind ``once``, called by anybody as if it were plain."""
        once = self.hold.once(*name, store=self.results, **options)
        runner = self.runner
        if runner is None:
            return once(function)  # type: ignore[no-any-return]  # of either flavour

        @functools.wraps(function)
        async def work(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return function(*args, **kwargs)

        run = once(work)
        return lambda *args, **kwargs: runner.run(run(*args, **kwargs))

    def rivals(self, function: Callable[..., Any], *name: Any, **options: Any) -> Callable[..., Any]:
        """The same in another program, on threads."""
        run: Callable[..., Any] = self.rival.once(*name, store=self.rival_results, **options)(function)
        return run

    def stored(self, resource: str) -> Any:
        """What lies there."""
        results: Any = self.rival_results or self.rival._results
        return results.read(resource)

    def close(self) -> None:
        """Everything is let go."""
        if self.runner is None:
            self.hold.close()
        else:
            self.runner.run(self._close())
        self.stack.close()

    async def _close(self) -> None:
        await self.hold.close()
        engine = getattr(self.results, "engine", None)
        if engine is not None:
            await engine.dispose()


class Shelved(SQLResultStore):
    """One that remembers its engine, to be let go."""

    __slots__ = ("engine",)

    def __init__(self, engine: Any) -> None:
        super().__init__(engine, table())
        self.engine = engine


def open_stage(place: str, flavour: str, request: pytest.FixtureRequest) -> Stage:
    """Empty, whatever was there before."""
    folder: Path = request.getfixturevalue("tmp_path")
    asynchronous = flavour == "asyncio"
    if place == "memory":
        return Stage(asynchronous, f"memory://once-{next(_numbers)}", (None, None))
    if place == "sqlite":
        return Stage(asynchronous, f"sqlite:///{folder}/leases.db", (None, None))
    if place == "redis":
        return Stage(asynchronous, request.getfixturevalue("redis_url"), (None, None))
    if place == "postgresql":
        return Stage(asynchronous, request.getfixturevalue("postgres_database").url, (None, None))
    return _on_sql(place, asynchronous, folder, request)


def _on_sql(place: str, asynchronous: bool, folder: Path, request: pytest.FixtureRequest) -> Stage:
    """Leases in memory, results in a database."""
    urls = (f"sqlite:///{folder}/app.db", f"sqlite+aiosqlite:///{folder}/app.db")
    if place != "sql-sqlite":
        name = "postgres" if place == "sql-postgresql" else "mariadb"
        database: Database = request.getfixturevalue(f"{name}_server").main
        urls = tuple(database.sqlalchemy_url(driver) for driver in DRIVERS[place])  # type: ignore[assignment]  # two
    plain = Shelved(create_engine(urls[0]))
    plain.create()
    awaited = Shelved(create_async_engine(urls[1])) if asynchronous else None
    if awaited is not None:
        awaited.table = plain.table
    stage = Stage(asynchronous, f"memory://once-{next(_numbers)}", (plain, plain if awaited is None else awaited))
    stage.stack.callback(plain.engine.dispose)
    return stage
