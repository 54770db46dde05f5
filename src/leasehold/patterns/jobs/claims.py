"""How a claim is made in each database: one statement where it can return what it has changed, else two.

SQLite       one writer at a time: the UPDATE takes the lock of the database first, and picks then.
PostgreSQL   FOR UPDATE SKIP LOCKED: no worker waits for a row that another is just claiming.
MariaDB      has no UPDATE ... RETURNING: rows are locked, skipping those of others, and then written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leasehold._sql.rows import unique_indexes
from leasehold._sql.run import StatementFlow
from leasehold._sql.statements import VALUE, Statement
from leasehold.errors import InvalidRequest
from leasehold.patterns.jobs.statements import VANISHED, JobStatements
from leasehold.patterns.jobs.table import JobColumns, JobRow, TableLayout


class JobClaim:
    """How many jobs, for which owner, for how long; of one queue, or one job alone. ``most`` is the number of attempts
    after which a job is dead. ``observed``: each row says in ``expired`` whether another worker's lease ran out."""

    __slots__ = ("count", "lease", "most", "observed", "only", "owner", "queue")

    def __init__(
        self,
        count: int,
        owner: str,
        lease: float,
        most: int,
        queue: str | None = None,
        only: Any = None,
        observed: bool = False,
    ) -> None:
        self.count, self.owner, self.lease, self.most, self.queue, self.only = count, owner, lease, most, queue, only
        self.observed = observed

    def shape(self) -> tuple[Any, ...]:
        """What the text of the statement depends on."""
        return ("claim", self.count, self.most, self.queue is None, self.only is None, self.observed)

    def pick_values(self) -> list[Any]:
        """The values of one pick."""
        return [one for one in (self.queue, self.only) if one is not None]


class ReturningJobStatements(JobStatements):
    """SQLite and PostgreSQL: one UPDATE ... RETURNING."""

    def claim(self, claim: JobClaim) -> StatementFlow[list[JobRow]]:
        """-> the rows as they are now, those that are dead because of it included."""
        values = [*claim.pick_values() * 2, *self.claim_values(claim.owner, claim.lease)]
        found = yield self.cached(claim.shape(), lambda: self._claim(claim), values, True)
        rows = self._with_expired(found.rows) if claim.observed else self.rows(found.rows)
        return sorted(rows, key=lambda row: (str(row.get("run_at", "")), row["id"])) if len(rows) > 1 else rows

    def _claim(self, claim: JobClaim) -> str:
        """Its values are in the order of ``claim``: picks first."""
        both, row, once = "SELECT picked FROM expired UNION ALL SELECT picked FROM ready", self.row, ""
        if claim.observed:  # evaluated once: SQLite would look again after the update, and find none
            row, once = f"{row}, {self.column('id')} IN (SELECT picked FROM expired)", "MATERIALIZED "  # noqa: S608 - quoted names
        return (
            f"WITH expired AS {once}({self._pick('expired', claim)}), ready AS ({self._pick('ready', claim)}) "  # noqa: S608 - quoted names
            f"UPDATE {self.table} SET {', '.join(self.claim_sets(claim.most))} "
            f"WHERE {self.column('id')} {self.dialect.among(f'{both} LIMIT {claim.count}')} RETURNING {row}"
        )

    def _with_expired(self, found: Sequence[tuple[Any, ...]]) -> list[JobRow]:
        rows = self.rows([tuple(one)[:-1] for one in found])
        for row, one in zip(rows, found, strict=True):
            row["expired"] = bool(one[-1])
        return rows

    def _pick(self, which: str, claim: JobClaim) -> str:
        due = self.due(which, claim.queue is not None, claim.only is not None)
        return (
            f"SELECT {self.column('id')} AS picked FROM {self.table} WHERE {due} ORDER BY {self.order(which)} "  # noqa: S608 - quoted names
            f"LIMIT {claim.count}{self.dialect.skip_locked}"
        )


class MariaDBJobStatements(JobStatements):
    """Assignments are made one after the other, and later ones see the new values, so that the number of attempts could
    not decide about the error. So this class decides, with the rows locked, which jobs are dead. Without strict mode a
    value that is too long would be cut off without an error."""

    unique = False

    def require_unique(self) -> StatementFlow[None]:
        """ON DUPLICATE KEY names no index: without one it would insert again and again."""
        if self.unique:
            return
        unique = yield from unique_indexes(self.columns.table)
        key = self.columns.names["key"]
        if {key.casefold()} not in unique.indexes:
            named = f"{key} of {self.columns.table}"
            raise InvalidRequest(f"the column {named} has no unique index of its own: make one, for key=")
        self.unique = True

    def unless_there(self) -> str:
        return f" ON DUPLICATE KEY UPDATE {self.column('id')} = {self.column('id')}"

    def claim(self, claim: JobClaim) -> StatementFlow[list[JobRow]]:
        """-> the rows as they are now, those that are dead because of it included."""
        rows: list[JobRow] = []
        for which in ("expired", "ready"):
            rest = claim.count - len(rows)
            if rest > 0:
                found = yield self._pick(which, claim, rest)
                rows += [{**row, "expired": which == "expired"} for row in self.rows(found.rows)]
        tries = "attempts" if self.has("attempts") else "version"
        state = self.columns.state
        dead = [one for one in rows if state(one["state"]) == "running" and (one[tries] or 0) >= claim.most]
        claimed = [one for one in rows if one not in dead]
        if claimed:
            yield self._claim(claim, claimed)
        for row in dead:
            yield self._bury(row)
        for row in rows:
            self._update_row(row, row in dead, claim)
        return rows

    def _pick(self, which: str, claim: JobClaim, rest: int) -> Statement:
        queue, only = claim.queue is not None, claim.only is not None
        return self.cached(
            ("pick", which, rest, queue, only),
            lambda: (
                f"SELECT {self.row} FROM {self.table} WHERE {self.due(which, queue, only)} "  # noqa: S608 - quoted names
                f"ORDER BY {self.order(which)} LIMIT {rest}{self.dialect.skip_locked}"
            ),
            claim.pick_values(),
            True,
        )

    def _claim(self, claim: JobClaim, rows: list[JobRow]) -> Statement:
        sets = {"version": f"COALESCE({self.column('version')}, 0) + 1"}
        if self.has("attempts"):
            sets["attempts"] = f"COALESCE({self.column('attempts')}, 0) + 1"
        if self.has("owner"):
            sets["owner"] = VALUE
        sets |= {"lease_until": self.clock("lease_until").later, **self.counted(), "state": self.state("running")}
        written = ", ".join(f"{self.column(ours)} = {value}" for ours, value in sets.items())
        ids = ", ".join([VALUE] * len(rows))
        text = f"{self.dialect.strict}UPDATE {self.table} SET {written} WHERE {self.column('id')} IN ({ids})"  # noqa: S608 - quoted names
        values = [*self.claim_values(claim.owner, claim.lease), *(one["id"] for one in rows)]
        return self.cached(("claim", len(rows)), lambda: text, values, False)

    def _bury(self, row: JobRow) -> Statement:
        """Under a version of its own, as everywhere: its last owner can no longer change it."""
        new = {"error": VANISHED, "version": row["version"] + 1}
        return self.settle(row["id"], row["version"], "dead", new, None)

    def _update_row(self, row: JobRow, dead: bool, claim: JobClaim) -> None:
        """Write into the row that was read what the statement has written into the table."""
        new: JobRow = {"state": self.columns.states["dead" if dead else "running"]}
        if not dead:
            new |= {"version": (row["version"] or 0) + 1, "owner": claim.owner}
            new |= {"attempts": (row["attempts"] or 0) + 1} if self.has("attempts") else {}
        for ours, value in new.items():
            if self.has(ours):
                row[ours] = row["row"][self.theirs[ours]] = value


ClaimStatements = ReturningJobStatements | MariaDBJobStatements


def job_statements(columns: JobColumns, layout: TableLayout) -> ClaimStatements:
    """The statements for this table in this database."""
    return (MariaDBJobStatements if layout.dialect.name == "mariadb" else ReturningJobStatements)(columns, layout)
