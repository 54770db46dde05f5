"""The rules: a table that is read from the top. The first line whose ``needs`` are all met decides.

``needs`` are facts and the values that they must have. In ``transaction``, ``{unique}`` stands for the columns that
were named (``{unique:command id}`` has a default for when none were), ``{steps}`` for " + progress of each step" where
the work can be split, and ``{audit}`` for " + audit" where a trail is wanted. The last lines for efficiency and for
correctness have no other needs, so that every need meets one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from leasehold._core.policy import LONG_TTL_MS
from leasehold.advice.verdict import Acceptable, Reach, Tool

if TYPE_CHECKING:
    from leasehold.advice.need import Need

# ---------------------------------------------------------------- facts
#
# What the answers mean to the rules. An answer that is not known counts as the careful one.
#
# The careful answer is the one with which the verdict promises less: the effect cannot be repeated, no downstream
# system checks a fence, no database decides, an audit trail is wanted where correctness is at stake. Work of unknown
# length is not short.


LONG = LONG_TTL_MS / 1000
SHORT = 1.0  # seconds that a row lock may be held, while others fail or wait


class Facts(NamedTuple):
    """The answers, for the rules. ``short`` and ``long`` are about the duration, ``several`` about the limit."""

    protects: str
    work: str
    duplicates: str
    idempotent: bool
    downstream_fences: bool
    durable_state: bool
    survives_failover: bool | None
    audit: bool
    regions: bool | None
    short: bool
    long: bool
    several: bool
    row: bool
    steps: bool
    availability: str


IN_A_DATABASE = ("transition", "section")


def facts(need: Need) -> Facts:
    """``survives_failover`` and ``regions`` may stay unknown: what that means depends on what the lease is for."""
    correctness = need.protects == "correctness"
    seconds = need.duration if isinstance(need.duration, float) else None
    return Facts(
        protects=need.protects,
        work=need.work or "general",
        duplicates=need.duplicates or ("wrong" if correctness else "costly"),
        idempotent=bool(need.idempotent),
        downstream_fences=bool(need.downstream_fences),
        durable_state=bool(need.durable_state or need.unique) or need.work in IN_A_DATABASE,
        survives_failover=need.survives_failover,
        audit=correctness if need.audit is None else need.audit,
        regions=need.regions,
        short=seconds is not None and seconds <= SHORT,
        long=need.work == "workflow" or (seconds is not None and seconds > LONG),
        several=(need.limit or 1) > 1,
        row=need.row is not False,
        steps=bool(need.steps),
        availability=need.availability or ("seconds" if correctness else "hours"),
    )


# ---------------------------------------------------------------- rules


YES: Final = "yes"
FENCED: Final = "yes, with its fence"
SAVES_WORK: Final = "only to save work"
NO: Final = "no"

# How far each mechanism suffices.
CACHE = Reach("usually enough", "overkill", "not needed")
CRON = Reach("usually enough", "maybe", "not needed")
JOB = Reach("often, with idempotency", "maybe", "maybe")
STATE = Reach("not enough alone", "not enough alone", "required")
EFFECT = Reach("needs fencing", "needs fencing", "often required")
BROKER = Reach("not needed", "not needed", "not needed")
DATABASE = Reach("not needed", "not needed", "required")


class Rule(NamedTuple):
    """One line of the table."""

    situation: str
    needs: Mapping[str, object]
    tool: Tool
    lease: Acceptable
    fencing: str
    transaction: str
    reach: Reach
    why: str


EFFICIENCY = {"protects": "efficiency"}
CORRECTNESS = {"protects": "correctness"}

RULES = (
    # ------------------------------------------------------------ what is decided elsewhere
    Rule(
        "messages of a broker, where correctness is at stake", {"work": "message", **CORRECTNESS},
        "consumer group", NO, "no", "yes, {unique:message id} in the handler's own transaction", STATE,
        "The work is a message: the broker gives each to one consumer of a group, and again when that one is gone.",
    ),
    Rule(
        "messages of a broker", {"work": "message"},
        "consumer group", NO, "no", "no", BROKER,
        "The work is a message: the broker gives each to one consumer of a group, and again when that one is gone.",
    ),
    Rule(
        "unique processing of a command", {"work": "command"},
        "once", SAVES_WORK, "not sufficient", "yes, {unique:command id}", STATE,
        "The work is a command: the second of two is found by its id, however late it comes; no lease lasts so long.",
    ),
    Rule(
        "a state transition of a database row, where correctness is at stake", {"work": "transition", **CORRECTNESS},
        "transition", SAVES_WORK, "not sufficient", "yes, conditional transition{audit}", STATE,
        "The work is a transition: the row changes if it is still as it was seen, in one statement without a clock.",
    ),
    Rule(
        "a state transition of a database row", {"work": "transition"},
        "transition", NO, "no", "conditional update or transaction", DATABASE,
        "The work is a transition: the row changes if it is still as it was seen, in one statement without a clock.",
    ),
    # ------------------------------------------------------------ several at once
    Rule(
        "places that must not be exceeded", {"several": True, "durable_state": True, **CORRECTNESS},
        "transition", SAVES_WORK, "not sufficient", "yes, places counted in the database{audit}", STATE,
        "A permit can end while its holder goes on: a limit that must hold is counted where it is durable.",
    ),
    Rule(
        "several at once, occasional excess harmless",
        {"several": True, "duplicates": "harmless", "long": False, **EFFICIENCY},
        "semaphore", YES, "no", "no", CRON,
        "Permits expire, so that a crash blocks no place for longer than its ttl.",
    ),
    Rule(
        "an expensive task, N for each tenant", {"several": True, **EFFICIENCY},
        "semaphore + jobs", YES, "yes, on the job row", "conditional update of its status", JOB,
        "Permits bound how many run; which jobs are begun and done is durable state, which outlives every permit.",
    ),
    # ------------------------------------------------------------ by length
    Rule(
        "a short section without a row to lock", {"work": "section", "short": True, "row": False},
        "advisory_lock", NO, "no", "yes, advisory lock in one transaction (PostgreSQL)", DATABASE,
        "The work is a section: the database locks a name for the transaction, and lets go of it when that ends.",
    ),
    Rule(
        "a short section, and the database is the ground truth", {"work": "section", "short": True},
        "row_lock", NO, "no", "yes, row lock in one transaction (FOR UPDATE NOWAIT)", DATABASE,
        "The work is a section: the database locks the rows itself, and lets go of them when the connection ends.",
    ),
    Rule(
        "a long-running workflow, where correctness is at stake", {"long": True, **CORRECTNESS},
        "jobs", SAVES_WORK, "yes, on the job row", "yes, durable ownership with heartbeat{steps}{audit}",
        STATE,
        "Work of hours has an owner in a table, with a heartbeat, and a takeover that refuses the old owner.",
    ),
    Rule(
        "a long-running workflow", {"long": True},
        "jobs", SAVES_WORK, "yes, on the job row", "yes, durable ownership with heartbeat{steps}", JOB,
        "Work of hours has an owner in a table, with a heartbeat, and a takeover that refuses the old owner.",
    ),
    # ------------------------------------------------------------ effects elsewhere
    Rule(
        "an external effect that can check a fence", {"work": "external", "downstream_fences": True, **CORRECTNESS},
        "lock + guard", FENCED, "yes, checked where the effect happens", "yes, check and effect in one step", EFFECT,
        "The work is an external effect: the fence goes along with each request, and an older one is refused there.",
    ),
    Rule(
        "an external effect that can check a fence", {"work": "external", "downstream_fences": True},
        "lock + guard", YES, "yes, checked where the effect happens", "no", EFFECT,
        "The work is an external effect: the fence goes along with each request, and an older one is refused there.",
    ),
    Rule(
        "an external effect that cannot check a fence, and can be repeated",
        {"work": "external", "downstream_fences": False, "idempotent": True, **CORRECTNESS},
        "once", SAVES_WORK, "not sufficient", "yes, idempotency key at the provider and unique constraint", STATE,
        "The work is an external effect: the key makes a repeated request the same one, also after a crash halfway.",
    ),
    Rule(
        "an external effect that can neither check a fence nor be repeated",
        {"work": "external", "downstream_fences": False, "idempotent": False, "durable_state": True, **CORRECTNESS},
        "transition", SAVES_WORK, "not sufficient", "yes, intent recorded before the effect{audit}", STATE,
        "The work is an external effect: only the process that changed the row to 'begun' may act, and no other does.",
    ),
    Rule(
        "an external effect that cannot check a fence",
        {"work": "external", "downstream_fences": False, "duplicates": "costly", **EFFICIENCY},
        "once", YES, "not possible", "unique constraint", EFFECT,
        "The work is an external effect: a key that is stored with the result shows the next one that it is done.",
    ),
    # ------------------------------------------------------------ schedules, jobs, caches
    Rule(
        "a schedule whose result must exist once", {"work": "schedule", "durable_state": True, **CORRECTNESS},
        "cron + insert_once", SAVES_WORK, "yes", "yes, {unique}", STATE,
        "The work is a schedule: one run a tick saves work; the constraint refuses a second result when two have run.",
    ),
    Rule(
        "a duplicate non-critical schedule", {"work": "schedule", **EFFICIENCY},
        "cron", YES, "helpful", "no", CRON,
        "The work is a schedule: one run a tick in the fleet, and work that may run twice.",
    ),
    Rule(
        "a single worker for a job, where correctness is at stake",
        {"work": "task", "durable_state": True, **CORRECTNESS},
        "jobs", SAVES_WORK, "yes, on the job row", "yes, conditional update of its status{audit}", STATE,
        "The work is a task: the row names the owner of the job, and refuses a worker that finishes late.",
    ),
    Rule(
        "a single worker for an idempotent job",
        {"work": "task", "durable_state": True, "duplicates": "costly", **EFFICIENCY},
        "lock + guard", YES, "yes, on the job row", "conditional update of its status", JOB,
        "The work is a task: the lease keeps others from beginning, the row refuses a worker that finishes late.",
    ),
    Rule(
        "a duplicate cache rebuild", {"work": "cache", **EFFICIENCY},
        "single_flight", YES, "no (a version or short TTL is enough)", "no", CACHE,
        "The work is a cache: one rebuilds, the others take its value, and a wrong value is gone when it expires.",
    ),
    # ------------------------------------------------------------ everything else
    Rule(
        "a section too long for a row lock", {"work": "section", **CORRECTNESS},
        "lock + guard", SAVES_WORK, "yes, in the same transaction as the write", "yes, check and write together{audit}",
        STATE,
        "The work is a section: the lease keeps others away while it lasts, and the guard refuses a late write.",
    ),
    Rule(
        "costly work on a row", {"durable_state": True, "duplicates": "costly", **EFFICIENCY},
        "lock + guard", YES, "yes, on the row", "conditional update of the row", JOB,
        "The lease saves the work, the row refuses a worker that finishes late.",
    ),
    Rule(
        "general mutual exclusion, occasional duplicates harmless", {"duplicates": "harmless", **EFFICIENCY},
        "lock", YES, "no", "no", CRON,
        "A lease that is renewed while the work runs is enough, and simple.",
    ),
    Rule(
        "general mutual exclusion, duplicates costly", EFFICIENCY,
        "lock", YES, "helpful", "no", JOB,
        "A lease that is renewed while the work runs saves all but the rare duplicate.",
    ),
    Rule(
        "payment, stock, legal or regulatory correctness", {"durable_state": True, **CORRECTNESS},
        "transition", SAVES_WORK, "not sufficient", "yes, conditional transition{audit}", STATE,
        "The database decides; a lease only keeps others from work that would be thrown away.",
    ),
    Rule(
        "correctness that a fence can keep", {"downstream_fences": True, **CORRECTNESS},
        "lock + guard", FENCED, "yes, checked at every write", "yes, check and write in one step", EFFECT,
        "The lease decides which process may work, and the guard refuses a late write.",
    ),
    Rule(
        "correctness of an effect that can be repeated", {"idempotent": True, **CORRECTNESS},
        "once", SAVES_WORK, "not sufficient", "yes, {unique}", STATE,
        "A key that is stored with the result makes the second time the same as the first.",
    ),
    Rule(
        "correctness without anything that could refuse a late write", CORRECTNESS,
        "consensus store", SAVES_WORK, "not sufficient", "yes, conditional write where the state lives{audit}", STATE,
        "Nothing among the answers could refuse a late write: first keep the state where a write can be refused.",
    ),
)  # fmt: skip


def rule_for(known: Facts) -> Rule:
    """The first rule whose needs are met."""
    return next(rule for rule in RULES if fits(known, rule.needs))


def fits(known: NamedTuple, needs: Mapping[str, object]) -> bool:
    return all(getattr(known, field) == value for field, value in needs.items())
