"""A shop for each test: a database, and one way to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.patterns.jobs.shops import EVERY, ONE_EACH, Shop, place


@pytest.fixture(params=EVERY, ids=lambda way: way.__name__)
async def shop(request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """By every driver."""
    async with place(request.param, request) as found:
        yield found


@pytest.fixture(params=ONE_EACH, ids=lambda way: way.__name__)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """By one driver for each database and flavour: for what drivers cannot change."""
    async with place(request.param, request) as found:
        yield found
