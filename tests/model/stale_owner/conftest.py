"""A crew for each target, and where each target is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.model.stale_owner.crew import GuardCrew
from tests.model.stale_owner.nest import Nest
from tests.model.stale_owner.targets import Description
from tests.model.stale_owner.web import Service
from tests.support.guards.s3_fixtures import s3_server
from tests.support.servers.database import Database
from tests.support.servers.s3 import S3Server

__all__ = ["s3_server"]  # a fixture

Gather = Callable[[Description], GuardCrew]


@pytest.fixture(scope="session")
def nest() -> Iterator[Nest]:
    """Where the workers of the whole run come from."""
    with closing(Nest()) as nest:
        yield nest


@pytest.fixture
def gather(tmp_path: Path, nest: Nest) -> Iterator[Gather]:
    """A crew around a target; reaped at the end."""
    with ExitStack() as stack:

        def gather(description: Description) -> GuardCrew:
            crew = GuardCrew(tmp_path, description, nest)
            stack.callback(crew.close)
            return crew

        yield gather


@pytest.fixture
def crew(request: pytest.FixtureRequest, gather: Gather) -> GuardCrew:
    """For the target that the test names, and whatever it wants to be different: a name or a pair.

    ``postgresql-psycopg`` is the way of a desk to a database of that kind."""
    name, more = request.param if isinstance(request.param, tuple) else (request.param, {})
    place, dash, _ = name.partition("-")
    kind, url, extra = request.getfixturevalue(f"{place}_target")
    if dash:
        kind, extra = "sql", {**extra, "way": name}
    return gather(Description(kind, url, {**extra, **more}))


# ---------------------------------------------------------------- where each is


@pytest.fixture
def sqlite_target(tmp_path: Path) -> Description:
    """A file."""
    return Description("sqlite", str(tmp_path / "app.db"))


@pytest.fixture
def postgresql_target(postgres_database: Database) -> Description:
    """A database of the shared PostgreSQL."""
    return Description("sql", "", {"server": asdict(postgres_database)})


@pytest.fixture
def mariadb_target(mariadb_database: Database) -> Description:
    """A database of the shared MariaDB."""
    return Description("sql", "", {"server": asdict(mariadb_database)})


@pytest.fixture
def redis_target(redis_url: str) -> Description:
    """The shared Redis, emptied."""
    return Description("redis", redis_url)


@pytest.fixture
def s3_target(s3_server: S3Server) -> Description:
    """A bucket of its own in the shared stand-in for S3."""
    return Description("s3", s3_server.url, {"bucket": s3_server.bucket()})


@pytest.fixture
def http_target(tmp_path: Path) -> Iterator[Description]:
    """A service of its own."""
    with Service(tmp_path) as service:
        yield Description("http", service.url)
