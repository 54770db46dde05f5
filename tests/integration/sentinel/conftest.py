"""A service in each flavour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.sentinel.service import Service
from tests.support.parties import FLAVOURS
from tests.support.servers.sentinel import RedisSentinel


@pytest.fixture(params=FLAVOURS)
def service(request: pytest.FixtureRequest, redis_sentinel: RedisSentinel) -> Iterator[Service]:
    """Threads, then asyncio; nothing is left behind."""
    service = Service(request.param, redis_sentinel)
    yield service
    service.close()
