"""A resource's state as text, for the stores that keep it so.

It is JSON: every tuple is an array by position. A field that is added later goes to the end of its tuple, with a
default, so that old rows can still be read. ``json`` itself compiles patterns, and loads ``re``; the C module does the
work here, for a fast start.
"""

from __future__ import annotations

from leasehold._core.light_typing import Any
from leasehold._core.rules import RULES
from leasehold._core.types import AuditNote, Door, Grant, State, Tombstone, Waiter, Watcher

RULE, SLOTS, TELL = map(Grant._fields.index, ("rule", "slots", "tell"))  # the last one is left out unless it is set
MOST = 2**53  # no number of ours is higher
JSON: dict[object, type] = {"str": str, "bool": bool, "int": int, "tuple[int, ...]": list}
KINDS = {
    kind: tuple([JSON[name] for name in kind.__annotations__.values()])
    for kind in (Grant, Waiter, Tombstone, AuditNote, Watcher)
}
UNREADABLE = (ValueError, TypeError, IndexError, KeyError, RecursionError)
USUAL = State._fields.index("notes")
NOTHING_RARE = State()[USUAL:]


def encode(state: State) -> str:
    """Empty fields at the end, which are rarely used, are left out."""
    return text(fields(state))


def fields(state: State) -> tuple[object, ...]:
    """The same for a state that is part of a longer text."""
    length = USUAL
    if state[USUAL:] != NOTHING_RARE:
        length = max([place for place, field in enumerate(state, 1) if field])
    holders: tuple[object, ...] = state.holders
    if holders:
        holders = tuple([one if one.tell else one[:TELL] for one in state.holders])
    return (holders, *state[1:length])


def decode(written: str, known: State | None = None) -> State:
    """Raises one of ``UNREADABLE`` for a text that is no state. Every field is checked: the ledger would meet one of
    another type in the middle of a turn, together with the ops of other callers. ``known`` is the state that was read
    before: most of a long queue is the same, and was checked then."""
    return from_fields(parse(written), known)


def from_fields(fields: Any, known: State | None = None) -> State:
    """The same for a state that is part of a longer text."""
    holders, queue, fence, fence_until_us, closed_until_ms, ended, *rare = fields
    if isinstance(fence, list):  # the first version wrote one for each slot
        fence = max([last for _, last in fence], default=0)
    state = State(
        tuple([_grant(one) for one in holders]) if holders else (),
        _queue(queue, known.queue if known is not None else ()),
        _number(fence),
        _number(fence_until_us),
        _number(closed_until_ms),
        tuple([_checked(Tombstone, one) for one in ended]) if ended else (),
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
        notes=tuple([_checked(AuditNote, one) for one in notes]),
        doors=tuple([_door(*one) for one in doors]),
        limit=_number(limit),
        limit_until_us=_number(limit_until_us),
        watchers=tuple([_checked(Watcher, one) for one in watchers]),
        closed_length_ms=_number(closed_length_ms),
    )


def _grant(fields: list[Any]) -> Grant:
    _check(Grant, fields)
    _rule(fields[RULE])
    fields[SLOTS] = _slots(fields[SLOTS])
    return Grant(*fields)


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
    _check(kind, fields)
    return kind(*fields)


def _check(kind: Any, fields: list[Any]) -> None:
    kinds = KINDS[kind]
    if tuple(map(type, fields)) != kinds[: len(fields)]:
        raise ValueError(f"no {kind.__name__}")
    for one in fields:
        if type(one) is int and not -MOST <= one <= MOST:
            raise ValueError("a number that is too large")


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


# ---------------------------------------------------------------- JSON


class _Defaults:
    """The settings that ``json`` decodes with by default."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def _refuse(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_scan: Any
_write: Any
try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    _scan = make_scanner(_Defaults())  # type: ignore[arg-type]  # typeshed wants a scanner where json gives its decoder
    _write = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True)
except (ImportError, TypeError, AttributeError):  # missing, or of a Python with other parameters
    import json

    _scan = json.JSONDecoder().raw_decode
    _write = json.JSONEncoder(separators=(",", ":"), check_circular=False).iterencode


def text(value: object) -> str:
    """A value as JSON without spaces. Plain ASCII: a lone surrogate in the metadata must not make a row unwritable."""
    return "".join(_write(value, 0))


def parse(text: str) -> Any:
    """The value; ValueError for a text that is no JSON, or has something after it."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value
