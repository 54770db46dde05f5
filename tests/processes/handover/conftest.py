"""Crews that hand leases over, on each store that processes share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.stores.redis.protocol import SCRIPTS
from tests.support.redis.crew import RedisCrew
from tests.support.servers.redis import RedisServer
from tests.support.workers.crew import Crew

MODULE = "tests.processes.handover.worker"
ON_SQLITE = pytest.mark.parametrize("crew", ["sqlite"], indirect=True)  # for what the stores do alike
ON_REDIS = pytest.mark.parametrize("crew", ["redis"], indirect=True)


def flavour_of(crew: Crew) -> str:
    """Threads on one store, tasks on the other: each is seen once."""
    return "asyncio" if isinstance(crew, RedisCrew) else "sync"


@pytest.fixture(params=["sqlite", "redis"])
def crew(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crew]:
    """Real processes, reaped at the end."""
    if request.param == "redis":
        request.getfixturevalue("redis_url")  # an empty server
    servers = [request.getfixturevalue("redis_server")] if request.param == "redis" else []
    crew = RedisCrew(tmp_path, *servers) if servers else Crew(tmp_path)
    crew.module = MODULE
    yield crew
    crew.close()


@pytest.fixture
def redis_crew(tmp_path: Path, redis_server: RedisServer, redis_url: str) -> Iterator[RedisCrew]:
    """Real processes whose network can be made bad. The server knows the scripts: the first call does the work."""
    crew = RedisCrew(tmp_path, redis_server)
    crew.module = MODULE
    for script in SCRIPTS:
        crew.look.client.script_load(script.text)
    yield crew
    crew.close()
