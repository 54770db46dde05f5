"""Renewals of many holdings at once: which of them travel together, and how their replies are applied.

A *plain* renewal sets the end of a lease anew and changes nothing else, so all plain renewals of one lease are alike:
it needs neither a number nor a reply of its own. Hundreds are one request, and the reply names those that were not
renewed. Each of these is then renewed alone, with a Renew, to learn why. So is every holding that is not plain.

The holdings of one call share one lock. It is held while a few hundred of them change, never during I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasehold._core import ops
from leasehold._core.holding import ALIVE, HELD, Holding, grant_spans, without_frames
from leasehold._core.light_typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from leasehold._core.policy import renewal_budget_ms
from leasehold._core.rules import MUTEX
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

H = TypeVar("H", bound=Holding)

PlainRenewal: TypeAlias = tuple[str, str, int, int]  # resource, owner, fence, ttl_ms; its number is 0


# ---------------------------------------------------------------- plain renewals


def plain_renewals(
    holdings: Iterable[H], now: float, lock: AbstractContextManager[Any]
) -> tuple[list[H], list[PlainRenewal], list[H]]:
    """The holdings whose renewal is plain now, and the renewal of each; and the other holdings.

    Not plain is what was or is to be changed (the ttl by re-entry or ``extend``, the metadata, the rule), what a caller
    changes at this moment, and what is held beside others: readers and permits."""
    plain, renewals, others = [], [], []
    with lock:
        for holding in holdings:
            ttl_ms = holding.ttl_ms
            if (
                holding._renews_sent == 0
                and holding._renewal_ttl_ms == ttl_ms
                and holding._unconfirmed is None
                and holding._awaited == 0
                and holding.rule == MUTEX
                and holding.phase in ALIVE
                and now < holding._stop_at
            ):
                plain.append(holding)
                renewals.append((holding.name.text, holding.owner, holding.fence, ttl_ms))
            else:
                others.append(holding)
    return plain, renewals, others


def confirm_plain(
    holdings: Iterable[Holding],
    renewals: Iterable[PlainRenewal],
    sent: float,
    now: float,
    lock: AbstractContextManager[Any],
) -> None:
    """The store renewed these at some moment after ``sent``. The same as ``apply_reply`` for a whole ttl: a holding
    that has ended meanwhile stays ended, and one that was extended meanwhile goes by the extension (trap 44)."""
    spans_of = -1
    stop = deadline = renewal = 0.0
    with lock:
        for holding, (_, _, _, ttl_ms) in zip(holdings, renewals, strict=True):
            if holding.phase not in ALIVE or holding._last_extension:
                continue
            if ttl_ms != spans_of:  # most have the same
                spans_of = ttl_ms
                stop, deadline, renewal = [sent + span for span in grant_spans(ttl_ms, ttl_ms)]
            if holding.phase != HELD:
                holding.phase = HELD
                holding._last_failure = None
            if deadline > holding.deadline:
                holding.deadline = deadline
                if holding._limits is None:
                    holding._stop_at = stop
                else:
                    holding._set_stop()
            holding.renew_at = renewal
            if now >= holding._stop_at:
                holding._settle(now)


def fail(holdings: Iterable[H], sent: float, error: LeaseholdError, lock: AbstractContextManager[Any]) -> list[H]:
    """Nobody knows whether these were renewed: what was confirmed before still holds. Returns them."""
    kept = without_frames(error)
    failed = list(holdings)
    with lock:
        for holding in failed:
            holding._renewal_failed(sent, kept)
    return failed


# ---------------------------------------------------------------- Renews


def due_renewals(
    holdings: Iterable[H], now: float, lock: AbstractContextManager[Any]
) -> tuple[list[H], list[ops.Renew]]:
    """The holdings that must be renewed now, and the Renew of each."""
    due, renews = [], []
    with lock:
        for holding in holdings:
            renew = holding._begin_renewal(now)
            if renew is not None:
                due.append(holding)
                renews.append(renew)
    return due, renews


def apply_replies(
    holdings: Iterable[H],
    renews: Iterable[ops.Renew],
    sent: float,
    replies: Iterable[Any],
    now: float,
    lock: AbstractContextManager[Any],
) -> list[tuple[H, LeaseholdError]]:
    """Apply the replies to Renews that were sent at ``sent``. Returns the holdings whose renewal failed, each with its
    error."""
    failed = []
    replies = list(replies)
    errors = {id(reply): reply for reply in replies if isinstance(reply, LeaseholdError)}  # usually one for all
    kept = {key: without_frames(error) for key, error in errors.items()}
    with lock:
        for holding, renew, reply in zip(holdings, renews, replies, strict=True):
            if isinstance(reply, LeaseholdError):
                holding._renewal_failed(sent, kept[id(reply)])
                failed.append((holding, reply))
            else:
                holding._apply_reply(renew, sent, reply, now)
    return failed


# ---------------------------------------------------------------- time


def last_try_at(holding: Holding) -> float:
    """The latest moment at which a renewal of this holding can begin and still take its whole budget (trap 2)."""
    return holding._stop_at - renewal_budget_ms(holding.ttl_ms) / 1000
