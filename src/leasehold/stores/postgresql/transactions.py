"""Transactions that are no ops of the store, over its sessions: the results of patterns are kept beside the leases.

The work is a generator that yields statements, each a text with its values, and is sent their rows. A query alone
needs no transaction; else the first statement travels with the beginning of one. The work is begun anew when its
session breaks before the commit is sent: nothing has happened then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from leasehold._core.light_typing import Any, TypeAlias, TypeVar
from leasehold.errors import LeaseholdError
from leasehold.stores.postgresql import failures, statements
from leasehold.stores.postgresql.session import Broken, Refused, Request, Statement
from leasehold.stores.postgresql.statements import ROLLBACK
from leasehold.stores.postgresql.turns import Again

R = TypeVar("R")
Row: TypeAlias = "tuple[str | None, ...]"
Work: TypeAlias = "Generator[tuple[str, Sequence[Any]], list[Row], R]"

# A client that freezes in between must not keep a row locked, nor wait for one for ever.
BEGIN: tuple[Statement, ...] = ((statements.BEGIN, ()), (statements.LIMITS, (b"4000",)))
COMMIT = Request((statements.COMMIT, ()))


def transaction(server: str, begin: Callable[[], Work[R]]) -> Generator[Any, Any, R]:
    """A flow for a session. Raises Refused, after which nothing has changed, and OutcomeUnknown when it is not known
    whether the commit has happened."""
    work = begin()
    statement = next(work)
    if statement[0].startswith("SELECT"):
        return (yield from _executed(work, statement))
    try:
        result = yield from _executed(work, statement, BEGIN)
    except (Refused, LeaseholdError):
        yield ROLLBACK
        raise
    try:
        yield COMMIT
    except Broken as error:
        if error.sqlstate == failures.STOOD_STILL:
            raise Again(str(error)) from error
        raise failures.broken(server, error) from error
    return result


def _executed(
    work: Work[R], statement: tuple[str, Sequence[Any]], before: tuple[Statement, ...] = ()
) -> Generator[Any, Any, R]:
    try:
        while True:
            text, values = statement
            *_, found = yield Request(*before, (text.encode(), [_sent(value) for value in values]))
            before = ()
            statement = work.send(found.rows)
    except StopIteration as end:
        result: R = end.value
        return result


def _sent(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()
