"""What the answers mean to the rules. Where there was no answer stands the careful one.

A careful answer is the one with which the verdict promises less: the effect cannot be repeated, nobody downstream
checks a fence, no database decides, an audit trail is wanted where correctness is at stake. Nothing unknown is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold._core.policy import LONG_TTL_MS

if TYPE_CHECKING:
    from leasehold.advice.need import Need

LONG = LONG_TTL_MS / 1000
SHORT = 1.0  # seconds that a row lock may be held, and others fail or wait meanwhile


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


IN_A_DATABASE = ("transition", "section")


def facts(need: Need) -> Facts:
    """A lock that a failover may forget stays unknown: what that means depends on what the lease is for."""
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
    )
