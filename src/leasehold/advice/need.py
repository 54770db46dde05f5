"""Need: the answers to the questions. Answers that make no sense or contradict each other are refused at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from leasehold._core.durations import optional_seconds
from leasehold._core.policy import LONG_TTL_MS, MOST_PERMITS
from leasehold.advice.questions import CHOICES, answer_text
from leasehold.errors import InvalidRequest

# ---------------------------------------------------------------- contradictions
#
# Answers that cannot both be true. The error names both, and there is no advice.


LONG = LONG_TTL_MS / 1000


class Contradiction(NamedTuple):
    """Two fields, when their answers clash, and why. The error names the fields and their answers."""

    one: str
    other: str
    clash: Callable[[Need], bool]
    why: str


CONTRADICTIONS = (
    Contradiction(
        "protects", "duplicates",
        lambda need: need.protects == "correctness" and need.duplicates == "harmless",
        "where two at once make something wrong, a duplicate is not harmless. If no one minds, it is efficiency",
    ),
    Contradiction(
        "protects", "duplicates",
        lambda need: need.protects == "efficiency" and need.duplicates == "wrong",
        "what must not happen twice is correctness. If it only wastes work, duplicates are costly",
    ),
    Contradiction(
        "work", "durable_state",
        lambda need: need.work in ("transition", "section") and need.durable_state is False,
        "rows of a database are durable state",
    ),
    Contradiction(
        "unique", "durable_state",
        lambda need: need.unique is not None and need.durable_state is False,
        "columns are in a database, which is durable state",
    ),
    Contradiction(
        "work", "row",
        lambda need: need.work == "transition" and need.row is False,
        "a transition changes a row, which stands for the work. Rows that are many, or not there yet, are a section",
    ),
    Contradiction(
        "work", "limit",
        lambda need: need.work in ("transition", "section", "command") and (need.limit or 1) > 1,
        "that is done by one at a time. Work that several may do at once is a task",
    ),
    Contradiction(
        "work", "duration",
        lambda need: need.work == "workflow" and need.duration is not None and _seconds(need) <= LONG,
        "a workflow takes hours or days. Shorter work is a task",
    ),
)  # fmt: skip


def refuse_contradictions(need: Need) -> None:
    for one in CONTRADICTIONS:
        if one.clash(need):
            both = [f"{field}: {answer_text(getattr(need, field))}" for field in (one.one, one.other)]
            raise InvalidRequest(f"{one.why} ({'; '.join(both)})")


def _seconds(need: Need) -> float:
    """A need keeps its duration as seconds, also when it was given as text or as a timedelta."""
    assert isinstance(need.duration, float)  # noqa: S101  # for type checkers
    return need.duration


# ---------------------------------------------------------------- need


Protects: TypeAlias = Literal["efficiency", "correctness"]
Duplicates: TypeAlias = Literal["harmless", "costly", "wrong"]
Work: TypeAlias = Literal[
    "cache", "schedule", "task", "transition", "section", "command", "message", "external", "workflow", "general"
]
Availability: TypeAlias = Literal["hours", "seconds", "none"]
Duration: TypeAlias = float | str | timedelta

MOST_COLUMNS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What a piece of work needs of coordination. None is "not known", and counts as the careful answer.

    ``protects`` must be answered. ``dataclasses.replace(need, audit=True)`` makes a need with one other answer.

    >>> import leasehold
    >>> leasehold.Need(protects="efficiency", work="cache", duplicates="harmless").duplicates
    'harmless'
    >>> leasehold.Need(protects="correctness", duplicates="harmless")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    leasehold.errors.InvalidRequest: where two at once make something wrong, a duplicate is not harmless. ...
    """

    protects: Protects
    """What is harmed if two run at once, or a stale one writes: ``efficiency``, work is done twice, or
    ``correctness``, something is wrong afterwards."""
    work: Work | None = None
    """What the work is: ``cache`` (a value that can be made again), ``schedule`` (something that the clock starts),
    ``task`` (one job of many), ``transition`` (a row changes its state), ``section`` (rows of one database are read and
    then written), ``command`` (to be processed once), ``message`` (of a broker), ``external`` (an effect outside of our
    database), ``workflow`` (many steps, over hours or days), ``general`` (none of these)."""
    duplicates: Duplicates | None = None
    """What a duplicate is: ``harmless``, ``costly`` (wasted work) or ``wrong`` (it must not happen)."""
    idempotent: bool | None = None
    """Can the effect be made idempotent, so that doing it again changes nothing?"""
    downstream_fences: bool | None = None
    """Can the system that is written to refuse a stale fence?"""
    survives_failover: bool | None = None
    """Must the state of the lock survive a failover, or the loss of its store?"""
    duration: Duration | None = None
    """How long the work can take: seconds, a timedelta, or text such as ``"5m"``. Kept as seconds."""
    durable_state: bool | None = None
    """Is there durable state that can decide: a conditional update or a unique constraint of a database?"""
    audit: bool | None = None
    """Is an audit trail required?"""
    regions: bool | None = None
    """Are partitions between regions expected?"""
    limit: int | None = None
    """How many may run at once, for each tenant or in total. None is one."""
    unique: tuple[str, ...] | None = None
    """The columns that tell one piece of the work from another, such as ``("customer", "period")``."""
    row: bool | None = None
    """Does one row stand for the work, so that it can be locked? Not so where rows are many, or not there yet."""
    steps: bool | None = None
    """Can the work be split into smaller durable steps, each recorded when it is done?"""
    availability: Availability | None = None
    """For how long the work may stand still because the store of the lease is away: ``hours`` (until somebody brings it
    back), ``seconds`` (a failover) or ``none`` (it must go on)."""
    metrics: bool | None = None
    """Is it measured, with alerts, how leases are acquired, lost and released too late?"""
    recovery: bool | None = None
    """Is there a procedure for clearing a lease, and for repairing what two at once have done?"""

    def __post_init__(self) -> None:
        for field, choices in CHOICES.items():
            _check_choice(field, getattr(self, field), choices)
        object.__setattr__(self, "duration", optional_seconds(self.duration, "duration"))
        object.__setattr__(self, "unique", _columns(self.unique))
        _check_limit(self.limit)
        refuse_contradictions(self)

    def answers(self) -> dict[str, Any]:
        """The answers that were given, in types of JSON; ``Need.of`` makes a need of them."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: list(value) if name == "unique" else value for name, value in given.items() if value is not None}

    @classmethod
    def of(cls, answers: Mapping[str, Any]) -> Need:
        """A need from a mapping, such as a JSON file: its keys are the names of the fields."""
        names = [one.name for one in fields(cls)]
        for key in answers:
            if key not in names:
                raise InvalidRequest(f"there is no answer called {str(key)[:40]!r}: it is one of {', '.join(names)}")
        if answers.get("protects") is None:
            raise InvalidRequest("protects must be answered: efficiency or correctness")
        return cls(**answers)


def _check_choice(field: str, value: object, choices: tuple[object, ...]) -> None:
    if value is None and field != "protects":
        return
    if not any(type(value) is type(one) and value == one for one in choices):
        known = (
            "True, False or None (in JSON: true, false or null)" if True in choices else ", ".join(map(str, choices))
        )
        raise InvalidRequest(f"{field} must be one of {known}, not {str(value)[:40]!r}")


def _check_limit(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest(f"limit must be an int, not {type(value).__name__}")
    if not 1 <= value <= MOST_PERMITS:
        raise InvalidRequest(f"limit must be between 1 and {MOST_PERMITS}")


def _columns(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or not 1 <= len(value) <= MOST_COLUMNS:
        raise InvalidRequest(f"unique takes 1 to {MOST_COLUMNS} names of columns, such as ('customer', 'period')")
    for one in value:
        if not isinstance(one, str) or not one.strip() or not one.isprintable():
            raise InvalidRequest("unique takes names of columns, each a text that can be printed")
    return tuple(one.strip() for one in value)


# ---------------------------------------------------------------- cases
#
# Six well-known cases with all their answers, for ``leasehold advise --case NAME``.


OTHER_NAMES = {"monthly-invoice-generation": "monthly-invoices"}


class Cases(dict[str, Need]):
    """Needs by name. A case with two names is found by both, and listed once."""

    def __missing__(self, name: str) -> Need:
        if name not in OTHER_NAMES:
            raise KeyError(name)
        return self[OTHER_NAMES[name]]


CASES: Final[Mapping[str, Need]] = Cases({
    "cache-rebuild": Need(
        protects="efficiency", work="cache", duplicates="harmless", idempotent=True, downstream_fences=False,
        survives_failover=False, duration="10s", durable_state=False, audit=False, regions=False,
        steps=False, availability="hours", metrics=True, recovery=True,
    ),
    "search-index-refresh": Need(
        protects="efficiency", work="schedule", duplicates="harmless", idempotent=True, downstream_fences=True,
        survives_failover=False, duration="10m", durable_state=False, audit=False, regions=False,
        steps=True, availability="hours", metrics=True, recovery=True,
    ),
    "report-export": Need(
        protects="efficiency", work="task", duplicates="costly", idempotent=True, downstream_fences=True,
        survives_failover=False, duration="5m", durable_state=True, audit=False, regions=False,
        steps=True, availability="hours", metrics=True, recovery=True,
    ),
    "monthly-invoices": Need(
        protects="correctness", work="schedule", duplicates="wrong", idempotent=True, downstream_fences=True,
        survives_failover=False, duration="40m", durable_state=True, audit=True, regions=False,
        unique=("customer", "period"),
        steps=True, availability="hours", metrics=True, recovery=True,
    ),
    "payment-capture": Need(
        protects="correctness", work="external", duplicates="wrong", idempotent=True, downstream_fences=False,
        survives_failover=False, duration="10s", durable_state=True, audit=True, regions=False,
        steps=False, availability="hours", metrics=True, recovery=True,
    ),
    "legal-case-assignment": Need(
        protects="correctness", work="transition", duplicates="wrong", idempotent=True, downstream_fences=True,
        survives_failover=False, duration="1s", durable_state=True, audit=True, regions=False,
        steps=False, availability="hours", metrics=True, recovery=True,
    ),
})  # fmt: skip
"""A need for each name: ``cache-rebuild``, ``search-index-refresh``, ``report-export``, ``monthly-invoices``,
``payment-capture`` and ``legal-case-assignment``. ``monthly-invoice-generation`` is ``monthly-invoices``."""
