"""A store in the memory of one process."""

from __future__ import annotations

from leasehold.doctor.report import Finding, warning


def examine() -> list[Finding]:
    return [
        warning(
            "store",
            "it lives in this process alone",
            "No other process is excluded by a lease here, not even on this host",
            "Use it in tests; in production name a store that is shared, such as redis://host",
        )
    ]
