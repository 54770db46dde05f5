"""The stores that the programs run on."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A file of its own."""
    return f"sqlite:///{tmp_path}/leases.db"


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """Each store in turn."""
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["sqlite", "redis"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """Each store that several processes share."""
    return str(request.getfixturevalue(f"{request.param}_url"))
