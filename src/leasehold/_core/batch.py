"""Many holdings at once: what the watchdog asks for them in one batch, and what it hears. They share one lock, which is
taken once for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold._core import ops
from leasehold._core.holding import Holding, without_frames
from leasehold._core.light_typing import TYPE_CHECKING, Any, TypeVar
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

H = TypeVar("H", bound=Holding)


def renewals(holdings: Iterable[H], now: float, lock: AbstractContextManager[Any]) -> tuple[list[H], list[ops.Renew]]:
    """Those that must be renewed now, and the Renew of each."""
    due, renews = [], []
    with lock:
        for holding in holdings:
            renew = holding._renewal(now)
            if renew is not None:
                due.append(holding)
                renews.append(renew)
    return due, renews


def hear(
    holdings: Iterable[H],
    renews: Iterable[ops.Renew],
    sent: float,
    replies: Iterable[Any],
    now: float,
    lock: AbstractContextManager[Any],
) -> list[tuple[H, LeaseholdError]]:
    """The replies to what was sent at that time; those that got none are given back, each with its error."""
    unsure = []
    replies = list(replies)
    errors = {id(reply): reply for reply in replies if isinstance(reply, LeaseholdError)}  # mostly one for all of them
    kept = {key: without_frames(error) for key, error in errors.items()}
    with lock:
        for holding, renew, reply in zip(holdings, renews, replies, strict=True):
            if isinstance(reply, LeaseholdError):
                holding._unanswered(sent, kept[id(reply)])
                unsure.append((holding, reply))
            else:
                holding._answered(renew, sent, reply, now)
    return unsure
