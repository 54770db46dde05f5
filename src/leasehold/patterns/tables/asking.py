"""Statements on the user's own tables, over whatever connection he has: decided once, done at once or awaited.

What is to be done is a generator that yields statements and is sent the rows, see ``walking``. ``ask`` puts them to a
transaction that is the user's; ``within`` begins one of its own, and commits it. Both give the result on a connection
of a thread, and an awaitable of it on one of an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown
from leasehold.guards.conflict import Conflict
from leasehold.guards.sql.awaited import AsyncAdapter
from leasehold.guards.sql.connections import LentConnection, adapter
from leasehold.guards.sql.dialects import Dialect, Statement
from leasehold.guards.sql.drivers import Adapter
from leasehold.guards.sql.failures import Fail, lost_answer, translating
from leasehold.guards.sql.wishes import Rows
from leasehold.patterns.flavour import finish
from leasehold.patterns.tables.meaning import table_errors
from leasehold.patterns.walking import walk

R = TypeVar("R")
Steps = Generator[Statement, Rows, R]
Work = Callable[[Dialect], Steps[R]]  # in the dialect of the connection


def run(
    tx: Any, work: Work[R], table: str, *, fail: Fail | None = None, alone: bool = False
) -> R | Coroutine[Any, Any, R]:
    """In a transaction of the user's. It is neither committed nor rolled back here. ``alone``: the work is one
    statement that changes something, so a connection may as well commit it on its own."""
    means = fail or table_errors(table)
    with translating(means):
        through = adapter(tx, None)
        if isinstance(through, Adapter):
            return _walk(through, work, alone)
    return _awaited(through, work, means, alone)


def run_within(
    begin: Callable[[], Any], work: Work[R], table: str, *, fail: Fail | None = None, alone: bool = False
) -> Any:
    """In a transaction of its own. ``begin`` gives a context manager that begins one, gives its connection, commits it,
    and rolls it back after an error: ``engine.begin``, ``pool.connection``. ``alone`` is that of ``ask``."""
    means = fail or table_errors(table)
    with translating(means):
        transaction: Any = begin()
        if hasattr(transaction, "__enter__"):
            return _in_turn(transaction, work, table, means, alone)
        if not hasattr(transaction, "__aenter__"):
            raise InvalidRequest(
                "what begins a transaction gives a context manager that commits it, such as engine.begin, and not "
                f"{type(transaction).__name__}"
            )
    return _in_turn_awaited(transaction, work, table, means, alone)


def _in_turn(transaction: Any, work: Work[R], table: str, means: Fail, alone: bool) -> R:
    done: list[R] = []
    with _committed(done, means) as body, transaction as tx, body:
        result: Any = run(tx, work, table, fail=means, alone=alone)
        if isinstance(result, Coroutine):
            result.close()
            raise InvalidRequest("this connection is awaited: what begins a transaction must be awaited too")
        done.append(result)
    return _required(done)


async def _in_turn_awaited(transaction: Any, work: Work[R], table: str, means: Fail, alone: bool) -> R:
    done: list[R] = []
    with _committed(done, means) as body:
        async with transaction as tx:
            with body:
                result: Any = run(tx, work, table, fail=means, alone=alone)
                done.append(await result if isinstance(result, Coroutine) else result)
    return _required(done)


class TransactionBody:
    """Knows how the work ended, whatever its transaction says afterwards."""

    error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.error = error


@contextmanager
def _committed(done: list[Any], means: Fail) -> Iterator[TransactionBody]:
    """What fails after the work is done is the commit: it may have happened. Where the work has failed, or was
    cancelled, a rollback that fails too says nothing new (traps 9 and 29): most often the connection is gone."""
    body = TransactionBody()
    try:
        yield body
    except LeaseholdError:
        raise
    except Exception as error:
        if body.error is not None and body.error is not error:
            raise body.error from body.error.__cause__
        found = means(error)
        if done and not isinstance(found, Conflict):
            found = OutcomeUnknown(f"the commit failed ({type(error).__name__}): it may or may not have happened")
        raise found from error


def _required(done: list[R]) -> R:
    if not done:
        raise InvalidRequest("what begins a transaction has swallowed an error: it must let errors through")
    return done[0]


async def _awaited(through: AsyncAdapter | LentConnection, work: Work[R], means: Fail, alone: bool) -> R:
    with translating(means):
        if isinstance(through, LentConnection):
            return await _lent(through, work, alone)
        return await _walk_awaited(through, work, alone)


async def _lent(through: LentConnection, work: Work[R], alone: bool) -> R:
    found: list[R] = []

    def there(tx: Any) -> None:
        through_sync = adapter(tx, None)
        assert isinstance(through_sync, Adapter)  # noqa: S101 - run_sync lends a Connection or a Session
        found.append(_walk(through_sync, work, alone))

    await through.run(there)
    return found[0]


def _walk(through: Adapter, work: Work[R], alone: bool) -> R:
    with through.step():
        if not alone:
            through.require_transaction()
        return finish(walk(work(through.dialect), through.fetch, _unanswered if alone else None))


def _unanswered(error: BaseException, statement: Statement) -> BaseException:
    """A statement that commits by itself, and whose answer is lost, may have happened: to call that refused would make
    people do it twice."""
    reads = statement.parts[0].startswith("SELECT")
    if reads or isinstance(error, LeaseholdError) or not isinstance(error, Exception) or not lost_answer(error):
        return error
    unknown = OutcomeUnknown(f"the answer was lost ({type(error).__name__}): it may or may not have happened")
    unknown.__cause__ = error
    return unknown


async def _walk_awaited(through: AsyncAdapter, work: Work[R], alone: bool) -> R:
    async with through.step():
        if not alone:
            through.require_transaction()
        return await walk(work(through.dialect), through.fetch, _unanswered if alone else None)
