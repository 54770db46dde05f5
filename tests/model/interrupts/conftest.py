"""The fixtures for interrupts: at observers, and in each store."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.support.observe.fixtures import heard

__all__ = ["heard"]


@pytest.fixture(autouse=True)
def quick_collections() -> None:
    """Each of hundreds of rounds collects garbage. What thousands of tests have left, which would take half a second on
    a busy machine, is not looked at again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A store of that kind that several coordinators share."""
    if kind == "postgresql":
        return str(request.getfixturevalue("postgres_database").url)
    return f"memory://{tmp_path}" if kind == "memory" else f"sqlite:///{tmp_path}/leases.db"
