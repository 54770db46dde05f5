"""A crew for each target, and where each target is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.guards.model.crew import GuardCrew
from tests.guards.model.targets import Description
from tests.guards.model.web import Service
from tests.servers.database import Database

Gather = Callable[[Description], GuardCrew]


@pytest.fixture
def gather(tmp_path: Path) -> Iterator[Gather]:
    """A crew around a target; reaped at the end."""
    with ExitStack() as stack:

        def gather(description: Description) -> GuardCrew:
            crew = GuardCrew(tmp_path, description)
            stack.callback(crew.close)
            return crew

        yield gather


@pytest.fixture
def crew(request: pytest.FixtureRequest, gather: Gather) -> GuardCrew:
    """For the target that the test names, and whatever it wants to be different: a name or a pair."""
    name, more = request.param if isinstance(request.param, tuple) else (request.param, {})
    kind, url, extra = request.getfixturevalue(f"{name}_target")
    return gather(Description(kind, url, {**extra, **more}))


# ---------------------------------------------------------------- where each is


@pytest.fixture
def sqlite_target(tmp_path: Path) -> Description:
    """A file."""
    return Description("sqlite", str(tmp_path / "app.db"))


@pytest.fixture
def psycopg_target(postgres_database: Database) -> Description:
    """A database of the shared PostgreSQL."""
    return Description("psycopg", postgres_database.url)


@pytest.fixture
def sqlalchemy_target(postgres_database: Database) -> Description:
    """The same, through SQLAlchemy."""
    return Description("sqlalchemy", postgres_database.sqlalchemy_url("psycopg"))


@pytest.fixture
def asyncpg_target(postgres_database: Database) -> Description:
    """The same, through asyncpg."""
    return Description("asyncpg", postgres_database.url)


@pytest.fixture
def pymysql_target(mariadb_database: Database) -> Description:
    """A database of the shared MariaDB."""
    return Description("pymysql", mariadb_database.url, {"server": mariadb_database.parameters})


@pytest.fixture
def redis_target(redis_url: str) -> Description:
    """The shared Redis, emptied."""
    return Description("redis", redis_url)


@pytest.fixture
def http_target(tmp_path: Path) -> Iterator[Description]:
    """A service of its own."""
    with Service(tmp_path) as service:
        yield Description("http", service.url)
