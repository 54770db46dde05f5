"""Three or five nodes for each test, in both flavours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.redlock.stage import Stage, aged
from tests.support.servers.redlock import RedlockServers


def staged(size: int, flavour: str) -> Iterator[Stage]:
    """So many nodes, for parties of that flavour."""
    with aged(RedlockServers(size)) as servers:
        stage = Stage(servers, flavour)
        yield stage
        stage.close()


@pytest.fixture(params=["sync", "asyncio"])
def three(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Three nodes."""
    yield from staged(3, request.param)


@pytest.fixture(params=["sync", "asyncio"])
def five(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Five nodes."""
    yield from staged(5, request.param)
