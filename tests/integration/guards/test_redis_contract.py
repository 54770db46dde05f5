"""The contract of a guard, over every way to one on Redis."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.testing.guards import CASES
from tests.support.guards.redis_stage import WAYS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("Valkey, asyncio", "Cluster, valkey-py")])
@pytest.mark.parametrize("case", CASES)
def test_contract(case: str, way: str, guard: Any) -> None:
    """The case holds for this client and this server."""
    CASES[case](guard)
