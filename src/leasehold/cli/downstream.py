"""Where the guard of a resource keeps its fences, and the query that shows what it has seen."""

from __future__ import annotations

import re
from typing import NamedTuple

from leasehold._core.rules import slot_name
from leasehold.errors import InvalidRequest
from leasehold.primitives.inspection import Holder

META = "guard"  # the key in the metadata of a holder that names its guard
_PART = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
_PLACE = re.compile(rf"({_PART})(?:\.({_PART}))?(?:\.({_PART}))?")


class Downstream(NamedTuple):
    """What to look at. ``query`` is empty where a holder names something that is no table."""

    place: str
    query: str


def check_place(text: str) -> str:
    """The value of ``--guard``."""
    if not _PLACE.fullmatch(text):
        raise InvalidRequest(
            "--guard is a TABLE of a guard, or TABLE.COLUMN or SCHEMA.TABLE.COLUMN of yours: letters, digits and _"
        )
    return text


def downstream(resource: str, holder: Holder, given: str | None) -> Downstream | None:
    """What ``--guard`` names, else the holder's metadata; None when neither names a guard."""
    named = given if given is not None else holder.meta.get(META)
    if not isinstance(named, str) or not named:
        return None
    match = _PLACE.fullmatch(named)
    if match is None:
        return Downstream(named, "")
    first, second, third = match.groups()
    if second is None:
        return Downstream(named, _own_table(first, resource, holder))
    table, column = (first, second) if third is None else (f"{first}.{second}", third)
    if column == "fence":  # the column of a guard's own table, which may be in a schema
        return Downstream(named, _own_table(table, resource, holder))
    # Above, not equal: a row with the same fence was written by this holder, and a guard lets it write again.
    return Downstream(named, f"SELECT * FROM {table} WHERE {column} > {holder.fence};")  # noqa: S608  # it is printed


def _own_table(table: str, resource: str, holder: Holder) -> str:
    """The table that a guard makes has one row for each resource, and one for each slot of a semaphore."""
    names = [slot_name(resource, slot) for slot in holder.slots] or [resource]
    quoted = ", ".join(["'" + name.replace("'", "''") + "'" for name in names])
    return f"SELECT resource, fence FROM {table} WHERE resource IN ({quoted});"  # noqa: S608  # it is printed
