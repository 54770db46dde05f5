"""A shelf in a SQLite file of its own, for all who may write it on one host. No server, and nothing to create first."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from leasehold.errors import InvalidRequest, LeaseholdError
from leasehold.guards.fence import Fenced, Presented, check_resource
from leasehold.patterns.results.result_store import Entry
from leasehold.patterns.results.sql import SQLShelf
from leasehold.patterns.results.sqlitefile import ShelfFile, meaning
from leasehold.patterns.results.statements import TEXTS
from leasehold.patterns.tables.asking import Work

if TYPE_CHECKING:
    from leasehold.observe.events import Observer

TABLE = "leasehold_shelf"
LOOK = TEXTS["sqlite"].look(TABLE, "").marked("?")


class SQLiteShelf(SQLShelf):
    """In a file at ``path``, which is made on first use. What was written is on the disk.

    For asyncio, ``Threaded(SQLiteShelf(path))``: the event loop must not wait for a disk.

    >>> import leasehold
    >>> shelf = SQLiteShelf("pages.shelf")
    >>> with leasehold.connect("memory://") as hold, hold.lock("page", 42) as lease:
    ...     shelf.write(lease, "<h1>42</h1>", keep="1m")
    >>> shelf.read("page:42").text
    '<h1>42</h1>'
    >>> shelf.close()
    """

    __slots__ = ("_file",)

    def __init__(
        self, path: str | os.PathLike[str], *, downstream: str = "shelf", observers: Iterable[Observer] = ()
    ) -> None:
        self._file = ShelfFile(os.fspath(path), TABLE)
        super().__init__(self._file.writing, TABLE, downstream=downstream, observers=observers)

    def read(self, resource: str) -> Entry | None:
        name = check_resource(resource)
        try:
            rows = self._file.look(LOOK, name)
        except LeaseholdError:
            raise
        except Exception as error:
            raise self._meaning(error) from error
        return self._entry(name, rows[0]) if rows else None

    def _take(self, tx: Any, work: Work[Any], lease: Fenced, attempt: Presented) -> Any:
        if tx is not None:
            raise InvalidRequest(
                "a SQLiteShelf has a file of its own and no part in your transaction: leave tx= out, or use a SQLShelf "
                "in your database"
            )
        return super()._take(tx, work, lease, attempt)

    def create(self) -> None:
        """Make the file now: where it cannot be, you know it before the first lease does."""
        self._file.look("SELECT 1 FROM sqlite_schema LIMIT 1")

    def close(self) -> None:
        self._file.close()

    def _meaning(self, error: BaseException) -> LeaseholdError:
        return meaning(self._file.path, error)

    def __repr__(self) -> str:
        return f"<SQLiteShelf at {self._file.path}>"
