"""The pytest plugin: fixtures with which applications test their own use of leases, without servers or sleeping.

It is loaded by pytest wherever Leasehold is installed (``-p no:leasehold`` leaves it out), so nothing is imported
before a fixture is used. The fixtures are plain functions: those for asyncio work with pytest-asyncio, with anyio and
with ``asyncio.run``. A fixture of yours with one of these names takes the place of ours, as always in pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from leasehold.coordinator import AsyncLeasehold, Leasehold
    from leasehold.testing.clock import TurnableClock
    from leasehold.testing.standin import StandInStore


@pytest.fixture
def leasehold_clock() -> TurnableClock:
    """The clock of this test's leases. Its time passes only with ``leasehold_clock.advance("31s")``."""
    from leasehold.testing.clock import TurnableClock

    return TurnableClock()


@pytest.fixture
def leasehold_store(leasehold_clock: TurnableClock) -> Iterator[StandInStore]:
    """The store of this test, empty at first and shared by all its coordinators. They are closed at its end."""
    from leasehold.testing.standin import StandInStore

    store = StandInStore(leasehold_clock)
    yield store
    store.end()


@pytest.fixture
def connect_leasehold(leasehold_store: StandInStore) -> Callable[..., Leasehold]:
    """Makes another coordinator on the same store: another process. Takes the options of ``leasehold.connect``."""
    from leasehold.coordinator import connect

    return partial(connect, leasehold_store)


@pytest.fixture
def connect_async_leasehold(leasehold_store: StandInStore) -> Callable[..., AsyncLeasehold]:
    """The same for asyncio."""
    from leasehold.aio import connect

    return partial(connect, leasehold_store)


@pytest.fixture
def hold(connect_leasehold: Callable[..., Leasehold]) -> Leasehold:
    """A coordinator on this test's own store, whose clock the test turns."""
    return connect_leasehold()


@pytest.fixture
def async_hold(connect_async_leasehold: Callable[..., AsyncLeasehold]) -> AsyncLeasehold:
    """The same for asyncio."""
    return connect_async_leasehold()


@pytest.fixture
def leasehold_url(leasehold_store: StandInStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of this test's store. ``LEASEHOLD_URL`` is set to it: code that calls ``leasehold.connect()`` during the
    test uses the same store as the other fixtures."""
    from secrets import token_hex

    space = f"test-{token_hex(8)}"
    leasehold_store.share_as(space)
    monkeypatch.setenv("LEASEHOLD_URL", f"memory://{space}")
    yield f"memory://{space}"
    leasehold_store.unshare(space)
