"""A spied store in memory, and coordinators over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

import leasehold
from leasehold.primitives import health
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader is asked for its health a hundred times a second, however long its ttl is."""
    monkeypatch.setattr(health, "renew_after", lambda _ttl: 0.01)


@pytest.fixture
def spy() -> Spy:
    """A store that remembers every op."""
    return Spy(MemoryStore())


@pytest.fixture
def hold(spy: Spy) -> Iterator[leasehold.Leasehold]:
    """A coordinator for threads."""
    with leasehold.connect(spy) as hold:
        yield hold


@pytest.fixture
async def ahold(spy: Spy) -> AsyncIterator[leasehold.AsyncLeasehold]:
    """A coordinator for asyncio."""
    async with leasehold.aio.connect(spy) as hold:
        yield hold
