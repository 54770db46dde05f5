"""The contract of a guard, over every guard and every way to it."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.guards import memory
from leasehold.guards.guard import Guard
from leasehold.testing.guards import CASES


@pytest.fixture
def memory_guard() -> Guard:
    """In memory."""
    return memory.FenceGuard()


# Each is the name of a fixture that gives a guard which has seen nothing; those that need a server are slow.
WAYS: list[Any] = [
    "memory_guard",
    pytest.param("s3_guard", marks=pytest.mark.slow),
    pytest.param("s3_put_guard", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_contract(case: str, way: str, request: pytest.FixtureRequest) -> None:
    """The case holds for this guard."""
    guard: Guard = request.getfixturevalue(way)
    CASES[case](guard)


def test_the_suite_has_cases() -> None:
    """It is not empty, and a guard that accepts everything does not pass it."""

    class Credulous:
        def check(self, *_: object, **__: object) -> None:
            """Whatever you say."""

    passed = []
    for name, case in CASES.items():
        try:
            case(Credulous())
        except (AssertionError, ValueError):  # ValueError: no event where there should be one
            continue
        passed.append(name)
    assert passed == ["a_newer_fence_is_accepted", "one_owner_may_write_many_times", "resources_are_apart"]
