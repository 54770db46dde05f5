"""Answers that cannot both be true. Whoever gives them is told both, before anything is advised."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from leasehold._core.policy import LONG_TTL_MS
from leasehold.advice.words import said
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from leasehold.advice.need import Need

LONG = LONG_TTL_MS / 1000


class Contradiction(NamedTuple):
    """Two fields, when their answers clash, and why. Who gave answers by name is told the names, too."""

    one: str
    other: str
    clash: Callable[[Need], bool]
    why: str


CONTRADICTIONS = (
    Contradiction(
        "protects", "duplicates",
        lambda need: need.protects == "correctness" and need.duplicates == "harmless",
        "where two at once make something wrong, a duplicate is not harmless. If nobody minds, it is efficiency",
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
        "work", "limit",
        lambda need: need.work in ("transition", "section", "command") and (need.limit or 1) > 1,
        "that is done by one at a time. For several at once, say which task",
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
            both = [f"{field}: {said(getattr(need, field))}" for field in (one.one, one.other)]
            raise InvalidRequest(f"{one.why} ({'; '.join(both)})")


def _seconds(need: Need) -> float:
    """It is kept as seconds; text and timedeltas are for whoever makes a need."""
    assert isinstance(need.duration, float)  # noqa: S101  # for type checkers
    return need.duration
