"""Drives a flow of statements over a connection: in the caller's transaction (``run``) or in its own (``run_within``).

A flow is a generator that yields statements and is sent their rows. An error is raised inside it, at the statement that
failed, so that it can restore something or know better what the error means. Both functions give the result on a
connection of a thread, and a coroutine of it on one of an event loop.

It is decided here, and nowhere else, whether a commit may have happened although its reply was lost: OutcomeUnknown.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar

from leasehold._core.driver import drive, drive_async
from leasehold._sql.adapters import Adapter
from leasehold._sql.async_adapters import AsyncAdapter, AsyncAlchemyConnection
from leasehold._sql.connections import adapter_for
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import Translation, reply_lost, translating
from leasehold._sql.statements import Rows, Statement
from leasehold.errors import Conflict, InvalidRequest, LeaseholdError, OutcomeUnknown

R = TypeVar("R")
StatementFlow = Generator[Statement, Rows, R]
Work = Callable[[Dialect], StatementFlow[R]]  # makes the flow, in the dialect of the connection
Begin = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]


class RunOptions(NamedTuple):
    """``dialect`` is for a DB-API driver that is not known. ``autocommit``: the work is one statement that changes
    something, so a connection may as well commit it by itself. ``transaction``: must one be open otherwise?"""

    dialect: str | None = None
    autocommit: bool = False
    transaction: bool = True


USUAL = RunOptions()


def run(tx: Any, work: Work[R], translate: Translation, options: RunOptions = USUAL) -> R | Coroutine[Any, Any, R]:
    """Run the work in the caller's transaction, which is neither committed nor rolled back here."""
    try:
        adapter = adapter_for(tx, options.dialect)
        if isinstance(adapter, Adapter):
            return _execute(adapter, work, options)
    except LeaseholdError:
        raise
    except Exception as error:
        raise translate(error) from error
    return _run_async(adapter, work, translate, options)


async def _run_async(
    adapter: AsyncAdapter | AsyncAlchemyConnection, work: Work[R], translate: Translation, options: RunOptions
) -> R:
    try:
        if isinstance(adapter, AsyncAlchemyConnection):
            return await adapter.run_sync(partial(_execute_inside, work=work, options=options))
        return await _execute_async(adapter, work, options)
    except LeaseholdError:
        raise
    except Exception as error:
        raise translate(error) from error


def _execute_inside(tx: Any, work: Work[R], options: RunOptions) -> R:
    adapter = adapter_for(tx, options.dialect)
    assert isinstance(adapter, Adapter)  # noqa: S101 - run_sync passes a Connection or a Session
    return _execute(adapter, work, options)


def _execute(adapter: Adapter, work: Work[R], options: RunOptions) -> R:
    def perform(statement: Statement) -> Rows:
        try:
            if statement.holds:
                adapter.begin_read()
            return adapter.fetch(statement)
        except Exception as error:
            _raise_unknown(error, statement, options)
            raise

    begins = adapter.begins()
    try:
        if options.transaction and not options.autocommit:
            adapter.require_transaction()
        return drive(work(adapter.dialect), perform)
    except BaseException:
        if begins:
            adapter.connection.rollback()
        raise


async def _execute_async(adapter: AsyncAdapter, work: Work[R], options: RunOptions) -> R:
    async def perform(statement: Statement) -> Rows:
        try:
            if statement.holds:
                await adapter.begin_read()
            return await adapter.fetch(statement)
        except Exception as error:
            _raise_unknown(error, statement, options)
            raise

    begins = adapter.begins()
    try:
        if options.transaction and not options.autocommit:
            adapter.require_transaction()
        return await drive_async(work(adapter.dialect), perform)
    except BaseException:
        if begins:
            await adapter.connection.rollback()
        raise


def _raise_unknown(error: Exception, statement: Statement, options: RunOptions) -> None:
    """A statement that commits by itself, and whose reply was lost, may have happened: an error that says "refused"
    would make the caller do it twice."""
    reads = statement.parts[0].startswith("SELECT")
    if options.autocommit and not reads and not isinstance(error, LeaseholdError) and reply_lost(error):
        raise OutcomeUnknown(
            f"the answer was lost ({type(error).__name__}): it may or may not have happened"
        ) from error


# ---------------------------------------------------------------- in a transaction of its own


class TransactionMessages(NamedTuple):
    """What the errors of ``run_within`` say; ``{}`` is the type of what was given or raised."""

    no_manager: str = (
        "what begins a transaction gives a context manager that commits it, such as engine.begin, and not {}"
    )
    not_awaited: str = "this connection is awaited: what begins a transaction must be awaited too"
    swallowed: str = "what begins a transaction has swallowed an error: it must let errors through"
    unknown: str = "the commit failed ({}): it may or may not have happened"


MESSAGES = TransactionMessages()


def run_within(
    begin: Begin,
    work: Work[R],
    translate: Translation,
    options: RunOptions = USUAL,
    messages: TransactionMessages = MESSAGES,
) -> R | Coroutine[Any, Any, R]:
    """Run the work in a transaction of its own. ``begin`` gives a context manager that begins one, gives its
    connection, commits it, and rolls it back after an error: ``engine.begin``, ``pool.connection``."""
    with translating(translate):
        transaction: Any = begin()
        if hasattr(transaction, "__enter__"):
            return _within(transaction, work, translate, options, messages)
        if not hasattr(transaction, "__aenter__"):
            raise InvalidRequest(messages.no_manager.format(type(transaction).__name__))
    return _within_async(transaction, work, translate, options, messages)


def _within(
    transaction: Any, work: Work[R], translate: Translation, options: RunOptions, messages: TransactionMessages
) -> R:
    body: TransactionBody[R] = TransactionBody()
    with _commit_errors(body, translate, messages), transaction as tx, body:
        result: Any = run(tx, work, translate, options)
        if isinstance(result, Coroutine):
            result.close()
            raise InvalidRequest(messages.not_awaited)
        body.results.append(result)
    return body.result(messages)


async def _within_async(
    transaction: Any, work: Work[R], translate: Translation, options: RunOptions, messages: TransactionMessages
) -> R:
    body: TransactionBody[R] = TransactionBody()
    with _commit_errors(body, translate, messages):
        async with transaction as tx:
            with body:
                result: Any = run(tx, work, translate, options)
                body.results.append(await result if isinstance(result, Coroutine) else result)
    return body.result(messages)


class TransactionBody(Generic[R]):
    """How the work inside a transaction ended, whatever the transaction itself reports afterwards."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.results: list[R] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.error = error

    def result(self, messages: TransactionMessages) -> R:
        """A context manager may swallow errors, and with them a refusal: then there is none."""
        if not self.results:
            raise InvalidRequest(messages.swallowed)
        return self.results[0]


@contextmanager
def _commit_errors(body: TransactionBody[Any], translate: Translation, messages: TransactionMessages) -> Iterator[None]:
    """An error after the work is done is the commit's: it may have happened. Where the work itself has failed, or was
    cancelled, that error counts: a rollback that fails too adds nothing (traps 9 and 29), and most often means that
    the connection is gone."""
    try:
        yield
    except LeaseholdError:
        raise
    except Exception as error:
        if body.error is not None and body.error is not error:
            raise body.error from body.error.__cause__
        found = translate(error)
        if body.results and not isinstance(found, Conflict):
            found = OutcomeUnknown(messages.unknown.format(type(error).__name__))
        raise found from error
