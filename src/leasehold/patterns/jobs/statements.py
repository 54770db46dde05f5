"""The statements of jobs, with the names of the user's table. Texts are made once for each table; only values change.

Ours     ... WHERE id AND version AND state = running: the rule of everything that an owner does. A superseded worker
         has another version, and one that has ended the job finds another state.
Claim    takes what is ready and due, and what is running with a lease that has run out; each claim counts the version
         up. A job whose lease has run out for the last time is dead: its worker vanished. See ``claims``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from leasehold._sql.run import StatementFlow
from leasehold._sql.statements import VALUE, Statement
from leasehold.patterns.jobs.table import JobColumns, JobRow, TableLayout, literal, type_of

# ---------------------------------------------------------------- times
#
# The clock of the database, in the type of each column. A client's clock is never used (trap 22).
#
# ``now`` is compared with, ``moment`` is now as it is written, ``later`` is so many seconds from now, ``at`` is a
# moment that the user has named, as seconds since 1970, and ``since`` is the value of a column, likewise as a number.
# In PostgreSQL ``now()`` is compared with, which an index can use; what is written comes from the clock itself, because
# a transaction may have begun long ago.


SECONDS = f"make_interval(secs => CAST({VALUE} AS double precision))"
TEXT = "'%Y-%m-%d %H:%M:%f'"  # sorts as it is read
EPOCH = "((julianday('now') - 2440587.5) * 86400.0)"


class DatabaseClock(NamedTuple):
    """Five expressions. ``VALUE`` stands for the seconds or the column; ``micros``: as whole microseconds."""

    now: str
    moment: str
    later: str
    at: str
    since: str
    micros: bool = False

    def given(self, seconds: float) -> float | int:
        """A duration or a moment as the expression wants it."""
        return round(seconds * 1_000_000) if self.micros else float(seconds)

    def later_by(self, length: str) -> str:
        """So long from now; the length is an expression."""
        return self.later.replace(VALUE, length)

    def number(self, column: str) -> str:
        """The value of the column as a number, since 1970."""
        return self.since.replace(VALUE, column)


def clock(dialect: str, kind: str) -> DatabaseClock:
    """For a column of this type."""
    if dialect == "postgresql":
        return AWARE if kind == "timestamp with time zone" else NAIVE
    if dialect == "mariadb":
        return STAMP if kind == "timestamp" else DATETIME
    return NUMBER if any(word in kind for word in ("int", "real", "floa", "doub")) else TEXTUAL


AWARE = DatabaseClock(
    "now()",
    "clock_timestamp()",
    f"clock_timestamp() + {SECONDS}",
    f"to_timestamp(CAST({VALUE} AS double precision))",
    f"EXTRACT(EPOCH FROM {VALUE})",
)
NAIVE = AWARE._replace(
    now=f"timezone('utc', {AWARE.now})",
    moment=f"timezone('utc', {AWARE.moment})",
    later=f"timezone('utc', {AWARE.later})",
    at=f"timezone('utc', {AWARE.at})",
)
DATETIME = DatabaseClock(
    "UTC_TIMESTAMP(6)",
    "UTC_TIMESTAMP(6)",
    f"TIMESTAMPADD(MICROSECOND, {VALUE}, UTC_TIMESTAMP(6))",
    f"TIMESTAMPADD(MICROSECOND, {VALUE}, TIMESTAMP'1970-01-01 00:00:00.000000')",
    f"TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00.000000', {VALUE})",
    micros=True,
)
STAMP = DatabaseClock(
    "CURRENT_TIMESTAMP(6)",
    "CURRENT_TIMESTAMP(6)",
    f"TIMESTAMPADD(MICROSECOND, {VALUE}, CURRENT_TIMESTAMP(6))",
    f"FROM_UNIXTIME({VALUE} / 1000000)",
    f"UNIX_TIMESTAMP({VALUE}) * 1000000",
    micros=True,
)
TEXTUAL = DatabaseClock(
    f"strftime({TEXT}, 'now')",
    f"strftime({TEXT}, 'now')",
    f"strftime({TEXT}, 'now', {VALUE} || ' seconds')",
    f"strftime({TEXT}, {VALUE}, 'unixepoch')",
    f"((julianday({VALUE}) - 2440587.5) * 86400.0)",
)
NUMBER = DatabaseClock(EPOCH, EPOCH, f"({EPOCH} + {VALUE})", VALUE, VALUE)


# ---------------------------------------------------------------- statements


VANISHED = "its worker vanished, and this was the last attempt"
When = tuple[str, float]  # "later" or "at", and seconds


class UserColumn(NamedTuple):
    """A column of the user's that has no meaning for jobs."""

    name: str


ColumnName = str | UserColumn


class JobStatements:
    """What the databases have in common. ``ours`` is our name for a column or state, ``theirs`` the user's."""

    def __init__(self, columns: JobColumns, layout: TableLayout) -> None:
        self.columns = columns
        self.layout = layout
        self.dialect = layout.dialect
        self.table = self.dialect.table(columns.table)
        self.theirs = {ours: self._theirs(named) for ours, named in columns.names.items() if layout.has(named)}
        self.fields = list(layout.types)
        self.row = ", ".join(
            self.dialect.readable(self.dialect.quoted(one), kind) for one, kind in layout.types.items()
        )
        self._texts: dict[Any, tuple[str, ...]] = {}

    # ------------------------------------------------------------ names and values

    def column(self, ours: str) -> str:
        """The user's column, quoted."""
        return self.dialect.quoted(self.columns.names[ours])

    def has(self, ours: str) -> bool:
        """Does the table have such a column?"""
        return ours in self.theirs

    def counted(self) -> dict[str, str]:
        """What is written beside each time that is so long from now: from when it is counted."""
        return {"counted_from": self.clock("counted_from").moment} if self.has("counted_from") else {}

    def value(self, ours: str) -> str:
        """A value for one of our columns."""
        return self.value_of(self.theirs[ours])

    def value_of(self, theirs: str) -> str:
        """A value for any column of the table. Where there is no such column the database reports it."""
        kind = self.layout.types.get(theirs)
        return VALUE if kind is None else self.dialect.cast(VALUE, kind)

    def _theirs(self, named: str) -> str:
        """The name as the table has it: two of the databases do not tell capitals apart."""
        if named in self.layout.types:
            return named
        return next(one for one in self.layout.types if one.casefold() == named.casefold())

    def state(self, ours: str) -> str:
        """The user's value for a state."""
        return self.dialect.cast(literal(self.columns.states[ours]), self._type_of("state"))

    def clock(self, ours: str) -> DatabaseClock:
        """The clock of the database, in the type of this column."""
        return clock(self.dialect.name, self._type_of(ours))

    def _type_of(self, ours: str) -> str:
        return type_of(self.layout.types, self.columns.names[ours])

    def cached(self, key: Any, build: Callable[[], str], values: Sequence[Any], gives: bool) -> Statement:
        """A statement whose text is built once, and kept under the key."""
        parts = self._texts.get(key)
        if parts is None:
            parts = self._texts[key] = tuple(build().split(VALUE))
        return Statement(parts, tuple(values), gives)

    def rows(self, found: Sequence[tuple[Any, ...]]) -> list[JobRow]:
        """By our names; and in ``row`` the whole row by the user's, which may use one of our names differently."""
        rows = []
        for one in found:
            whole = dict(zip(self.fields, one, strict=True))
            rows.append({**{ours: whole[theirs] for ours, theirs in self.theirs.items()}, "row": whole})
        return rows

    # ------------------------------------------------------------ enqueueing

    def insert(self, rows: Sequence[Mapping[ColumnName, Any]], when: When, keyed: bool) -> Statement:
        """Ready jobs. -> id, and the key where there is one."""
        given = tuple(rows[0])
        how = "at" if when[0] == "at" else "later"
        values = [value for row in rows for value in self._given(row, when)]
        shape = (given, len(rows), how, keyed)
        return self.cached(("insert", *shape), lambda: self._insert(*shape), values, True)

    def _given(self, row: Mapping[ColumnName, Any], when: When) -> list[Any]:
        clocks = [self.clock("run_at").given(when[1])] if self.has("run_at") else []
        clocks += [self.clock(one).given(0.0) for one in ("created_at", "lease_until") if self.has(one)]
        return [*row.values(), *clocks]

    def _insert(self, given: tuple[ColumnName, ...], count: int, how: str, keyed: bool) -> str:
        places = [self.theirs[one] if isinstance(one, str) else one.name for one in given]
        names = [self.dialect.quoted(one) for one in places]
        values = [self.value_of(one) for one in places]
        if self.has("run_at"):
            names.append(self.column("run_at"))
            values.append(getattr(self.clock("run_at"), how))
        for one in ("created_at", "lease_until"):
            if self.has(one):
                names.append(self.column(one))
                values.append(self.clock(one).later)
        for one, moment in self.counted().items():
            names.append(self.column(one))
            values.append("NULL" if how == "at" else moment)  # a moment that the user has named is not counted
        names += [self.column("state"), self.column("version")]
        values += [self.state("ready"), "0"]
        if self.has("attempts"):
            names.append(self.column("attempts"))
            values.append("0")
        new_rows = ", ".join([f"({', '.join(values)})"] * count)
        also = self.unless_there() if keyed else ""
        back = f"{self.column('id')}, {self.column('key')}" if keyed else self.column("id")
        return (
            f"{self.dialect.strict}INSERT INTO {self.table} ({', '.join(names)}) VALUES {new_rows}{also} "  # noqa: S608 - quoted names
            f"RETURNING {back}"
        )

    def require_unique(self) -> StatementFlow[None]:
        """A key needs a unique index: most databases report by themselves that there is none."""
        yield from ()

    def unless_there(self) -> str:
        return f" ON CONFLICT ({self.column('key')}) DO NOTHING"

    def find(self, key: str) -> Statement:
        """-> id"""
        return self.cached(
            "find",
            lambda: f"SELECT {self.column('id')} FROM {self.table} WHERE {self.column('key')} = {self.value('key')}",  # noqa: S608 - quoted names
            (key,),
            True,
        )

    # ------------------------------------------------------------ claiming

    def due(self, which: str, queue: bool, only: bool) -> str:
        """The condition for jobs that may be claimed; ``which`` is ready or expired. Its values: queue, id."""
        if which == "ready":
            clauses = [f"{self.column('state')} = {self.state('ready')}"]
            if self.has("run_at"):
                clauses.append(f"{self.column('run_at')} <= {self.clock('run_at').now}")
        else:
            clauses = [f"{self.column('state')} = {self.state('running')}",
                       f"{self.column('lease_until')} < {self.clock('lease_until').now}"]  # fmt: skip
        if queue:
            clauses.append(f"{self.column('queue')} = {self.value('queue')}")
        if only:
            clauses.append(f"{self.column('id')} = {self.value('id')}")
        return " AND ".join(clauses)

    def order(self, which: str) -> str:
        first = "lease_until" if which == "expired" else "run_at"
        return ", ".join(self.column(one) for one in (first, "id") if self.has(one))

    def candidates(self, which: str, count: int, queue: str | None) -> Statement:
        """-> ids of jobs that may be claimed now; nothing is locked."""
        return self.cached(
            ("candidates", which, count, queue is None),
            lambda: (
                f"SELECT {self.column('id')} FROM {self.table} WHERE {self.due(which, queue is not None, False)} "  # noqa: S608 - quoted names
                f"ORDER BY {self.order(which)} LIMIT {count}"
            ),
            () if queue is None else (queue,),
            True,
        )

    def tries(self) -> str:
        """How often the job was claimed; without a column for that, its version."""
        return f"COALESCE({self.column('attempts' if self.has('attempts') else 'version')}, 0)"

    def claim_sets(self, most: int) -> list[str]:
        """What a claim writes. Values: owner, lease."""
        dead = f"{self.column('state')} = {self.state('running')} AND {self.tries()} >= {most}"
        sets = {"version": f"COALESCE({self.column('version')}, 0) + 1"}
        if self.has("attempts"):
            sets["attempts"] = f"{self.tries()} + CASE WHEN {dead} THEN 0 ELSE 1 END"
        if self.has("error"):
            sets["error"] = f"CASE WHEN {dead} THEN '{VANISHED}' ELSE {self.column('error')} END"
        if self.has("finished_at"):
            clock_now = self.clock("finished_at").now
            sets["finished_at"] = f"CASE WHEN {dead} THEN {clock_now} ELSE {self.column('finished_at')} END"
        if self.has("owner"):
            sets["owner"] = self.value("owner")
        sets["lease_until"] = self.clock("lease_until").later
        sets |= self.counted()
        sets["state"] = f"CASE WHEN {dead} THEN {self.state('dead')} ELSE {self.state('running')} END"
        return [f"{self.column(ours)} = {value}" for ours, value in sets.items()]

    def claim_values(self, owner: str, lease: float) -> list[Any]:
        """The values of ``claim_sets``."""
        return [*([owner] if self.has("owner") else []), self.clock("lease_until").given(lease)]

    # ------------------------------------------------------------ what an owner does

    def ours(self) -> str:
        """The condition: this owner still has the job. Values: id, version."""
        return (
            f"{self.column('id')} = {self.value('id')} AND {self.column('version')} = {self.value('version')} "
            f"AND {self.column('state')} = {self.state('running')}"
        )

    def beat(self, job_id: Any, version: int, lease: float) -> Statement:
        """A heartbeat: the lease ends so long from now."""
        later = self.clock("lease_until")
        return self.cached("beat", self._beat, (later.given(lease), job_id, version), False)

    def _beat(self) -> str:
        sets = {"lease_until": self.clock("lease_until").later, **self.counted()}
        written = ", ".join(f"{self.column(ours)} = {value}" for ours, value in sets.items())
        return f"UPDATE {self.table} SET {written} WHERE {self.ours()}"  # noqa: S608 - quoted names

    def settle(self, job_id: Any, version: int, state: str, row: JobRow, pause: float | None) -> Statement:
        """The job ends, or becomes ready: ``row`` is what to write with the state, ``pause`` when it is due again."""
        row = {ours: value for ours, value in row.items() if self.has(ours)}
        given = tuple(row)
        values = list(row.values())
        if pause is not None and self.has("run_at"):
            values.append(self.clock("run_at").given(pause))
        return self.cached(
            ("settle", state, given), lambda: self._settle(state, given), (*values, job_id, version), False
        )

    def _settle(self, state: str, given: tuple[str, ...]) -> str:
        sets = [f"{self.column(ours)} = {self.value(ours)}" for ours in given]
        if state == "ready" and self.has("run_at"):
            sets.append(f"{self.column('run_at')} = {self.clock('run_at').later}")
            sets += [f"{self.column(ours)} = {value}" for ours, value in self.counted().items()]
        if state != "ready" and self.has("finished_at"):
            sets.append(f"{self.column('finished_at')} = {self.clock('finished_at').now}")
        sets.append(f"{self.column('state')} = {self.state(state)}")
        return f"{self.dialect.strict}UPDATE {self.table} SET {', '.join(sets)} WHERE {self.ours()}"  # noqa: S608 - quoted names

    def current(self, job_id: Any) -> Statement:
        """-> version, state: why a change was refused. Locked where a snapshot could be older than the reason."""
        return self.cached(
            "current",
            lambda: (
                f"SELECT {self.column('version')}, {self.column('state')} FROM {self.table} "  # noqa: S608 - quoted names
                f"WHERE {self.column('id')} = {self.value('id')}{self.dialect.current_read}"
            ),
            (job_id,),
            True,
        )

    # ------------------------------------------------------------ for operators

    def counts(self) -> Statement:
        """-> state, how many, how many of them with a lease that has run out."""
        expired = f"{self.column('lease_until')} < {self.clock('lease_until').now}"
        known = ", ".join(self.state(one) for one in self.columns.states)
        state = self.column("state")
        return self.cached(
            "counts",
            lambda: (
                f"SELECT {state}, COUNT(*), SUM(CASE WHEN {expired} THEN 1 ELSE 0 END) FROM {self.table} "  # noqa: S608 - quoted names
                f"WHERE {state} IN ({known}) GROUP BY {state}"
            ),
            (),
            True,
        )

    def get(self, job_id: Any) -> Statement:
        """-> the row"""
        return self.cached(
            "get",
            lambda: f"SELECT {self.row} FROM {self.table} WHERE {self.column('id')} = {self.value('id')}",  # noqa: S608 - quoted names
            (job_id,),
            True,
        )

    def dead(self, count: int) -> Statement:
        """-> the latest rows"""
        order = [f"{self.column(one)} DESC" for one in ("finished_at", "id") if self.has(one)]
        return self.cached(
            ("dead", count),
            lambda: (
                f"SELECT {self.row} FROM {self.table} WHERE {self.column('state')} = {self.state('dead')} "  # noqa: S608 - quoted names
                f"ORDER BY {', '.join(order)} LIMIT {count}"
            ),
            (),
            True,
        )

    def revive(self, job_id: Any) -> Statement:
        """Dead -> ready, with all its attempts. The version counts up, so that no earlier owner can change the job."""
        sets = [f"{self.column('version')} = COALESCE({self.column('version')}, 0) + 1"]
        if self.has("attempts"):
            sets.append(f"{self.column('attempts')} = 0")
        values: list[Any] = []
        if self.has("run_at"):
            sets.append(f"{self.column('run_at')} = {self.clock('run_at').later}")
            sets += [f"{self.column(ours)} = {value}" for ours, value in self.counted().items()]
            values.append(self.clock("run_at").given(0.0))
        sets.append(f"{self.column('state')} = {self.state('ready')}")
        where = f"{self.column('id')} = {self.value('id')} AND {self.column('state')} = {self.state('dead')}"
        text = f"UPDATE {self.table} SET {', '.join(sets)} WHERE {where}"  # noqa: S608 - quoted names
        return self.cached("revive", lambda: text, (*values, job_id), False)

    def purge(self, state: str, older: float) -> Statement:
        """Delete jobs that ended so long ago."""
        ended = self.clock("finished_at")
        return self.cached(
            ("purge", state),
            lambda: (
                f"DELETE FROM {self.table} WHERE {self.column('state')} = {self.state(state)} "  # noqa: S608 - quoted names
                f"AND {self.column('finished_at')} <= {ended.later}"
            ),
            (ended.given(-older),),
            False,
        )
