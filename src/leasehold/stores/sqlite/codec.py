"""A resource's state as text and back: JSON, every tuple a positional array, nothing named twice.

A field that is added later goes to the end of its tuple with a default: old rows then still read.
"""

from __future__ import annotations

from leasehold._core.light_typing import Any
from leasehold._core.rules import RULES
from leasehold._core.types import Door, Ended, Grant, Note, State, Waiter, Watcher
from leasehold.stores.sqlite import stdlib

SLOTS = Grant._fields.index("slots")
MOST = 2**53  # no number of ours is higher
JSON: dict[object, type] = {"str": str, "int": int, "tuple[int, ...]": list}
KINDS = {
    kind: tuple([JSON[name] for name in kind.__annotations__.values()])
    for kind in (Grant, Waiter, Ended, Note, Watcher)
}
UNREADABLE = (ValueError, TypeError, IndexError, KeyError, RecursionError)
USUAL = State._fields.index("notes")


def encode(state: State) -> str:
    """Without what is rare, and stands at the end."""
    length = len(state)
    while length > USUAL and not state[length - 1]:
        length -= 1
    return stdlib.text(state[:length])


def decode(text: str, known: State | None = None) -> State:
    """Raises one of ``UNREADABLE`` for a text that is no state. Every field is looked at: one of another type would be
    met by the ledger in the middle of a turn, together with the ops of others. ``known`` is what stood there before:
    of a long queue most is the same, and was looked at then."""
    holders, queue, fence, fence_until_us, closed_until_ms, ended, *rare = stdlib.parse(text)
    if isinstance(fence, list):  # what the first version wrote: one for each slot
        fence = max([last for _, last in fence], default=0)
    state = State(
        tuple([_grant(one) for one in holders]) if holders else (),
        _queue(queue, known.queue if known is not None else ()),
        _number(fence),
        _number(fence_until_us),
        _number(closed_until_ms),
        tuple([_checked(Ended, one) for one in ended]) if ended else (),
    )
    return _with(state, *rare) if rare else state


def _with(
    state: State,
    notes: Any,
    doors: Any = (),
    limit: int = 0,
    limit_until_us: int = 0,
    watchers: Any = (),
    closed_length_ms: int = 0,
) -> State:
    return state._replace(
        notes=tuple([_checked(Note, one) for one in notes]),
        doors=tuple([_door(*one) for one in doors]),
        limit=_number(limit),
        limit_until_us=_number(limit_until_us),
        watchers=tuple([_checked(Watcher, one) for one in watchers]),
        closed_length_ms=_number(closed_length_ms),
    )


def _grant(fields: list[Any]) -> Grant:
    slots = fields[SLOTS]
    grant: Grant = _checked(Grant, fields)
    _rule(grant.rule)
    return grant._replace(slots=_slots(slots))


def _queue(queue: list[Any], known: tuple[Waiter, ...]) -> tuple[Waiter, ...]:
    if not queue:
        return ()
    same = {one.owner: one for one in known} if known else {}
    waiters = []
    for fields in queue:
        waiter = same.get(fields[0]) if same else None
        waiters.append(waiter if waiter is not None and list(waiter) == fields else _waiter(fields))
    return tuple(waiters)


def _waiter(fields: list[Any]) -> Waiter:
    waiter: Waiter = _checked(Waiter, fields)
    _rule(waiter.rule)
    return waiter


def _checked(kind: Any, fields: list[Any]) -> Any:
    kinds = KINDS[kind]
    if tuple(map(type, fields)) != kinds[: len(fields)]:
        raise ValueError(f"no {kind.__name__}")
    for one in fields:
        if type(one) is int and not -MOST <= one <= MOST:
            raise ValueError("a number that is too large")
    return kind(*fields)


def _number(value: Any) -> int:
    if type(value) is not int or not -MOST <= value <= MOST:
        raise ValueError("no number of ours")
    return value


def _rule(value: Any) -> str:
    if value not in RULES:
        raise ValueError("no rule")
    return str(value)


def _slots(value: list[Any]) -> tuple[int, ...]:
    return tuple([_number(slot) for slot in value])


def _door(rule: Any, slots: Any, until_ms: Any, length_ms: Any = 0) -> Door:
    return Door(_rule(rule), _slots(slots), _number(until_ms), _number(length_ms))
