"""Fixtures for shelves: every way to one, and the servers that they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.guards.redis_stage import cluster, old_server, valkey_server
from tests.patterns.shelves.stage import EVERY, opened, parameters

__all__ = ["cluster", "old_server", "valkey_server"]  # fixtures


@pytest.fixture(params=parameters(EVERY))
def shelf(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A shelf on which nothing stands; an awaited one is awaited for you."""
    with opened(request.param, request) as shelf:
        yield shelf
