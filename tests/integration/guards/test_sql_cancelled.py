"""A task that is cancelled while its check waits for a lock: nothing was accepted, and nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pytest

from leasehold.errors import LeaseholdError
from tests.support.guards.desks import Desk, Tx, open_desk
from tests.support.guards.fixtures import place_of
from tests.support.guards.ways import RESOURCE, A, B
from tests.support.waiting import PATIENCE

NAMES = [
    "postgresql-async-psycopg", "postgresql-asyncpg", "postgresql-async-sqlalchemy", "postgresql-async-session",
    "mariadb-async-sqlalchemy",
]  # fmt: skip
PLAIN = {"postgresql": "postgresql-psycopg", "mariadb": "mariadb-pymysql"}
WAITS = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mariadb": "SELECT variable_value FROM information_schema.global_status"
    " WHERE variable_name = 'innodb_row_lock_current_waits'",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("again", [False, True])
def test_cancelled_while_it_waits(request: pytest.FixtureRequest, name: str, again: bool) -> None:
    """CancelledError leaves, whatever the driver makes of it; a check in the same transaction is not taken for made."""
    database = name.partition("-")[0]
    plain = PLAIN[database]
    with (
        closing(open_desk(plain, place_of(plain, request))) as holder,
        closing(open_desk(name, place_of(name, request))) as desk,
    ):
        ends: list[bool] = []
        with holder.begin() as held:
            check(held, holder, 10, A)
            with suppress(Exception), desk.begin() as tx:  # what is left of the transaction is the driver's
                runner: Any = tx._runner
                call: Any = partial(holder.guard.check, tx.raw, 11, resource=RESOURCE, owner=B)
                ends.append(runner.run(cancelled(call, lambda: waits(holder, database))))
                if again:
                    with pytest.raises(LeaseholdError):
                        tx.do(lambda _: call())
                raise ZeroDivisionError  # rolls back
        assert ends == [True]
        assert [row[1] for row in holder.seen()] == [10]
        with holder.begin() as tx:
            check(tx, holder, 10, A)


async def cancelled(call: Callable[[], Coroutine[Any, Any, None]], waiting: Callable[[], bool]) -> bool:
    """Begin it, cancel it when it waits. -> did it end as it should?"""
    task = asyncio.ensure_future(call())
    for _ in range(int(PATIENCE * 100)):
        if await asyncio.to_thread(waiting):
            break
        await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return task.cancelled()


def waits(holder: Desk, database: str) -> bool:
    """Somebody waits for a lock of this server."""
    with holder.begin() as tx:
        ((count,),) = tx.rows(WAITS[database])
    return int(count) > 0


def check(tx: Tx, desk: Desk, fence: int, owner: str) -> None:
    """Present a fence."""
    tx.do(lambda raw: desk.guard.check(raw, fence, resource=RESOURCE, owner=owner))
