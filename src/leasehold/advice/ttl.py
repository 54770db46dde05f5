"""How long a lease should be: the arithmetic of ``docs/concepts/choosing-a-ttl.md``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from leasehold._core.durations import seconds
from leasehold._core.policy import LONG_TTL_MS, MAX_TTL_MS, MIN_TTL_MS, margin, renew_after
from leasehold.advice.questions import duration_text
from leasehold.errors import InvalidRequest

Duration: TypeAlias = float | str | timedelta

LEAST = 5.0  # seconds of a lease that is renewed: a shorter one is lost to a brief fault of the network
TIMES = 2  # a pause may begin just before a renewal is due: half of the ttl is room for both
PAUSE, NETWORK = 5.0, 1.0  # seconds, where they were not measured
LONG = LONG_TTL_MS / 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class TtlAdvice:
    """How long a lease should be, and what follows from it. All lengths are in seconds.

    ``str(advice)`` is for people, ``advice.as_dict()`` for programs.
    """

    ttl: float
    """The length of the lease."""
    renew: bool
    """Whether the watchdog renews it."""
    renew_every: float | None
    """How often the watchdog renews it. None: never."""
    stop_at: float
    """What is left of the lease when work must stop, because renewal does not succeed; 0 without renewal: work may
    go on until the deadline."""
    room: float
    """How long renewals may fail before the work must stop."""
    tool: Literal["lock", "jobs"]
    """``jobs`` where a lease is the wrong tool."""
    reasons: tuple[str, ...]
    """How it was computed."""
    warnings: tuple[str, ...] = ()
    """What to be careful about."""

    def as_dict(self) -> dict[str, Any]:
        """For programs: stable keys, in types of JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def __str__(self) -> str:
        if self.renew_every is None:
            how = ["renewed     never", "work stops  at the deadline"]
        else:
            how = [
                (
                    f"renewed     every {duration_text(self.renew_every)}; "
                    f"renewals may fail for {duration_text(self.room)}"
                ),
                f"work stops  {duration_text(self.stop_at)} before the deadline, when renewal does not succeed",
            ]
        lines = [
            f"ttl         {duration_text(self.ttl)}",
            *how,
            f"a crash     blocks others for at most {duration_text(self.ttl)}",
        ]
        for head, sentences in (("why", self.reasons), ("warning", self.warnings)):
            lines += [f"{head if not number else '':<10}  {one}" for number, one in enumerate(sentences)]
        return "\n".join(lines)


def ttl_for(
    p999: Duration | None = None, pause: Duration = PAUSE, network: Duration = NETWORK, renew: bool = True
) -> TtlAdvice:
    """How long a lease should be. ``p999`` is how long 99.9 % of the runs take at most, ``pause`` the longest pause
    of a healthy process, ``network`` the slowest reply of the store that you accept.

    With renewal the work may take any time, and ``p999`` need not be known.

    >>> from leasehold.advice import ttl_for
    >>> ttl_for(p999="8s", pause="5s", network="1s").ttl
    12.0
    >>> ttl_for(p999="8s", pause="5s", network="1s", renew=False).ttl
    14.0
    """
    work = None if p999 is None else seconds(p999, "p999")
    longest_pause, slowest_reply = seconds(pause, "pause"), seconds(network, "network")
    if not isinstance(renew, bool):
        raise InvalidRequest(f"renew must be True or False, not {type(renew).__name__}")
    if renew:
        return _renewed(work, longest_pause, slowest_reply)
    if work is None:
        raise InvalidRequest("without renewal, say how long the work takes: p999, which 99.9 % of the runs stay below")
    return _not_renewed(work, longest_pause, slowest_reply)


def _renewed(work: float | None, pause: float, network: float) -> TtlAdvice:
    wanted = TIMES * (pause + network)
    reasons = [f"{TIMES} × (pause {duration_text(pause)} + network {duration_text(network)}) = {duration_text(wanted)}"]
    if wanted < LEAST:
        reasons.append(f"at least {duration_text(LEAST)} for a lease that is renewed")
    reasons.append("how long the work takes does not matter: it is renewed meanwhile")
    ttl = _whole_ms(max(wanted, LEAST))
    every, stop = renew_after(ttl), margin(ttl)
    return TtlAdvice(
        ttl=ttl, renew=True, renew_every=every, stop_at=stop, room=ttl - every - stop, reasons=tuple(reasons),
        **_fitness(ttl, work),
    )  # fmt: skip


def _not_renewed(work: float, pause: float, network: float) -> TtlAdvice:
    wanted = work + pause + network
    reasons = [
        (
            f"p99.9 {duration_text(work)} + pause {duration_text(pause)} + network {duration_text(network)} = "
            f"{duration_text(wanted)}"
        )
    ]
    if wanted * 1000 < MIN_TTL_MS:
        reasons.append(f"at least {duration_text(MIN_TTL_MS / 1000)}, the shortest lease")
    ttl = _whole_ms(max(wanted, MIN_TTL_MS / 1000))
    return TtlAdvice(
        ttl=ttl, renew=False, renew_every=None, stop_at=0.0, room=0.0, reasons=tuple(reasons), **_fitness(ttl, work)
    )


def _fitness(ttl: float, work: float | None) -> dict[str, Any]:
    """Whether a lease is the right tool at all."""
    warnings = []
    if max(ttl, work or 0.0) > LONG:
        what = "the ttl" if ttl > LONG else "the work"
        warnings.append(
            f"{what} is over {duration_text(LONG)}: use durable ownership with a heartbeat (jobs), not a long lease"
        )
    if ttl * 1000 > MAX_TTL_MS:
        warnings.append(f"a lease lasts at most {duration_text(MAX_TTL_MS / 1000)}: this one would be refused")
    return {"tool": "jobs" if warnings else "lock", "warnings": tuple(warnings)}


def _whole_ms(ttl: float) -> float:
    """Rounded up, as a lease is."""
    return -(-round(ttl * 1000, 6) // 1) / 1000
