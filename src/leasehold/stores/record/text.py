"""A record as text, and when its parts are over for this process.

No server clock decides when something in a record ends, and no clock of another machine can be read. So a record says
how long each part lasts, and each part has a mark: a number that is given once, to all that one write has changed. A
process notes on its own clock when it first saw a mark (:class:`Sightings`), and the part is over when its length has
passed since then. That is never too early: it was seen after it was written, and it was written after its holder had
sent it.

A mark is the server's wall time in microseconds as the writer knew it, or the last mark + 1. So who sees a part for the
first time, and sees that it was written long ago, need not wait for its length once more: all but the last minute of
that age counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from leasehold._core.light_typing import NamedTuple, TypeAlias
from leasehold._core.ops import Push
from leasehold._core.rules import EXCLUSIVE
from leasehold._core.types import Grant, Instant, State, Waiter, owner_id
from leasehold.stores.state_text import UNREADABLE, from_fields, parse, text
from leasehold.stores.state_text import fields as state_fields

__all__ = [
    "EMPTY",
    "UNREADABLE",
    "Kept",
    "Sightings",
    "decode",
    "encode",
    "first_seen",
    "here",
    "kept",
    "place_text",
    "waiter",
]


FORMAT = 1
DOUBT_MS = 60_000  # of the age that a mark shows, this much is not believed: clocks are set by less
Key: TypeAlias = tuple[object, ...]
Sightings: TypeAlias = Mapping[int, int]
"""Marks, and the local milliseconds at which this process first saw them."""


class Kept(NamedTuple):
    """A record that was read. In its state a length stands wherever the ledger has a time; ``marks`` has the mark of
    each, in the order of :func:`_ends`."""

    state: State = State()
    marks: tuple[int, ...] = ()
    last: int = 0  # the highest mark that was ever given here


EMPTY = Kept()


def encode(kept: Kept) -> str:
    return text((FORMAT, kept.last, kept.marks, state_fields(kept.state)))


def decode(written: str) -> Kept:
    """Raises one of ``UNREADABLE`` for a text that is no record of ours."""
    version, last, marks, fields = parse(written)
    if version != FORMAT:
        raise ValueError("a record of another version")
    state = from_fields(fields)
    numbers = (last, *marks)
    if any(type(one) is not int or one < 0 for one in numbers) or len(marks) != len(_ends(state)):
        raise ValueError("no marks of ours")
    return Kept(state, tuple(marks), last)


# ---------------------------------------------------------------- times


def first_seen(kept: Kept, known: Sightings, now: Instant) -> dict[int, int]:
    """When the marks of this record were first seen: earlier, or now. Those that it no longer has are forgotten."""
    seen = {}
    for mark in kept.marks:
        if mark not in seen:
            at_ms = known.get(mark)
            seen[mark] = _now(mark, now) if at_ms is None else at_ms
    return seen


def _now(mark: int, now: Instant) -> int:
    """One millisecond later: clocks are read in whole ones."""
    age_ms = (now.wall_us - mark) // 1000 - DOUBT_MS
    return now.ms + 1 - max(age_ms, 0)


def here(kept: Kept, seen: Sightings, pace: float = 1) -> State:
    """The state as the ledger reads it: with times of the local clock. ``pace`` is for those who judge: how long a
    millisecond lasts on the clock that they read."""
    if not kept.marks:
        return kept.state
    lengths = _ends(kept.state).values()
    ends = [seen[mark] + int(length * pace) for mark, length in zip(kept.marks, lengths, strict=True)]
    return _with_ends(kept.state, iter(ends))


def kept(before: Kept, base: State, after: State, now: Instant, touched: str = "") -> Kept:
    """What to write after a turn. ``base`` is what the turn began with: the state :func:`here`, advanced to ``now``.
    A part that the turn has not changed keeps its mark and its length, so that its time goes on for everybody who has
    seen it; all others begin now. Two begin now in any case: the grant of ``touched``, whose holder counts from here;
    and a closed door that a grant which has ended relies on, since others may have seen that door earlier than we
    have."""
    renewed = {key for key in _ends(after) if key[0] == GRANT and key[1] == touched} | _relied_on(before, after)
    mark = max(before.last + 1, now.wall_us)
    known = dict(zip(_ends(before.state), zip(before.marks, _ends(before.state).values(), strict=True), strict=True))
    at_first = _ends(base)
    marks, lengths = [], []
    for key, until_ms in _ends(after).items():
        same = at_first.get(key) == until_ms and key in known and key not in renewed
        its_mark, length_ms = known[key] if same else (mark, max(until_ms - now.ms, 1))
        marks.append(its_mark)
        lengths.append(length_ms)
    return Kept(_with_ends(after, iter(lengths)), tuple(marks), mark)


def _relied_on(before: Kept, after: State) -> set[Key]:
    """The doors behind which grants have ended that leave one closed, or were taken away."""
    still = {(one.owner, one.fence) for one in after.holders}
    evicted = {one.owner for one in after.ended if one.outcome == "evicted"}
    gone = [one for one in before.state.holders if (one.owner, one.fence) not in still]
    closing = [one for one in gone if one.closed_until_ms or one.delay_ms or one.owner in evicted]
    return {(CLOSED,) if one.rule in EXCLUSIVE else (DOOR, one.rule, one.slots) for one in closing}


GRANT, CLOSED, TOMBSTONE, DOOR = "grant", "closed", "tombstone", "door"


def _ends(state: State) -> dict[Key, int]:
    """Every time in a state, by what ends then; or every length in the state of a record."""
    found: dict[Key, int] = {}
    for grant in state.holders:
        found[GRANT, grant.owner, grant.fence] = grant.expires_ms
        if grant.closed_until_ms:
            found[CLOSED, grant.owner, grant.fence] = grant.closed_until_ms
    for one in state.ended:
        found[TOMBSTONE, one.owner] = one.until_ms
    if state.closed_until_ms:
        found[(CLOSED,)] = state.closed_until_ms
    for door in state.doors:
        found[DOOR, door.rule, door.slots] = door.until_ms
    return found


def _with_ends(state: State, ends: Iterator[int]) -> State:
    """The state with other times, in the order of ``_ends``."""
    holders = tuple([_with_end(grant, ends) for grant in state.holders])
    if not (state.ended or state.closed_until_ms or state.doors):
        return state._replace(holders=holders)
    return state._replace(
        holders=holders,
        ended=tuple([one._replace(until_ms=next(ends)) for one in state.ended]),
        closed_until_ms=next(ends) if state.closed_until_ms else 0,
        doors=tuple([one._replace(until_ms=next(ends)) for one in state.doors]),
    )


def _with_end(grant: Grant, ends: Iterator[int]) -> Grant:
    expires_ms = next(ends)
    return grant._replace(expires_ms=expires_ms, closed_until_ms=next(ends) if grant.closed_until_ms else 0)


# ---------------------------------------------------------------- places and pushes


def push_text(push: Push) -> str:
    return text(push)


def push(written: str) -> Push | None:
    """The push; None when it is none of ours."""
    try:
        read = Push(*parse(written))
    except UNREADABLE:
        return None
    return read._replace(slots=tuple(read.slots))


def place_text(waiting: Waiter) -> str:
    """What a place says of the claim that waits: for operators, and without the token of its owner."""
    return text(waiting._replace(owner=owner_id(waiting.owner), beat=0, beat_ms=0, address="", holder_address=""))


def waiter(written: str, now: Instant) -> Waiter | None:
    """The claim that waits there, as ``inspect`` shows it; None when it cannot be read."""
    try:
        read = Waiter(*parse(written))
        known: Iterable[bool] = [type(field) is kind for field, kind in zip(read, KINDS, strict=True)]
    except UNREADABLE:
        return None
    return read._replace(beat_ms=now.ms) if all(known) else None


KINDS = (str, int, int, int, str, int, str, int, int, int, str, str, int, bool)
