"""The contract of a lock, over every store and both flavours."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import leasehold.stores
from leasehold.core.ports import Store
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from leasehold.stores.sqlite import SQLiteStore
from leasehold.testing.contract import CASES
from leasehold.testing.parties import FLAVOURS
from leasehold.testing.scene import Scene


def memory(clock: ManualClock, folder: Path) -> Callable[[], Store]:
    """Every party shares one store object: that is what a process-wide space is."""
    store = MemoryStore(clock)
    return lambda: store


def sqlite(clock: ManualClock, folder: Path) -> Callable[[], Store]:
    """Every party opens the same file."""
    return lambda: SQLiteStore(str(folder / "leases.db"), clock)


STORES = {"memory": memory, "sqlite": sqlite}
COMBINATIONS = [(store, flavour) for store in STORES for flavour in FLAVOURS]


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """A fresh store, and a clock that the case turns."""
    store, flavour = request.param
    clock = ManualClock()
    scene = Scene(STORES[store](clock, tmp_path), FLAVOURS[flavour], clock)
    yield scene
    scene.close()


@pytest.mark.parametrize("scene", COMBINATIONS, indirect=True, ids="-".join)
@pytest.mark.parametrize("name", CASES)
def test_contract(name: str, scene: Scene) -> None:
    """The case holds on this store in this flavour."""
    CASES[name](scene)


def test_every_store_takes_part() -> None:
    """A store that exists and has no scene here fails the suite: nothing is left out quietly."""
    helpers = {"clock"}
    existing = {module.name for module in pkgutil.iter_modules(leasehold.stores.__path__)} - helpers
    assert existing == set(STORES)


def test_every_combination_is_run() -> None:
    """Stores times flavours, none missing, and the suite has cases."""
    assert set(COMBINATIONS) == {(store, flavour) for store in STORES for flavour in ("sync", "asyncio")}
    assert len(CASES) >= 25
