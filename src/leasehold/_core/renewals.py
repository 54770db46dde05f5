"""Renewals of many holdings at once: which of them travel together, and how their replies are applied.

A *plain* renewal sets the end of a lease anew and changes nothing else, so all plain renewals of one lease are alike:
it needs neither a number nor a reply of its own. Hundreds are one request, and the reply names those that were not
renewed. Each of these is then renewed alone, with a Renew, to learn why. So is every holding that is not plain.

The holdings of one call share one lock. It is held while a few hundred of them change, never during I/O.
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.holding import ALIVE, HELD, Holding, grant_spans, without_frames
from leasehold._core.light_typing import TYPE_CHECKING, Any, Iterable, Sequence, TypeVar
from leasehold._core.policy import renewal_budget_ms
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

H = TypeVar("H", bound=Holding)


# ---------------------------------------------------------------- plain renewals


def plain(holdings: Sequence[H], now: float, lock: AbstractContextManager[Any]) -> list[H]:
    """Those of the holdings whose renewal is plain now.

    Not plain is what was or is to be changed (the ttl by re-entry or ``extend``, the metadata, the rule), and what is
    held beside others: readers and permits."""
    with lock:
        return [one for one in holdings if one.plain and one.stop_at > now and one.phase in ALIVE]


def confirm_plain(holdings: Sequence[H], sent: float, now: float, lock: AbstractContextManager[Any]) -> Sequence[H]:
    """The store renewed these at some moment after ``sent``. The same as ``apply_reply`` for a whole ttl: a holding
    that has ended meanwhile stays ended, and one that a caller changes meanwhile goes by that change alone (trap 44).
    Returns those that are due again at one and the same time, because they have one ttl and no limits."""
    if not holdings:
        return ()
    ttl_ms = holdings[0].ttl_ms
    stop, deadline, renewal = [sent + span for span in grant_spans(ttl_ms, ttl_ms)]
    others = set()
    with lock:
        for holding in holdings:
            if (
                holding.plain
                and holding.phase == HELD
                and holding.ttl_ms == ttl_ms
                and holding._limits is None
                and now < stop
            ):
                holding.renew_at = renewal
                holding.deadline = deadline  # no sooner than before: what confirmed it was sent earlier
                holding.stop_at = stop
            else:
                _confirm(holding, sent, now)
                others.add(holding)
    return [one for one in holdings if one not in others] if others else holdings


def _confirm(holding: Holding, sent: float, now: float) -> None:
    if holding.plain and holding.phase in ALIVE:
        _, deadline, renewal = grant_spans(holding.ttl_ms, holding.ttl_ms)
        holding.phase = HELD
        holding._last_failure = None
        holding.renew_at = sent + renewal
        holding.deadline = max(holding.deadline, sent + deadline)
        holding._set_stop()
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
    return holding.stop_at - renewal_budget_ms(holding.ttl_ms) / 1000
