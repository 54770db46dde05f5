"""Crews that hand leases over, on each store that processes share; and a stage in haste."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold._core import flows, holding
from leasehold.stores.redis.protocol import SCRIPTS
from leasehold.testing.parties import FLAVOURS
from tests.processes.crew import Crew
from tests.redis.crew import RedisCrew
from tests.redis.stage import HASTE, Stage
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

MODULE = "tests.handover.worker"
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


@pytest.fixture(params=FLAVOURS)
def stage(request: pytest.FixtureRequest, redis_server: RedisServer, proxy: Proxy) -> Iterator[Stage]:
    """Threads, then asyncio, behind a network in front of an empty server."""
    stage = Stage(request.param, redis_server, proxy)
    yield stage
    stage.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handing over and adopting give up after tenths of a second in place of seconds."""
    monkeypatch.setattr(flows, "LEAST_BUDGET_MS", round(HASTE * 1000))
    monkeypatch.setattr(holding, "BUDGET_MS", round(HASTE * 1000))
