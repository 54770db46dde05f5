"""Our words for the columns and states of a table of jobs, and the user's: checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from leasehold.errors import InvalidRequest
from leasehold.guards.sql import names

NEEDED = ("id", "state", "version", "lease_until")
OPTIONAL = (
    "owner", "attempts", "payload", "result", "error", "run_at", "created_at", "finished_at", "queue", "key",
)  # fmt: skip
WELCOME = ("counted_from",)  # used where the table has it; a table without it needs no word about that
STATES = ("ready", "running", "done", "dead")
_PLAIN = re.compile(r"[\w .-]{1,60}", re.ASCII)  # states stand in the statements, so that partial indexes are found


class Columns:
    """Where each of our columns is in the user's table; None: it has none. And what its states are called."""

    def __init__(self, table: object, columns: object, states: object) -> None:
        self.table = names.table(table) if isinstance(table, str) else _not_a_name(table)
        self.names: dict[str, str] = {}
        named = _mapping(columns)
        taken = {theirs.casefold() for theirs in named.values() if theirs is not None}
        welcome = [one for one in WELCOME if one not in taken]
        for ours, theirs in {**{one: one for one in (*NEEDED, *OPTIONAL, *welcome)}, **named}.items():
            if theirs is not None:
                self.names[ours] = theirs
        self.dispensable = {one for one in welcome if one not in named}  # may be missing
        self.states = _states(states)

    def state(self, found: object) -> str:
        """Our word for what stands in the table. A CHAR comes back with spaces behind it, and what somebody else wrote
        may have other capitals, where the database does not tell them apart."""
        text = found.decode() if isinstance(found, bytes) else str(found)
        known = {str(theirs): ours for ours, theirs in self.states.items()}
        if text in known:
            return known[text]
        alike = {theirs.casefold(): ours for theirs, ours in known.items()}
        return alike.get(text.rstrip(" ").casefold(), text)

    def has(self, ours: str) -> bool:
        return ours in self.names

    def require(self, ours: str, what: str) -> None:
        """Raise InvalidRequest when a feature needs a column that the user has not."""
        if ours not in self.names:
            raise InvalidRequest(f"{what} needs a column for {ours}, and columns= says that {self.table} has none")


def _not_a_name(table: object) -> str:
    raise InvalidRequest(f"table= is the name of your table, such as 'jobs' or 'app.jobs', not {type(table).__name__}")


def _mapping(columns: object) -> dict[str, str | None]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise InvalidRequest(
            f"columns= is a mapping of our names to yours, such as {{'id': 'report_id'}}, not {type(columns).__name__}"
        )
    for ours, theirs in columns.items():
        if ours not in (*NEEDED, *OPTIONAL, *WELCOME):
            raise InvalidRequest(f"columns= knows {', '.join((*NEEDED, *OPTIONAL, *WELCOME))}, not {ours!r:.80}")
        if theirs is None and ours in NEEDED:
            raise InvalidRequest(f"jobs cannot do without a column for {ours}: name yours, or add one")
        if theirs is not None and (not isinstance(theirs, str) or not 0 < len(theirs) <= 63 or "\0" in theirs):
            raise InvalidRequest(f"the name of the column for {ours} has 1 to 63 characters, not {theirs!r:.80}")
    named = [theirs.casefold() for theirs in columns.values() if theirs is not None]
    if len(named) != len(set(named)):
        raise InvalidRequest("columns= names one column of yours twice: each of ours needs one of its own")
    return dict(columns)


def _states(states: object) -> dict[str, str | int]:
    if states is None:
        states = {}
    if not isinstance(states, Mapping) or not set(states) <= set(STATES):
        raise InvalidRequest(f"states= is a mapping of {', '.join(STATES)} to your values, not {states!r:.80}")
    found: dict[str, str | int] = {one: one for one in STATES}
    for ours, theirs in states.items():
        if isinstance(theirs, bool) or not isinstance(theirs, int | str):
            raise InvalidRequest(f"the value of the state {ours} is text or an int, not {type(theirs).__name__}")
        if isinstance(theirs, str) and not _PLAIN.fullmatch(theirs):
            raise InvalidRequest(f"the value of the state {ours} is made of letters, digits, space, _, - and .")
        found[ours] = theirs
    if len(set(found.values())) != len(STATES):
        raise InvalidRequest("two states have one value: each needs its own")
    return found


def literal(value: str | int) -> str:
    """A state in SQL."""
    return f"'{value}'" if isinstance(value, str) else str(value)


Row = dict[str, Any]  # by our names; "row" is all of it, by the user's
