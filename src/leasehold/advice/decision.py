"""From a need to a verdict: the rule that decides, the reasons, and the warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from leasehold._core.schemes import OPENED
from leasehold.advice.need import Need
from leasehold.advice.questions import CHOICES, answer_text, duration_text
from leasehold.advice.rules import FENCED, LONG, NO, SAVES_WORK, SHORT, Facts, Rule, facts, rule_for
from leasehold.advice.verdict import COLUMNS, Verdict
from leasehold.errors import InvalidRequest

ANSWERS: dict[tuple[str, object], str] = {
    ("protects", "efficiency"): (
        "Efficiency is at stake: if two run at once, work is done twice and nothing else; so a lease may decide."
    ),
    ("protects", "correctness"): (
        "Correctness is at stake: a lease can end before the work does, whichever store it lives in; so the write "
        "itself must be refused where it happens."
    ),
    ("duplicates", "harmless"): "Duplicates are harmless: two at once, after a pause or a failover, can be borne.",
    ("duplicates", "costly"): (
        "Duplicates are costly: a lease saves nearly all of them; the rare one must not replace a newer result."
    ),
    ("duplicates", "wrong"): (
        "Duplicates are wrong: what must not happen twice is refused by the state that it changes, not by a lease."
    ),
    (
        "idempotent",
        True,
    ): ("The effect can be made idempotent: after an unclear end it can be done again, and nothing changes."),
    ("idempotent", False): (
        "The effect cannot be made idempotent: after an unclear end it is not known whether it may be done again."
    ),
    ("downstream_fences", True): (
        "The system that is written to can refuse a stale fence: a stale owner is stopped there, and a late write does "
        "no harm."
    ),
    ("downstream_fences", False): (
        "The system that is written to cannot refuse a stale fence: a stale owner is not recognised where the effect "
        "happens."
    ),
    ("durable_state", True): (
        "There is durable state that can decide: the database does so in one statement, without a clock."
    ),
    ("durable_state", False): (
        "There is no durable state that can decide: no row and no constraint could refuse the second one."
    ),
    ("row", False): (
        "No row stands for the work: there is none to lock. PostgreSQL can lock a name; in another database, insert a "
        "row that stands for it, and lock that."
    ),
    ("survives_failover", True): (
        "The lock must survive a failover: a replica may not have the last grant when it takes over; a majority has, "
        "because each grant and each renewal waits for the disks of a majority."
    ),
    ("regions", True): (
        "Regions can be cut off from each other: then only a majority can go on, and one region waits."
    ),
    ("steps", True): (
        "The work can be split into durable steps: a takeover goes on with the first that is not recorded as done."
    ),
    ("steps", False): "The work cannot be split into durable steps: a takeover begins it again.",
    ("availability", "seconds"): (
        "The store may be away for seconds only: another server takes over by itself, and nobody has to be woken."
    ),
    ("availability", "none"): (
        "The work must go on when the store is away: no store grants a lease then; one that fails over is away less."
    ),
}
UNKNOWN = {
    "duplicates": "What a duplicate is",
    "idempotent": "Whether the effect can be made idempotent",
    "downstream_fences": "Whether the system that is written to can refuse a stale fence",
    "durable_state": "Whether there is durable state that can decide",
    "row": "Whether one row stands for the work",
    "survives_failover": "Whether the lock must survive a failover",
    "duration": "How long the work can take",
    "steps": "Whether the work can be split into durable steps",
    "availability": "How long the work may stand still because its store is away",
    "audit": "Whether an audit trail is required",
    "regions": "Whether partitions between regions are expected",
}
"""What an answer is called that is not known, in the order in which they are listed."""
UNKNOWN_WORK = (
    "The kind of work is not known, and counts as general mutual exclusion: with it the verdict may be more precise."
)


class Caution(NamedTuple):
    """A warning, and the facts and columns that cause it."""

    due: dict[str, object]
    text: str


WARNINGS = (
    Caution(
        {"work": "schedule", "protects": "efficiency", "idempotent": False},
        "Make the work idempotent: a tick can run twice, when its holder pauses or the store forgets.",
    ),
    Caution(
        {"tool": "consumer group", "idempotent": False},
        "Make the handler idempotent: a broker delivers at least once, so the same message will come again.",
    ),
    Caution(
        {"work": "external", "protects": "correctness", "downstream_fences": False, "idempotent": False},
        "Nothing makes this effect happen exactly once. After a crash in the middle, ask the other side or a person.",
    ),
    Caution(
        {"tool": "once", "durable_state": False},
        "An idempotency key needs a durable home: a key that is forgotten protects nothing.",
    ),
    Caution(
        {"tool": "semaphore + jobs", "durable_state": False},
        "Give the jobs a table: a permit that ends does not record which jobs were begun.",
    ),
    Caution(
        {"tool": "consensus store"},
        "A consensus store makes the grant certain, not the write: without a conditional write, a check of the fence "
        "or idempotency, a paused owner still writes late.",
    ),
    Caution(
        {"long": True, "split": None},
        "Split it into smaller durable steps if you can: each of them may then be repeated, and a takeover loses less.",
    ),
    Caution(
        {"long": True, "split": False},
        "A takeover begins the work again: each part of it must bear being repeated, also when it was nearly done.",
    ),
    Caution(
        {"availability": "none", "leased": True, "protects": "efficiency"},
        "Let the work go on without a lease when acquiring raises StoreUnavailable: that costs duplicates meanwhile.",
    ),
    Caution(
        {"availability": "none", "lease": SAVES_WORK, "protects": "correctness"},
        "The work may go on when acquiring raises StoreUnavailable: the lease only saves work, and the database still "
        "decides.",
    ),
    Caution(
        {"availability": "none", "lease": FENCED},
        "There is no new fence while the store is away, so this work stands still then, whatever it must: keep state "
        "that can decide without the lease.",
    ),
    Caution(
        {"measured": False, "leased": True},
        "Measure how leases are acquired, lost and released too late, with alerts: nobody sees otherwise that two ran.",
    ),
    Caution(
        {"measured": None, "leased": True, "protects": "correctness"},
        "Whether it is measured how leases are lost is not known, and counts as no: add metrics and alerts.",
    ),
    Caution(
        {"recovery": False, "leased": True},
        "Write down how a lease is inspected and cleared, and how a duplicate is found and repaired.",
    ),
    Caution(
        {"recovery": None, "leased": True, "protects": "correctness"},
        "Whether there is a recovery procedure is not known, and counts as no: write down how a lease is cleared, and "
        "how a duplicate is found and repaired.",
    ),
    Caution(
        {"trail": True},
        "Write the audit entry in the same transaction as the change: events and logs of leases are no audit trail.",
    ),
    Caution(
        {"trail": None, "protects": "correctness"},
        "Whether an audit trail is required is not known, and counts as yes: write an entry in the same transaction as "
        "the change.",
    ),
    Caution(
        {"regions": True, "duplicates": "harmless"},
        "One store in each region is enough: a duplicate for each of them is harmless.",
    ),
    Caution(
        {"survives_failover": True, "duplicates": "harmless"},
        "A failover that forgets the lease costs one duplicate, which is harmless: you may not need a majority.",
    ),
)


# ---------------------------------------------------------------- the decision
#
# From a need to the columns of its verdict: the rule that applies, and the store for the lease.


DUPLICATES = {"harmless": "yes", "costly": "costly, not wrong", "wrong": "no"}


def _opened(*stores: str) -> str:
    """Those of these stores that ``connect`` opens: nothing else is recommended."""
    *others, last = [OPENED[store].words for store in stores if store in OPENED]
    return f"{', '.join(others)} or {last}" if others else last


NOWHERE = "none is needed"
ONE_SERVER = f"{_opened('redis', 'sentinel', 'postgresql')}, with the watchdog"
FAILS_OVER = f"{_opened('sentinel', 'cluster')}, or {_opened('postgresql')} with a standby, with the watchdog"
CONSENSUS = _opened("etcd", "zookeeper")
NO_GRANT_FORGOTTEN = f"{CONSENSUS}, or {_opened('postgresql')} with a synchronous standby"


class Columns(NamedTuple):
    """A verdict without its reasons."""

    tool: str
    lease: str
    fencing: str
    transaction: str
    duplicates: str
    store: str


class Decision(NamedTuple):
    """The rule that applies, the facts by which it was found, and the columns."""

    rule: Rule
    known: Facts
    columns: Columns


class Unique:
    """The columns of a unique constraint, in a line of the table."""

    def __init__(self, columns: tuple[str, ...] | None) -> None:
        self._columns = columns

    def __format__(self, otherwise: str) -> str:
        named = ", ".join(self._columns or ()) or otherwise
        return f"unique ({named})" if named else "a unique constraint"


def decide(need: Need) -> Decision:
    known = facts(need)
    rule = rule_for(known)
    transaction = rule.transaction.format(
        unique=Unique(need.unique),
        audit=" + audit" if known.audit else "",
        steps=" + progress of each step" if known.steps else "",
    )
    duplicates = DUPLICATES[known.duplicates]
    return Decision(
        rule, known, Columns(rule.tool, rule.lease, rule.fencing, transaction, duplicates, _store(rule, known))
    )


def _store(rule: Rule, known: Facts) -> str:
    """A store may forget a lease that only saves work. Where more depends on the lease it may not, unless the answers
    allow it."""
    if rule.lease == NO:
        return NOWHERE
    matters = rule.lease == FENCED  # what is not known counts as yes
    apart = (known.regions is True and known.duplicates != "harmless") or (matters and known.regions is None)
    if rule.tool == "consensus store" or apart:
        return CONSENSUS
    if known.survives_failover is True or (matters and known.survives_failover is None):
        return NO_GRANT_FORGOTTEN
    return ONE_SERVER if known.availability == "hours" else FAILS_OVER


# ---------------------------------------------------------------- the verdict
#
# ``advise``: the verdict on a need, with reasons that name the answers and those that are not known.


FIELD_OF = {"long": "duration", "short": "duration", "several": "limit"}
LENGTHS = {
    LONG: f"up to {duration_text(LONG)}",
    SHORT: f"at most {duration_text(SHORT)}",
    LONG * 2: f"over {duration_text(LONG)}",
}
TRIED: dict[str, tuple[Any, ...]] = {**CHOICES, "duration": tuple(LENGTHS)}  # a duration of each class


def advise(need: Need) -> Verdict:
    """Which coordination fits this need, and why.

    >>> import leasehold
    >>> need = leasehold.Need(protects="correctness", work="transition", durable_state=True, audit=True)
    >>> verdict = leasehold.advise(need)
    >>> verdict.tool, verdict.lease, verdict.transaction
    ('transition', 'only to save work', 'yes, conditional transition + audit')
    """
    if not isinstance(need, Need):
        raise InvalidRequest(f"advise takes a Need, not {type(need).__name__}: leasehold.Need(protects=...)")
    decision = decide(need)
    reasons = (*_given(need, decision), *_unknown(need, decision.columns))
    return Verdict(
        situation=decision.rule.situation,
        reach=decision.rule.reach,
        reasons=reasons,
        warnings=tuple(_warnings(need, decision)),
        **{field: getattr(decision.columns, field) for field in COLUMNS},
    )


def _given(need: Need, decision: Decision) -> Iterator[str]:
    """The answers by which the rule was found, the reason of the rule, and the answers that decided the store."""
    yield ANSWERS["protects", need.protects]
    yield decision.rule.why
    needed = [FIELD_OF.get(field, field) for field in decision.rule.needs]
    decided = ["duplicates", *(("steps",) if decision.known.long else ()), "survives_failover", "regions"]
    leased = decision.rule.lease != NO
    for field in dict.fromkeys([*needed, *decided, *(("availability",) if leased else ())]):
        if field == "duration":
            yield from _about_duration(need, decision)
        elif field == "limit" and decision.known.several:
            yield f"Up to {need.limit} may run at once, and no more."
        elif field not in ("protects", "work") and (field, getattr(need, field)) in ANSWERS:
            yield ANSWERS[field, getattr(need, field)]


def _about_duration(need: Need, decision: Decision) -> Iterator[str]:
    if decision.known.long and need.duration is not None:
        yield (
            f"The work takes {answer_text(need.duration)}: over {duration_text(LONG)} a lease is the wrong home for "
            "ownership."
        )
    if decision.known.short and "short" in decision.rule.needs:
        yield (
            f"The work takes {answer_text(need.duration)}: at most {duration_text(SHORT)}, so a lock of the database "
            "makes no one wait long."
        )


# ---------------------------------------------------------------- answers that are not known


class OtherAnswer(NamedTuple):
    """Another answer, and the columns with it."""

    answer: str
    columns: Columns


def _unknown(need: Need, columns: Columns) -> Iterator[str]:
    """For each answer that is not known and would matter: what it counts as, and what others would lead to."""
    if need.work is None:
        yield UNKNOWN_WORK
    for field, name in UNKNOWN.items():
        if getattr(need, field) is not None:
            continue
        tried = list(_tried(need, field))
        same = [one.answer for one in tried if one.columns == columns]
        other = [f"{one.answer} would lead to {_difference(columns, one.columns)}" for one in tried
                 if one.columns != columns]  # fmt: skip
        if other:
            counts = f", and counts as {same[0]}" if same else ""
            yield f"{name} is not known{counts}; {'; '.join(other)}."


def _tried(need: Need, field: str) -> Iterator[OtherAnswer]:
    for value in TRIED[field]:
        try:
            other: Any = {field: value}
            yield OtherAnswer(
                LENGTHS[value] if field == "duration" else answer_text(value), decide(replace(need, **other)).columns
            )
        except InvalidRequest:
            pass  # it would contradict what is known


def _difference(ours: Columns, theirs: Columns) -> str:
    """The tool, or else the first column in which they differ."""
    field = next(field for field in COLUMNS if getattr(ours, field) != getattr(theirs, field))
    return theirs.tool if field == "tool" else f"{COLUMNS[field]}: {getattr(theirs, field)}"


def _warnings(need: Need, decision: Decision) -> Iterator[str]:
    """``trail``: the answer about an audit trail, unless the column of the transaction mentions it already."""
    rule = decision.rule
    known = {
        **decision.known._asdict(),
        "tool": rule.tool,
        "lease": rule.lease,
        "leased": rule.lease != NO,
        "trail": "mentioned" if "{audit}" in rule.transaction else need.audit,
        "split": need.steps,
        "availability": need.availability,
        "measured": need.metrics,
        "recovery": need.recovery,
    }
    for one in WARNINGS:
        if all(known[field] == value for field, value in one.due.items()):
            yield one.text
