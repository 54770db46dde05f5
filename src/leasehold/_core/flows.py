"""How a client behaves: acquire, renew, extend, hand over, release, written once as coroutines that await ops.

Nothing here knows whether a thread, an event loop or a simulator drives it. A driver answers each op with its
reply and the local time. A store that cannot be reached raises StoreUnavailable (nothing happened) or
OutcomeUnknown (it may have) at the await; a cancelled task and an interrupt arrive there as well. However a flow
ends, it leaves nothing behind: its last op sees to that. A driver therefore throws into a flow and never closes it,
and never repeats an op on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leasehold._core import ops
from leasehold._core.claims import AcquireRequest, OwnLeases, PendingClaim, budget_ms, claim, immediate_grant
from leasehold._core.holding import LOSSES, LOST, Changeable, Holding, LocalGrant, Transferable, without_frames
from leasehold._core.light_typing import TYPE_CHECKING, Any, TypeVar
from leasehold._core.policy import LEAST_BUDGET_MS, tombstone_ms
from leasehold._core.tickets import Ticket, Transfer
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost, OutcomeUnknown, StoreUnavailable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = [
    "AcquireRequest",
    "FirstClaim",
    "acquire",
    "adopt",
    "change_meta",
    "downgrade",
    "extend",
    "release",
    "renew",
    "transfer",
]


class FirstClaim:
    """A first claim that travelled with others, and its answer. Whoever takes it looks after what it got."""

    __slots__ = ("answer", "owner", "used")

    def __init__(self, owner: str, answer: ops.TimedReply[ops.ClaimReply]) -> None:
        self.owner = owner
        self.answer = answer
        self.used = False


MOST_ADOPTIONS, RETRY_ADOPTION = 3, 0.05  # tries of one that goes unanswered, and the pause between them in seconds
MOST_OWNERS = 1_000  # attempts before a store that cannot keep a claim is called unavailable


async def acquire(
    ask: AcquireRequest,
    new_owner: Callable[[], str],
    floor: Callable[[], int],
    now: float,
    first: FirstClaim | None = None,
    oneself: OwnLeases | None = None,
) -> LocalGrant:
    """Stand in line until granted or until the wait is over. An owner whose claim came to nothing is never
    used again: the next attempt has a new one. ``first``: a claim that was sent ``now`` and is answered already.
    ``oneself``: who knows what the caller holds, so that it does not wait for itself for ever."""
    give_up = None if ask.wait is None else now + ask.wait
    for _ in range(MOST_OWNERS):
        owner = new_owner() if first is None else first.owner
        line = None
        try:
            answer: ops.TimedReply[ops.ClaimReply] | None = None
            try:
                if first is None:
                    answer = await claim(ask, owner, 1, floor(), budget_ms(give_up, now))
                else:
                    first.used = True
                    answer, first = first.answer, None
                taken = immediate_grant(ask, owner, now, answer)
                if taken is not None:
                    return taken
                line = PendingClaim(ask, owner, floor, now, give_up, oneself)
            except (StoreUnavailable, OutcomeUnknown) as error:
                line = PendingClaim(ask, owner, floor, now, give_up, oneself)
                await line.handle_outage(error)
            taken = await line.wait_for_grant(answer)
            if taken is not None:
                return taken
            await line.withdraw_later()
        except BaseException as error:
            await _leave_nothing(line or PendingClaim(ask, owner, floor, now, give_up), error)
            raise
        now = line.now
        if line.out_of_time():
            raise line.not_acquired("", 0)
    raise StoreUnavailable(
        f"{MOST_OWNERS} claims on {ask.name.kind} were over before they could be used: the store answers more slowly "
        f"than a ttl of {ask.ttl_ms} ms allows, or forgets its waiters",
        resource=ask.name.text,
    )


async def _leave_nothing(line: PendingClaim, error: BaseException) -> None:
    """Cancellation and interrupts too (trap 9): withdraw, then let them through. One that is closed may ask for
    nothing more."""
    if isinstance(error, GeneratorExit):
        return
    in_doubt = line.known or line.unanswered
    await line.withdraw_later()
    if in_doubt and isinstance(error, StoreUnavailable):  # "nothing was taken" would not be true
        raise OutcomeUnknown(str(error), resource=line.ask.name.text) from error


async def renew(holding: Holding, now: float) -> None:
    """One renewal; what comes of it is written into the holding."""
    op = holding.begin_renewal(now)
    if op is None:
        return
    try:
        answer = await op
    except (StoreUnavailable, OutcomeUnknown) as error:
        holding.renewal_failed(now, error)
        return
    holding.apply_reply(op, now, answer.reply, answer.at)


async def extend(holding: Holding, ttl_ms: int, now: float) -> None:
    """Set the end of the lease to ``ttl_ms`` from now, and renew by that from then on."""
    await _change(holding, holding.begin_extension(ttl_ms, now), now)


async def downgrade(holding: Changeable, now: float) -> None:
    """From writing to reading, in one step. When this fails it only reads all the same, and goes on to say so; it may
    be repeated then."""
    await _change(holding, holding.begin_downgrade(now), now)
    holding.end_downgrade()


async def change_meta(holding: Changeable, meta: str, now: float) -> None:
    """Let the holder say something else of itself. When this goes unanswered, it goes on to say so. Nothing (an empty
    text) cannot be said."""
    await _change(holding, holding.begin_meta_change(meta, now), now)


async def _change(holding: Holding, op: ops.Renew, now: float) -> None:
    """A Renew that somebody waits for. LeaseLost when it is not ours."""
    try:
        answer = await op
    except (StoreUnavailable, OutcomeUnknown) as error:
        holding.renewal_failed(now, error)
        raise
    finally:
        holding.end_change()
    holding.apply_reply(op, now, answer.reply, answer.at)
    holding.require(answer.at)


async def transfer(holding: Transferable, giving: Transfer, now: float) -> None:
    """Allow whoever knows the ticket to adopt the lease. When this fails it is still ours: the ticket is known to
    nobody."""
    op = holding.begin_transfer(giving.nonce, now)
    try:
        answer = await op
    except (StoreUnavailable, OutcomeUnknown) as error:
        holding.renewal_failed(now, error)
        raise
    finally:
        holding.end_change()
    holding.end_transfer(giving, op, now, answer.reply, answer.at)


async def adopt(ask: AcquireRequest, ticket: Ticket, adopter: str, floor: Callable[[], int], now: float) -> LocalGrant:
    """Take over the lease that a ticket names. What goes unanswered is asked again as the same adopter, who gets the
    same grant (trap 10); whoever gives up leaves nothing behind."""
    answer = None
    pending = 0  # adoptions that may still arrive
    try:
        while answer is None:
            pending += 1
            try:
                answer = await ops.Adopt(
                    ticket.resource,
                    ticket.fence,
                    ticket.nonce,
                    adopter,
                    ask.ttl_ms,
                    floor(),
                    ask.holder_address,
                    LEAST_BUDGET_MS,
                )
            except OutcomeUnknown:
                if pending == MOST_ADOPTIONS:
                    raise
                now = (await ops.Park(adopter, now + RETRY_ADOPTION)).at
        taken = _adopted(ask, ticket, adopter, now, answer, pending > 1)
        if not taken.usable(ask.renews):
            raise _no_longer_good(ask, ticket, "expired")
        return taken
    except GeneratorExit:
        raise
    except BaseException as error:
        pending -= isinstance(error, StoreUnavailable)  # a definite no
        if pending and (answer is None or isinstance(answer.reply, ops.Granted)):
            await _disown(ask, adopter)
            if isinstance(error, StoreUnavailable):  # "nothing was taken" would not be true
                raise OutcomeUnknown(str(error), resource=ticket.resource) from error
        raise


async def _disown(ask: AcquireRequest, adopter: str) -> None:
    """What may have been adopted is given back, and what arrives late takes nothing."""
    await ops.Defer(ops.Withdraw(ask.name.text, adopter, tombstone_ms(ask.ttl_ms)), ask.ttl_ms / 1000)


def _adopted(
    ask: AcquireRequest, ticket: Ticket, adopter: str, sent: float, answer: ops.TimedReply[Any], unanswered: bool
) -> LocalGrant:
    reply = answer.reply
    if isinstance(reply, ops.Granted):
        fence, remaining_ms, slots, _, rule = reply
        return LocalGrant(adopter, fence, ask.ttl_ms, sent, remaining_ms, answer.at, unanswered, rule, slots)
    if isinstance(reply, ops.Rejected):
        raise InvalidRequest(reply.why, resource=ticket.resource)
    raise _no_longer_good(ask, ticket, reply.reason)


def _no_longer_good(ask: AcquireRequest, ticket: Ticket, reason: str) -> LeaseLost:
    why = "its lease is over, or somebody has adopted it"
    if reason == "deleted":  # nothing here was ever followed by anything: mostly it is the wrong place to look
        why = "this store knows nothing of its lease; is it the store that the giver uses?"
    return LeaseLost(
        f"the ticket for {ask.name.kind} is no longer good ({reason}): {why}",
        reason=reason if reason in LOSSES else "taken",
        resource=ticket.resource,
        fence=ticket.fence,
    )


async def release(holding: Holding, now: float) -> bool:
    """Give back; True when it was ours until now. What goes unanswered is repeated in the background, and the
    caller may repeat it too."""
    op = holding.begin_release(now)
    if op is None:
        return False
    try:
        answer = await op
    except GeneratorExit:
        raise
    except BaseException as error:
        await ops.Defer(op._replace(again=True), holding.ttl_ms / 1000)
        if not isinstance(error, (StoreUnavailable, OutcomeUnknown)):
            raise
        if holding.phase != LOST:  # else it was not ours any more, whatever becomes of this release
            raise OutcomeUnknown(
                f"the release of {holding.name.kind} was not confirmed; it goes on in the background "
                "until the lease would have ended, and may be repeated",
                resource=holding.name.text,
                fence=holding.fence,
            ) from error
        return False
    return holding.end_release(op, answer.reply)


# ---------------------------------------------------------------- batch
#
# Many holdings at once: what the watchdog asks for them in one batch, and what it hears. They share one lock, which
# is taken once for all of them.


H = TypeVar("H", bound=Holding)


def due_renewals(
    holdings: Iterable[H], now: float, lock: AbstractContextManager[Any]
) -> tuple[list[H], list[ops.Renew]]:
    """Those that must be renewed now, and the Renew of each."""
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
    """The replies to what was sent at that time; those that got none are given back, each with its error."""
    unsure = []
    replies = list(replies)
    errors = {id(reply): reply for reply in replies if isinstance(reply, LeaseholdError)}  # mostly one for all of them
    kept = {key: without_frames(error) for key, error in errors.items()}
    with lock:
        for holding, renew, reply in zip(holdings, renews, replies, strict=True):
            if isinstance(reply, LeaseholdError):
                holding._renewal_failed(sent, kept[id(reply)])
                unsure.append((holding, reply))
            else:
                holding._apply_reply(renew, sent, reply, now)
    return unsure
