"""A resource's state as text and back: JSON, every tuple a positional array, nothing named twice.

A field that is added later goes to the end of its tuple with a default: old rows then still read.
"""

from __future__ import annotations

from leasehold.core.typed import Any
from leasehold.core.types import Door, Ended, Grant, Note, State, Waiter, Watcher
from leasehold.stores.sqlite import driver

SLOTS = Grant._fields.index("slots")
USUAL = State._fields.index("notes")


def encode(state: State) -> str:
    """Without what is rare, and stands at the end."""
    length = len(state)
    while length > USUAL and not state[length - 1]:
        length -= 1
    return driver.text(state[:length])


def decode(text: str) -> State:
    """Raises ValueError, TypeError, IndexError or KeyError for a text that is no state."""
    holders, queue, fence, fence_until_us, closed_until_ms, ended, *rare = driver.parse(text)
    if isinstance(fence, list):  # what the first version wrote: one for each slot
        fence = max([last for _, last in fence], default=0)
    state = State(
        tuple([_grant(one) for one in holders]) if holders else (),
        tuple([Waiter(*one) for one in queue]) if queue else (),
        fence,
        fence_until_us,
        closed_until_ms,
        tuple([Ended(*one) for one in ended]) if ended else (),
    )
    return _with(state, *rare) if rare else state


def _with(
    state: State, notes: Any, doors: Any = (), limit: int = 0, limit_until_us: int = 0, watchers: Any = ()
) -> State:
    return state._replace(
        notes=tuple([Note(*one) for one in notes]),
        doors=tuple([Door(rule, tuple(slots), until_ms) for rule, slots, until_ms in doors]),
        limit=limit,
        limit_until_us=limit_until_us,
        watchers=tuple([Watcher(*one) for one in watchers]),
    )


def _grant(fields: list[Any]) -> Grant:
    fields[SLOTS] = tuple(fields[SLOTS])
    return Grant(*fields)
