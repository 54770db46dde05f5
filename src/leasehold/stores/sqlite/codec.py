"""A resource's state as text and back: JSON, every tuple a positional array, nothing named twice.

A field that is added later goes to the end of its tuple with a default: old rows then still read.
"""

from __future__ import annotations

from leasehold.core.typed import Any
from leasehold.core.types import Ended, Grant, Note, State, Waiter
from leasehold.stores.sqlite import driver

SLOTS = Grant._fields.index("slots")


def encode(state: State) -> str:
    """Without notes, which are rare, a row is what the first version wrote and can read."""
    return driver.text(state if state.notes else state[:-1])


def decode(text: str) -> State:
    """Raises ValueError, TypeError, IndexError or KeyError for a text that is no state."""
    holders, queue, fences, fences_until_us, closed_until_ms, ended, *notes = driver.parse(text)
    return State(
        tuple([_grant(one) for one in holders]) if holders else (),
        tuple([Waiter(*one) for one in queue]) if queue else (),
        tuple([(slot, fence) for slot, fence in fences]) if fences else (),
        fences_until_us,
        closed_until_ms,
        tuple([Ended(*one) for one in ended]) if ended else (),
        tuple([Note(*one) for one in notes[0]]) if notes else (),
    )


def _grant(fields: list[Any]) -> Grant:
    fields[SLOTS] = tuple(fields[SLOTS])
    return Grant(*fields)
