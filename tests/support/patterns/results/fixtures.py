"""Fixtures for result stores: every way to one, and the servers that they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.guards.redis_stage import cluster, old_server, valkey_server
from tests.support.patterns.results.stage import EVERY, opened, parameters

__all__ = ["cluster", "old_server", "valkey_server"]  # fixtures


@pytest.fixture(params=parameters(EVERY))
def results(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A result store on which nothing stands; an awaited one is awaited for you."""
    with opened(request.param, request) as results:
        yield results
