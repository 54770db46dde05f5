"""The contract of a guard, over every guard and every way to it."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pytest

from leasehold.guards import memory
from leasehold.guards.guard import Guard
from leasehold.testing.guards import CASES
from tests.support.guards.desks import Desk


@pytest.fixture
def memory_guard() -> Guard:
    """In memory."""
    return memory.FenceGuard()


class InTransactions:
    """The SQL guard, each check in a transaction of its own. A desk with an event loop serves one thread at a time."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.turn: Any = threading.Lock() if desk.one_at_a_time else nullcontext()

    def check(self, *args: Any, **more: Any) -> None:
        """As a user would."""
        with self.turn, self.desk.begin() as tx:
            tx.do(lambda raw: self.desk.guard.check(raw, *args, **more))


@pytest.fixture
def sql_guard(desk: Desk) -> Guard:
    """In SQL."""
    return InTransactions(desk)


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


ONE_OF_EACH = ["sqlite-sqlite3", "postgresql-psycopg", "postgresql-asyncpg", "mariadb-pymysql"]


@pytest.mark.parametrize("desk", [pytest.param(one, marks=pytest.mark.slow) for one in ONE_OF_EACH], indirect=True)
@pytest.mark.parametrize("case", CASES)
def test_contract_in_sql(case: str, sql_guard: Guard) -> None:
    """The case holds on every database. The other ways to them differ in how they speak, not in what they say."""
    CASES[case](sql_guard)


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
