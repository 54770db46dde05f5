"""One call of the guard, on whatever kind of connection: done at once, or awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold.guards.fence import Fenced, Presented
from leasehold.guards.sql.awaited import AsyncAdapter
from leasehold.guards.sql.connections import LentConnection, adapter
from leasehold.guards.sql.dialects import Dialect, Statement
from leasehold.guards.sql.drivers import Adapter
from leasehold.guards.sql.failures import translated, translating
from leasehold.guards.sql.wishes import Refusal, RowResult, Steps

if TYPE_CHECKING:
    from leasehold.guards.sql import FenceGuard

START: Any = None  # what a generator is sent first


def perform(
    guard: FenceGuard, tx: Any, lease: Fenced | int, attempt: Presented, steps: Callable[[], Steps], table: str
) -> Coroutine[Any, Any, None] | None:
    """Take the steps. A refusal is told to whoever observes and leaves as StaleOwner."""
    with told(guard, lease, attempt, table):
        through = adapter(tx, guard.dialect)
        if isinstance(through, Adapter):
            _walk(through, steps(), guard.table)
            return None
    return _awaited(guard, through, lease, attempt, steps, table)


async def _awaited(
    guard: FenceGuard,
    through: AsyncAdapter | LentConnection,
    lease: Fenced | int,
    attempt: Presented,
    steps: Callable[[], Steps],
    table: str,
) -> None:
    with told(guard, lease, attempt, table):
        if isinstance(through, LentConnection):
            await through.run(lambda tx: _walk_sync(tx, guard, steps()))
        else:
            await _walk_awaited(through, steps(), guard.table)


@contextmanager
def told(guard: FenceGuard, lease: Fenced | int, attempt: Presented, table: str) -> Iterator[None]:
    """Whatever goes wrong leaves as one of ours."""
    try:
        yield
    except Refusal as stale:
        raise guard.refused(lease, attempt, stale.seen, stale.why) from None
    except Exception as error:
        ours = translated(error, table, ours=table == guard.table)
        if ours is error:
            raise
        raise ours from error


def _walk_sync(tx: Any, guard: FenceGuard, steps: Steps) -> None:
    through = adapter(tx, guard.dialect)
    assert isinstance(through, Adapter)  # noqa: S101 - run_sync lends a Connection or a Session
    _walk(through, steps, guard.table)


def _walk(through: Adapter, steps: Steps, table: str) -> None:
    with through.step():
        through.require_transaction()
        answer: RowResult = START
        while True:
            try:
                wish = steps.send(answer)
            except StopIteration:
                return
            answer = through.grant(wish, table)


async def _walk_awaited(through: AsyncAdapter, steps: Steps, table: str) -> None:
    async with through.step():
        through.require_transaction()
        answer: RowResult = START
        while True:
            try:
                wish = steps.send(answer)
            except StopIteration:
                return
            answer = await through.grant(wish, table)


# ---------------------------------------------------------------- making the table


def create(guard: FenceGuard, conn: Any) -> Coroutine[Any, Any, None] | None:
    """Every statement of the dialect, in the user's transaction."""
    with translating(partial(translated, table=guard.table)):
        through = adapter(conn, guard.dialect)
        if isinstance(through, Adapter):
            for statement in _statements(through.dialect, guard.table):
                through.execute(statement)
            return None
    return _create_awaited(guard, through)


async def _create_awaited(guard: FenceGuard, through: AsyncAdapter | LentConnection) -> None:
    with translating(partial(translated, table=guard.table)):
        if isinstance(through, LentConnection):
            await through.run(lambda tx: create(guard, tx))  # type: ignore[arg-type]  # sync there
        else:
            for statement in _statements(through.dialect, guard.table):
                await through.execute(statement)


def _statements(dialect: Dialect, table: str) -> list[Statement]:
    texts = [one.strip().replace("{table}", table) for one in dialect.create]
    return [Statement((text,), (), gives=False) for text in texts]
