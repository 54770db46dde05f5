"""Transactions that are no ops of the store, over its sessions: the results of patterns are kept beside the leases.

The work is a generator that yields statements, each a text with its values, and is sent their rows. A query alone needs
no transaction. The work is begun anew when its session breaks before the commit is sent: nothing has happened then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from leasehold._core.light_typing import Any, TypeAlias, TypeVar
from leasehold.errors import LeaseholdError
from leasehold.stores.postgresql import failures
from leasehold.stores.postgresql.session import Broken, Refused, Request
from leasehold.stores.postgresql.turns import ROLLBACK, Again

R = TypeVar("R")
Row: TypeAlias = "tuple[str | None, ...]"
Work: TypeAlias = "Generator[tuple[str, Sequence[Any]], list[Row], R]"

# A client that freezes in between must not keep a row locked, nor wait for one for ever.
BEGIN = Request(
    b"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 4000; "
    b"SET LOCAL idle_in_transaction_session_timeout = 500"
)
COMMIT = Request(b"COMMIT")


def transaction(server: str, begin: Callable[[], Work[R]]) -> Generator[Any, Any, R]:
    """A flow for a session. Raises Refused, after which nothing has changed, and OutcomeUnknown when it is not known
    whether the commit has happened."""
    work = begin()
    statement = next(work)
    if statement[0].startswith("SELECT"):
        return (yield from _executed(work, statement))
    yield BEGIN
    try:
        result = yield from _executed(work, statement)
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


def _executed(work: Work[R], statement: tuple[str, Sequence[Any]]) -> Generator[Any, Any, R]:
    try:
        while True:
            text, values = statement
            (found,) = yield Request(text.encode(), [_sent(value) for value in values])
            statement = work.send(found.rows)
    except StopIteration as end:
        result: R = end.value
        return result


def _sent(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()
