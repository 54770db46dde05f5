"""An examination of a store, and its findings by check."""

from __future__ import annotations

from typing import Any

import leasehold
from leasehold.doctor import Examination, Finding, examine


def examined(target: Any, namespace: str | None = None) -> Examination:
    """The store behind a URL, or behind what else ``connect`` takes."""
    with leasehold.connect(target, namespace=namespace) as hold:
        return examine(hold)


def found(seen: Examination, check: str) -> dict[str, Finding]:
    """The findings of one check by severity; of several with the same, the first."""
    return {one.severity: one for one in reversed(seen.report.of(check))}


def only(seen: Examination, check: str) -> Finding:
    """The one finding of a check."""
    (finding,) = seen.report.of(check)
    return finding


def every_finding_helps(seen: Examination) -> None:
    """What is more than a note says why, and what to do."""
    for one in seen.report.findings:
        assert one.text and one.check and not one.reason.endswith("."), one  # it is printed with one
        if one.severity in ("warning", "problem"):
            assert one.reason and one.fix, one
