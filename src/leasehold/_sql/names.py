"""Names of tables and columns, keys and values that the caller gives: checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from leasehold._sql.dialects import DIALECTS
from leasehold.errors import InvalidRequest

_PART = r"[A-Za-z_][A-Za-z0-9_]{0,62}"  # 63 is PostgreSQL's limit; it would cut the rest off silently
_TABLE = re.compile(rf"{_PART}(\.{_PART})?")


def plain_table(table: object) -> str:
    """The name of a table that Leasehold makes: it can stand in a statement as it is."""
    if not isinstance(table, str) or not _TABLE.fullmatch(table):
        raise InvalidRequest(
            "table must be a plain name such as 'leasehold_fences' or 'schema.leasehold_fences': letters, digits "
            "and _, at most 63 of them"
        )
    return str(table)


def dialect(name: object) -> str:
    """The name of a supported dialect."""
    if not isinstance(name, str) or name not in DIALECTS:
        raise InvalidRequest(f"dialect is one of {', '.join(DIALECTS)}, not {name!r}")
    return name


def table(given: Any) -> str:
    """The user's table as messages may show it: a name, or a SQLAlchemy Table."""
    if isinstance(given, str):
        for part in given.split("."):
            _name(part, "table")
        return given
    if isinstance(getattr(given, "name", None), str) and hasattr(given, "c"):
        return str(given.name)
    raise InvalidRequest(f"table is a name or a SQLAlchemy Table, not {type(given).__name__}")


def require_columns(given: Any, columns: Iterable[str | None]) -> None:
    """A SQLAlchemy Table knows its columns: raise InvalidRequest when one is missing."""
    missing = [] if isinstance(given, str) else [one for one in columns if one is not None and one not in given.c]
    if missing:
        raise InvalidRequest(f"the table {given.name} has no column {missing[0]}: name the columns that it has")


def key(given: object) -> Mapping[str, Any]:
    """The columns that identify one row, with their values."""
    columns = mapping(given, "key")
    if not columns:
        raise InvalidRequest("key= names the columns of one row, such as {'report_id': 42}: an empty one names all")
    if any(value is None for value in columns.values()):
        raise InvalidRequest("a value in key= is None: NULL equals nothing, so no row would be found")
    return columns


def values(given: object, fence_column: object, owner_column: object) -> Mapping[str, Any]:
    """What ``guard.update`` writes. The fence and owner columns are the guard's."""
    columns = mapping(given, "values")
    ours = [_name(fence_column, "fence_column")]
    if owner_column is not None:
        ours.append(_name(owner_column, "owner_column"))
    theirs = {one.casefold() for one in columns}  # two of the databases do not tell capitals apart
    if len(set(ours)) != len(ours) or any(one.casefold() in theirs for one in ours):
        raise InvalidRequest("the fence and owner columns are two, and written by the guard: leave them out of values=")
    return columns


def flag(given: object, what: str) -> None:
    """Raise InvalidRequest unless it is a bool: the text "false" would count as true."""
    if not isinstance(given, bool):
        raise InvalidRequest(f"{what} is True or False, not {type(given).__name__}")


def mapping(given: object, what: str) -> dict[str, Any]:
    """Columns with a value for each. ``what`` is the parameter that was given."""
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"{what}= is a mapping of columns to values, not {type(given).__name__}")
    return {_name(name, what): value for name, value in given.items()}


def column(given: object, what: str) -> str:
    """The name of one column."""
    return _name(given, what)


def _name(name: object, what: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= 63 or "\0" in name:
        raise InvalidRequest(f"a name in {what} has 1 to 63 characters and is text, not {name!r:.80}")
    return str(name)
