"""Six cases that everybody knows, with all their answers: what ``leasehold advise --case NAME`` looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from leasehold.advice.need import Need

OTHER_NAMES = {"monthly-invoice-generation": "monthly-invoices"}


class Cases(dict[str, Need]):
    """Needs by their names. A case with two names is found by both, and listed once."""

    def __missing__(self, name: str) -> Need:
        if name not in OTHER_NAMES:
            raise KeyError(name)
        return self[OTHER_NAMES[name]]


CASES: Final[Mapping[str, Need]] = Cases({
    "cache-rebuild": Need(
        protects="efficiency", work="cache", duplicates="harmless", idempotent=True, downstream_fences=False,
        survives_failover=False, duration="10s", durable_state=False, audit=False, regions=False,
    ),
    "search-index-refresh": Need(
        protects="efficiency", work="schedule", duplicates="harmless", idempotent=True, downstream_fences=True,
        survives_failover=False, duration="10m", durable_state=False, audit=False, regions=False,
    ),
    "report-export": Need(
        protects="efficiency", work="task", duplicates="costly", idempotent=True, downstream_fences=True,
        survives_failover=False, duration="5m", durable_state=True, audit=False, regions=False,
    ),
    "monthly-invoices": Need(
        protects="correctness", work="schedule", duplicates="wrong", idempotent=True, downstream_fences=True,
        survives_failover=False, duration="40m", durable_state=True, audit=True, regions=False,
        unique=("customer", "period"),
    ),
    "payment-capture": Need(
        protects="correctness", work="external", duplicates="wrong", idempotent=True, downstream_fences=False,
        survives_failover=False, duration="10s", durable_state=True, audit=True, regions=False,
    ),
    "legal-case-assignment": Need(
        protects="correctness", work="transition", duplicates="wrong", idempotent=True, downstream_fences=True,
        survives_failover=False, duration="1s", durable_state=True, audit=True, regions=False,
    ),
})  # fmt: skip
"""A need for each name: ``cache-rebuild``, ``search-index-refresh``, ``report-export``, ``monthly-invoices``,
``payment-capture`` and ``legal-case-assignment``. ``monthly-invoice-generation`` is ``monthly-invoices``."""
