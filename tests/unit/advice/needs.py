"""Every combination of answers that matter, and those of them that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

from leasehold.advice.need import Need
from leasehold.advice.questions import CHOICES
from leasehold.errors import InvalidRequest

BOOLS = (None, True, False)
ANSWERS: dict[str, tuple[Any, ...]] = {
    "protects": CHOICES["protects"],
    "work": (None, *CHOICES["work"]),
    "duplicates": (None, *CHOICES["duplicates"]),
    "idempotent": BOOLS,
    "downstream_fences": BOOLS,
    "durable_state": BOOLS,
    "duration": (None, "200ms", "3h"),
    "limit": (None, 3),
    "row": (None, False),
}


def combinations() -> Iterator[dict[str, Any]]:
    """All of them: some 28,000."""
    for values in product(*ANSWERS.values()):
        yield dict(zip(ANSWERS, values, strict=True))


@cache
def needs() -> list[Need]:
    """Those that contradict nothing."""
    found = []
    for answers in combinations():
        try:
            found.append(Need(**answers))
        except InvalidRequest:
            pass
    return found
