"""What an examination finds: each finding with a severity, what was seen, why it matters and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
SEVERITIES: Final = (OK, NOTE, WARNING, PROBLEM)
"""From the least to the most severe. A *note* needs no action, or could not be seen; a *warning* is a risk that
somebody should have decided to take; a *problem* breaks a promise, now or at the next trouble."""


class Finding(NamedTuple):
    """One thing that was looked at. ``check`` is a stable name for programs; ``place`` is the server or file, empty
    where there is only one."""

    severity: str
    check: str
    text: str
    reason: str = ""
    fix: str = ""
    place: str = ""

    def at(self, place: str) -> Finding:
        """The same, found there."""
        return self._replace(place=place)


def ok(check: str, text: str, reason: str = "", fix: str = "") -> Finding:
    return Finding(OK, check, text, reason, fix)


def note(check: str, text: str, reason: str = "", fix: str = "") -> Finding:
    return Finding(NOTE, check, text, reason, fix)


def warning(check: str, text: str, reason: str, fix: str) -> Finding:
    return Finding(WARNING, check, text, reason, fix)


def problem(check: str, text: str, reason: str, fix: str) -> Finding:
    return Finding(PROBLEM, check, text, reason, fix)


def unseen(check: str, what: str, why: str, fix: str = "") -> Finding:
    """This user, or this server, does not let us look."""
    return Finding(NOTE, check, f"{what} cannot be seen", why, fix)


class Report(NamedTuple):
    """All findings about one store. ``reachable`` is False when no lease could be taken because it is away."""

    store: str
    place: str
    findings: tuple[Finding, ...]
    reachable: bool = True

    @property
    def worst(self) -> str:
        """The highest severity in it."""
        return max([one.severity for one in self.findings], key=SEVERITIES.index, default=OK)

    def of(self, check: str) -> list[Finding]:
        """The findings of one check."""
        return [one for one in self.findings if one.check == check]

    def count(self, severity: str) -> int:
        return sum(one.severity == severity for one in self.findings)

    def with_findings(self, more: Iterable[Finding]) -> Report:
        return self._replace(findings=(*self.findings, *more))

    def as_dict(self) -> dict[str, Any]:
        """For programs, in types of JSON."""
        return {
            "store": self.store,
            "place": self.place,
            "reachable": self.reachable,
            "worst": self.worst,
            "findings": [one._asdict() for one in self.findings],
        }


def length(seconds: float) -> str:
    """A length of time in one unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
