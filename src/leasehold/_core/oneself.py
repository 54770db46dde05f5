"""Waiting for oneself: what a thread or task that has to wait holds already, and what it had better do.

Whoever waits inside the body of its own lease for that lease to end waits for ever: nobody else gives it back, and it
is renewed meanwhile. That is a mistake in a program. To try, or to wait for a while, is not: those end by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasehold._core.light_typing import TYPE_CHECKING, NamedTuple, Protocol
from leasehold._core.names import Name
from leasehold._core.rules import MUTEX, READ, RULES, SEMAPHORE
from leasehold._core.types import Door, Waiter
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from leasehold._core.line import Ask


UPGRADE = (
    "It cannot write before it has stopped: two readers who both wait to write would wait for each other (deadlock). "
    "Release the read lease and acquire write(), then look again at what you read; or begin with write() and "
    "downgrade()"
)


class Own(NamedTuple):
    """A lease of the very thread or task that asks. It is ``lasting`` inside a body that is open, when nothing but the
    end of that body is to end it."""

    rule: str
    slots: tuple[int, ...]
    lasting: bool
    leads: bool = False  # it is a term of an election


class Oneself(Protocol):
    """Who knows."""

    def own(self, name: Name) -> Sequence[Own]:
        """What the thread or task that asks holds of this resource as of now."""


def mistake(ask: Ask, own: Sequence[Own], limit: int) -> InvalidRequest | None:
    """The error of a wait without an end that would never be over. A lease that is not lasting may be given back by
    another thread or task, or end: to wait for it is right."""
    lasting = [one for one in own if one.lasting]
    if not _shut_out(ask, lasting, limit):
        return None
    holds, instead = _advice(ask, lasting, limit)
    return InvalidRequest(
        f"{ask.name.kind} would be waited for for ever: this thread or task {holds} itself, in a with body around this "
        f"call. {instead}",
        resource=ask.name.text,
    )


def hint(ask: Ask, own: Sequence[Own], limit: int) -> str:
    """What to add to the error of a wait that is over, when it was oneself who stood in the way."""
    if not _shut_out(ask, own, limit):
        return ""
    holds, instead = _advice(ask, own, limit)
    return f". This thread or task {holds} itself. {instead}"


def _shut_out(ask: Ask, own: Sequence[Own], limit: int) -> bool:
    """Would this be refused if nobody else were there?"""
    seats = [Door(one.rule, one.slots, 0) for one in own]
    claim = Waiter("", ask.ttl_ms, 0, 0, permits=ask.permits)
    return bool(seats) and RULES[ask.rule](seats, claim, limit) is None


def _advice(ask: Ask, own: Sequence[Own], limit: int) -> tuple[str, str]:
    """What it holds, and what it can do."""
    rules = {one.rule for one in own}
    if any(one.leads for one in own):
        return "leads it", "End that term first, or stand for the next one in another thread or task"
    if rules == {SEMAPHORE} and ask.rule == SEMAPHORE:
        has = sum(len(one.slots) for one in own)
        instead = f"There are never {ask.permits} more: give some back first, or store a higher limit with resize()"
        return f"has {has} of {limit} permits", instead
    if SEMAPHORE in rules or ask.rule == SEMAPHORE:
        return "holds it with another primitive", "Give that back first, or use another name for the one of them"
    if READ in rules:
        return "reads it", UPGRADE
    if ask.rule == MUTEX:
        return "holds it", "Take it once, outside, or with rlock(), which enters it again"
    if MUTEX in rules:
        return "holds it with lock() or rlock()", "A read-write lock cannot enter that again: use write() there"
    return "writes it", "Take it once, outside, or with reentrant=True, which enters it again as rlock() does"
