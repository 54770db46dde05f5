"""Parties at a Cluster, in either flavour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.parties import FLAVOURS
from tests.support.redis.cluster import Company
from tests.support.servers.cluster import RedisCluster


@pytest.fixture(params=FLAVOURS)
def company(request: pytest.FixtureRequest, redis_cluster: RedisCluster) -> Iterator[Company]:
    """Threads, then asyncio, at an empty Cluster of three masters with a replica each."""
    company = Company(request.param, redis_cluster)
    yield company
    company.close()
