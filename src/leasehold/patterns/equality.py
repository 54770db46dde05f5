"""Is what was read again equal to what was written? What constructors and models do in between is the user's business.

``==`` alone cannot say: NaN is not equal to itself, nor are two dataclasses without ``eq``, nor a moment with the name
of a zone and the same moment with an offset, in the hour that a clock change repeats.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from leasehold.patterns.classes import parts_of
from leasehold.patterns.models import EXTRA, PRIVATE, is_model
from leasehold.patterns.values import BASES, as_base


def same(one: Any, other: Any) -> bool:
    """Of the same type and equal, all the way down. A subclass that was kept as what it derives from counts, too."""
    kind = type(other)
    if type(one) is not kind:
        return kind in BASES and same(as_base(one), other)
    if kind in (float, Decimal):
        return str(one) == str(other)
    if kind is datetime and one.tzinfo is not None and other.tzinfo is not None:
        return bool(one.astimezone(UTC) == other.astimezone(UTC))
    if kind is dict:
        one, other = list(one.items()), list(other.items())
    if kind in (list, tuple, dict):
        return len(one) == len(other) and all(map(same, one, other))
    parts = (*kind.model_fields, EXTRA, PRIVATE) if is_model(kind) else parts_of(kind)
    if parts:
        return all(same(getattr(one, part, None), getattr(other, part, None)) for part in parts)
    return bool(one == other)
