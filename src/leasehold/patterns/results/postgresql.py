"""The result store beside the leases of a coordinator on PostgreSQL: a table beside theirs, over the same sessions."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from leasehold._sql.dialects import DIALECTS
from leasehold._sql.run import StatementFlow, Work
from leasehold._sql.statements import Rows
from leasehold.errors import StoreUnavailable
from leasehold.patterns.results.sql import SQLResultStore
from leasehold.stores.postgresql import failures, schema
from leasehold.stores.postgresql.session import Refused

if TYPE_CHECKING:
    from leasehold.stores.postgresql.store import PostgresStore

REPLY_SECONDS = 5.0  # for a whole transaction
DIALECT = DIALECTS["postgresql"]
NO_TABLE = "42P01"


class PostgresResultStore(SQLResultStore):
    """In a table beside that of the leases, which is made when it is missing unless the URL says ``create=no``. With
    ``tx=`` a call is a part of a transaction of yours, in the same database."""

    __slots__ = ("_asynchronous", "_store")

    def __init__(self, store: PostgresStore, asynchronous: bool) -> None:
        super().__init__(_no_transactions, schema.results_table(store.table))
        self._store = store
        self._asynchronous = asynchronous

    def _run_alone(self, work: Work[Any]) -> Any:
        return self._run_awaited(work) if self._asynchronous else self._run_here(work)

    def _run_here(self, work: Work[Any]) -> Any:
        store = self._store
        try:
            return store.transact(lambda: _statements(work(DIALECT)), REPLY_SECONDS)
        except Refused as error:
            self._check_missing(error)
        try:
            store.transact(lambda: _statements(self._create(DIALECT)), REPLY_SECONDS)
            return store.transact(lambda: _statements(work(DIALECT)), REPLY_SECONDS)
        except Refused as error:
            raise failures.refusal(store.server, error) from error

    async def _run_awaited(self, work: Work[Any]) -> Any:
        store = self._store
        try:
            return await store.transact_async(lambda: _statements(work(DIALECT)), REPLY_SECONDS)
        except Refused as error:
            self._check_missing(error)
        try:
            await store.transact_async(lambda: _statements(self._create(DIALECT)), REPLY_SECONDS)
            return await store.transact_async(lambda: _statements(work(DIALECT)), REPLY_SECONDS)
        except Refused as error:
            raise failures.refusal(store.server, error) from error

    def _check_missing(self, error: Refused) -> None:
        """Raise what was refused, unless the table is missing and may be made."""
        if error.sqlstate != NO_TABLE:
            raise failures.refusal(self._store.server, error) from error
        if not self._store.creates:
            raise StoreUnavailable(
                f"{self._store.server} has no table {self.table} for results: `leasehold store sql --dialect "
                "postgresql --results` prints what makes it"
            ) from error

    def __repr__(self) -> str:
        return f"<PostgresResultStore on {self.table}>"


def _statements(flow: StatementFlow[Any]) -> Generator[tuple[str, Sequence[Any]], list[tuple[Any, ...]], Any]:
    """The same flow for a session of the store. It tells no counts, so a DELETE returns its rows."""
    try:
        statement = next(flow)
        while True:
            text = statement.numbered("$")
            found = yield text + " RETURNING 1" if text.startswith("DELETE") else text, statement.values
            statement = flow.send(Rows(len(found), (), found))
    except StopIteration as end:
        return end.value


def _no_transactions() -> NoReturn:
    raise AssertionError("its own transactions are those of the store")
