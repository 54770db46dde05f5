"""advise: the verdict on a need, with reasons that name the answers, also those that nobody gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from leasehold.advice.deciding import Columns, Decision, decide
from leasehold.advice.facts import LONG, SHORT
from leasehold.advice.need import Need
from leasehold.advice.questions import CHOICES
from leasehold.advice.sayings import ANSWERS, UNKNOWN, UNKNOWN_WORK, WARNINGS
from leasehold.advice.verdict import COLUMNS, Verdict
from leasehold.advice.words import length, said
from leasehold.errors import InvalidRequest

FIELD_OF = {"long": "duration", "short": "duration", "several": "limit"}
LENGTHS = {LONG: f"up to {length(LONG)}", SHORT: f"at most {length(SHORT)}", LONG * 2: f"over {length(LONG)}"}
TRIED: dict[str, tuple[Any, ...]] = {**CHOICES, "duration": tuple(LENGTHS)}  # a length of each sort


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
    made = decide(need)
    reasons = (*_given(need, made), *_unknown(need, made.columns))
    return Verdict(
        situation=made.rule.situation,
        reach=made.rule.reach,
        reasons=reasons,
        warnings=tuple(_warnings(need, made)),
        **{field: getattr(made.columns, field) for field in COLUMNS},
    )


def _given(need: Need, made: Decision) -> Iterator[str]:
    """The answers that the rule was found by, what the rule says, and the answers that chose the store."""
    yield ANSWERS["protects", need.protects]
    yield made.rule.why
    needed = [FIELD_OF.get(field, field) for field in made.rule.needs]
    for field in dict.fromkeys([*needed, "duplicates", "survives_failover", "regions"]):
        if field == "duration":
            yield from _about_duration(need, made)
        elif field == "limit" and made.known.several:
            yield f"Up to {need.limit} may run at once, and no more."
        elif field not in ("protects", "work") and (field, getattr(need, field)) in ANSWERS:
            yield ANSWERS[field, getattr(need, field)]


def _about_duration(need: Need, made: Decision) -> Iterator[str]:
    if made.known.long and need.duration is not None:
        yield f"The work takes {said(need.duration)}: over {length(LONG)} a lease is the wrong home for ownership."
    if made.known.short and "short" in made.rule.needs:
        yield f"The work takes {said(need.duration)}: at most {length(SHORT)}, so a row lock keeps nobody waiting long."


# ---------------------------------------------------------------- what nobody said


class Other(NamedTuple):
    """Another answer, and the columns with it."""

    answer: str
    columns: Columns


def _unknown(need: Need, columns: Columns) -> Iterator[str]:
    """Of each answer that is not known and would matter: what it counts as, and what the others would lead to."""
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


def _tried(need: Need, field: str) -> Iterator[Other]:
    for value in TRIED[field]:
        try:
            other: Any = {field: value}
            yield Other(LENGTHS[value] if field == "duration" else said(value), decide(replace(need, **other)).columns)
        except InvalidRequest:
            pass  # it would contradict what is known


def _difference(ours: Columns, theirs: Columns) -> str:
    """The tool, or else the first column in which they differ."""
    field = next(field for field in COLUMNS if getattr(ours, field) != getattr(theirs, field))
    return theirs.tool if field == "tool" else f"{COLUMNS[field]}: {getattr(theirs, field)}"


def _warnings(need: Need, made: Decision) -> Iterator[str]:
    """``trail``: what was said of an audit, where the transaction does not speak of it already."""
    trail = "told" if "{audit}" in made.rule.transaction else need.audit
    there = {**made.known._asdict(), "tool": made.rule.tool, "trail": trail}
    for one in WARNINGS:
        if all(there[field] == value for field, value in one.due.items()):
            yield one.text
