"""How a claim is made in each database: one statement where it can give back what it has changed, else two.

SQLite       one writer at a time: the UPDATE takes the lock of the database first, and picks then.
PostgreSQL   FOR UPDATE SKIP LOCKED: no worker waits for a row that another is just claiming. The ids go through an
             array, so that they are picked once; a subquery in IN may be run again for each row.
MariaDB      has no UPDATE ... RETURNING: rows are locked, skipping those of others, and then written.
"""

from __future__ import annotations

from typing import Any

from leasehold._sql.run import StatementFlow
from leasehold._sql.statements import VALUE, Statement, statement
from leasehold.errors import InvalidRequest
from leasehold.patterns.jobs.statements import VANISHED, JobStatements
from leasehold.patterns.jobs.table import JobColumns, JobRow, TableLayout, literal, type_of

UNIQUE = f"""SELECT index_name FROM information_schema.statistics
WHERE table_schema = COALESCE({VALUE}, DATABASE()) AND table_name = {VALUE} AND non_unique = 0 GROUP BY index_name
HAVING COUNT(*) = 1 AND MAX(column_name) = {VALUE}"""  # noqa: S608 - no names of others

WHOLE = {"character": "bpchar", "bit": "varbit"}  # PostgreSQL: a cast to CHARACTER keeps the first one alone


class JobClaim:
    """How many, for whom, for how long, and what: of one queue, or one job alone."""

    __slots__ = ("count", "lease", "most", "only", "owner", "queue")

    def __init__(
        self, count: int, owner: str, lease: float, most: int, queue: str | None = None, only: Any = None
    ) -> None:
        self.count, self.owner, self.lease, self.most, self.queue, self.only = count, owner, lease, most, queue, only

    def shape(self) -> tuple[Any, ...]:
        """What its text depends on."""
        return ("claim", self.count, self.most, self.queue is None, self.only is None)

    def picking(self) -> list[Any]:
        """The values of one pick."""
        return [one for one in (self.queue, self.only) if one is not None]


class SQLiteJobStatements(JobStatements):
    """SQLite, and most of PostgreSQL."""

    def claim(self, claim: JobClaim) -> StatementFlow[list[JobRow]]:
        """-> the rows as they are now. Those that are dead were buried."""
        values = [*claim.picking() * 2, *self.taking(claim.owner, claim.lease)]
        found = yield self.said(claim.shape(), lambda: self._claim(claim), values, True)
        rows = self.rows(found.rows)
        return sorted(rows, key=lambda row: (str(row.get("run_at", "")), row["id"])) if len(rows) > 1 else rows

    def pick(self, which: str, claim: JobClaim) -> str:
        due = self.due(which, claim.queue is not None, claim.only is not None)
        return (
            f"SELECT {self.column('id')} AS picked FROM {self.table} WHERE {due} ORDER BY {self.order(which)} "  # noqa: S608 - quoted names
            f"LIMIT {claim.count}{self.dialect.skip_locked}"
        )

    def _claim(self, claim: JobClaim) -> str:
        """The order of the values in the text is that of ``claim``: picks first."""
        both = "SELECT picked FROM expired UNION ALL SELECT picked FROM ready"
        return (
            f"WITH expired AS ({self.pick('expired', claim)}), ready AS ({self.pick('ready', claim)}) "  # noqa: S608 - quoted names
            f"UPDATE {self.table} SET {', '.join(self.taken(claim.most))} "
            f"WHERE {self.column('id')} {self.among(f'{both} LIMIT {claim.count}')} RETURNING {self.row}"
        )

    def among(self, ids: str) -> str:
        return f"IN ({ids})"


class PostgreSQLJobStatements(SQLiteJobStatements):
    """Every value is cast to the type of its column: drivers differ in the type that they send, and an enum or JSON
    takes no text. JSON is read as text: drivers differ in what they make of it, too."""

    def mark(self, theirs: str) -> str:
        kind = self.layout.types.get(theirs)  # None: there is no such column, and the database says so
        return VALUE if kind is None else f"CAST({VALUE} AS {WHOLE.get(kind, kind)})"

    def state(self, ours: str) -> str:
        kind = type_of(self.layout.types, self.columns.names["state"])
        return f"CAST({literal(self.columns.states[ours])} AS {WHOLE.get(kind, kind)})"

    def _shown(self, theirs: str) -> str:
        name = self.dialect.quoted(theirs)
        return f"CAST({name} AS text) AS {name}" if self.layout.types[theirs] in {"json", "jsonb"} else name

    def among(self, ids: str) -> str:
        return f"= ANY(ARRAY({ids}))"


class MariaDBJobStatements(JobStatements):
    """Assignments are made one after the other, and later ones see the new values: the error would be decided by the
    new attempts. So this class decides, with the rows locked, which jobs are dead. Without strict mode a value that is
    too long would be cut off without an error."""

    unique = False

    def require_unique(self) -> StatementFlow[None]:
        """ON DUPLICATE KEY names no index: without one it would insert again and again."""
        if self.unique:
            return
        schema, _, name = self.columns.table.rpartition(".")
        found = yield statement(UNIQUE, schema or None, name, self.columns.names["key"], gives=True)
        if not found.rows:
            named = f"{self.columns.names['key']} of {self.columns.table}"
            raise InvalidRequest(f"the column {named} has no unique index of its own: make one, for key=")
        self.unique = True

    def unless_there(self) -> str:
        return f" ON DUPLICATE KEY UPDATE {self.column('id')} = {self.column('id')}"

    def claim(self, claim: JobClaim) -> StatementFlow[list[JobRow]]:
        """-> the rows as they are now."""
        rows: list[JobRow] = []
        for which in ("expired", "ready"):
            rest = claim.count - len(rows)
            if rest > 0:
                found = yield self._pick(which, claim, rest)
                rows += self.rows(found.rows)
        tries = "attempts" if self.has("attempts") else "version"
        state = self.columns.state
        buried = [one for one in rows if state(one["state"]) == "running" and (one[tries] or 0) >= claim.most]
        taken = [one for one in rows if one not in buried]
        if taken:
            yield self._take(claim, taken)
        for row in buried:
            yield self._bury(row)
        for row in rows:
            self._as_written(row, row in buried, claim)
        return rows

    def _pick(self, which: str, claim: JobClaim, rest: int) -> Statement:
        queue, only = claim.queue is not None, claim.only is not None
        return self.said(
            ("pick", which, rest, queue, only),
            lambda: (
                f"SELECT {self.row} FROM {self.table} WHERE {self.due(which, queue, only)} "  # noqa: S608 - quoted names
                f"ORDER BY {self.order(which)} LIMIT {rest}{self.dialect.skip_locked}"
            ),
            claim.picking(),
            True,
        )

    def _take(self, claim: JobClaim, rows: list[JobRow]) -> Statement:
        sets = {"version": f"COALESCE({self.column('version')}, 0) + 1"}
        if self.has("attempts"):
            sets["attempts"] = f"COALESCE({self.column('attempts')}, 0) + 1"
        if self.has("owner"):
            sets["owner"] = VALUE
        sets |= {"lease_until": self.clock("lease_until").later, **self.counted(), "state": self.state("running")}
        written = ", ".join(f"{self.column(ours)} = {what}" for ours, what in sets.items())
        marks = ", ".join([VALUE] * len(rows))
        text = f"{self.dialect.strict}UPDATE {self.table} SET {written} WHERE {self.column('id')} IN ({marks})"  # noqa: S608 - quoted names
        values = [*self.taking(claim.owner, claim.lease), *(one["id"] for one in rows)]
        return self.said(("take", len(rows)), lambda: text, values, False)

    def _bury(self, row: JobRow) -> Statement:
        """Under a version of its own, as everywhere: its last owner has no word in it any more."""
        new = {"error": VANISHED, "version": row["version"] + 1}
        return self.settle(row["id"], row["version"], "dead", new, None)

    def _as_written(self, row: JobRow, buried: bool, claim: JobClaim) -> None:
        new: JobRow = {"state": self.columns.states["dead" if buried else "running"]}
        if not buried:
            new |= {"version": (row["version"] or 0) + 1, "owner": claim.owner}
            new |= {"attempts": (row["attempts"] or 0) + 1} if self.has("attempts") else {}
        for ours, value in new.items():
            if self.has(ours):
                row[ours] = row["row"][self.theirs[ours]] = value


KINDS: dict[str, type[SQLiteJobStatements] | type[MariaDBJobStatements]] = {
    "sqlite": SQLiteJobStatements,
    "postgresql": PostgreSQLJobStatements,
    "mariadb": MariaDBJobStatements,
}


def job_statements(columns: JobColumns, layout: TableLayout) -> SQLiteJobStatements | MariaDBJobStatements:
    """For this table in this database."""
    return KINDS[layout.dialect.name](columns, layout)
