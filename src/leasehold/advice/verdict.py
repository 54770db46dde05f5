"""Verdict: which coordination fits, as the columns of a table, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

Tool: TypeAlias = Literal[
    "lock",
    "lock + guard",
    "semaphore",
    "semaphore + jobs",
    "single_flight",
    "cron",
    "cron + insert_once",
    "once",
    "jobs",
    "transition",
    "row_lock",
    "advisory_lock",
    "consumer group",
    "consensus store",
]
Acceptable: TypeAlias = Literal["yes", "yes, with its fence", "only to save work", "no"]
Duplicates: TypeAlias = Literal["yes", "costly, not wrong", "no"]

TOOLS: dict[Tool, str] = {
    "lock": "hold.lock, renewed while the work runs",
    "lock + guard": "hold.lock, and a guard that checks its fence where the data is",
    "semaphore": "hold.semaphore, whose permits expire",
    "semaphore + jobs": "hold.semaphore for how many, and the state of each job in a table",
    "single_flight": "hold.single_flight: one caller rebuilds, the others take its value",
    "cron": "hold.cron: one run a tick in the fleet, and work that may run twice",
    "cron + insert_once": "hold.cron to save work, and a unique constraint for the result",
    "once": "hold.once: an idempotency key, with the result stored beside it",
    "jobs": "leasehold.patterns.Jobs, or a workflow engine: durable ownership with a heartbeat, not a long ttl",
    "transition": "leasehold.patterns.transition: a conditional update, and no lock",
    "row_lock": "leasehold.patterns.row_lock: SELECT ... FOR UPDATE NOWAIT in one transaction",
    "advisory_lock": "leasehold.patterns.advisory_lock: PostgreSQL locks a name for one transaction",
    "consumer group": "the broker's consumer group, and a handler that is idempotent",
    "consensus store": "state in a consensus store or a database that decides each write",
}
COLUMNS = {
    "tool": "tool",
    "lease": "lease acceptable",
    "fencing": "fencing required",
    "transaction": "transaction required",
    "duplicates": "duplicates acceptable",
    "store": "where the lease lives",
}


class Reach(NamedTuple):
    """How far each mechanism suffices."""

    one_redis: str
    redlock: str
    consensus: str

    def __str__(self) -> str:
        return f"one Redis: {self.one_redis}; Redlock: {self.redlock}; consensus or database: {self.consensus}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The result of ``leasehold.advise``. ``str(verdict)`` is for people, ``verdict.as_dict()`` for programs.

    >>> import leasehold
    >>> verdict = leasehold.advise(leasehold.Need(protects="efficiency", work="cache", duplicates="harmless"))
    >>> verdict.tool, verdict.lease, verdict.fencing
    ('single_flight', 'yes', 'no (a version or short TTL is enough)')
    """

    situation: str
    """The line of the table that applies."""
    tool: Tool
    """What to use: a part of Leasehold, or something else."""
    lease: Acceptable
    """Is a lease acceptable? ``yes``, ``yes, with its fence`` (where a guard checks that), ``only to save work`` (and
    something else decides) or ``no`` (it would add nothing)."""
    fencing: str
    """Is fencing required?"""
    transaction: str
    """Is a transaction required, and which?"""
    duplicates: Duplicates
    """Are duplicates acceptable? ``yes``, ``costly, not wrong`` or ``no``."""
    store: str
    """Where the lease lives, if there is one."""
    reach: Reach
    """How far one Redis, Redlock, and consensus or a database carry."""
    reasons: tuple[str, ...]
    """Why, by the answers that were given; and what the answers that are not known count as."""
    warnings: tuple[str, ...] = ()
    """What else to be careful about."""

    def as_dict(self) -> dict[str, Any]:
        """For programs: stable keys, in types of JSON."""
        plain = {**asdict(self), "reach": self.reach._asdict()}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    def __str__(self) -> str:
        lines = [f"Use {TOOLS[self.tool]}.", f"It is {self.situation}.", ""]
        lines += [f"  {label:<21}  {getattr(self, field)}" for field, label in COLUMNS.items()]
        lines += [f"  {'how far it carries':<21}  {self.reach}"]
        for head, sentences in (("Why", self.reasons), ("Warnings", self.warnings)):
            lines += ["", head, *[f"  - {one}" for one in sentences]] if sentences else []
        return "\n".join(lines)
