"""How a client behaves: acquire, renew, extend, hand over, release, written once as coroutines that await ops.

Nothing here knows whether a thread, an event loop or a simulator drives it. A driver answers each op with its reply and
the local time. A store that cannot be reached raises StoreUnavailable (nothing happened) or OutcomeUnknown (it may
have) at the await; the cancellation of a task and an interrupt arrive there as well. However a flow ends, it leaves
nothing behind: its last op sees to that. A driver therefore throws into a flow and never closes it, and never repeats
an op on its own.
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.claims import AcquireRequest, OwnLeases, PendingClaim, budget_ms, claim, immediate_grant
from leasehold._core.holding import LOSSES, LOST, Holding, LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, Any, Callable
from leasehold._core.policy import LEAST_BUDGET_MS, tombstone_ms
from leasehold.errors import InvalidRequest, LeaseLost, OutcomeUnknown, StoreUnavailable

if TYPE_CHECKING:
    from leasehold._core.tickets import Ticket, Transfer

__all__ = [
    "AcquireRequest",
    "FirstClaim",
    "FirstRelease",
    "acquire",
    "adopt",
    "change_meta",
    "downgrade",
    "extend",
    "release",
    "renew",
    "transfer",
]


# ---------------------------------------------------------------- first ops
#
# The first op of an acquire or a release may be sent before its flow begins: together with others, or on the fast path,
# where most of them need no flow. The flow goes on from what came of it as if it had sent that op itself, and from then
# on it is the flow that cleans up.


class First:
    """What came of such an op: its answer, or what was raised instead, an interrupt included."""

    __slots__ = ("_error", "answer", "used")

    def __init__(self, answer: ops.TimedReply[Any] | None, error: BaseException | None = None) -> None:
        self.answer: Any = answer  # None when there is an error
        self._error = error
        self.used = False

    def take(self) -> Any:
        """The answer; or the error is raised. It is not kept: it leads to the frames that lead here, and would keep
        alive what they refer to."""
        self.used = True
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error
        return self.answer


class FirstClaim(First):
    """The first claim of an acquire, as this owner."""

    __slots__ = ("owner",)

    def __init__(
        self, owner: str, answer: ops.TimedReply[ops.ClaimReply] | None, error: BaseException | None = None
    ) -> None:
        First.__init__(self, answer, error)
        self.owner = owner


class FirstRelease(First):
    """The first release of a holding."""

    __slots__ = ("op",)

    def __init__(self, op: ops.Release, answer: ops.TimedReply[Any] | None, error: BaseException | None = None) -> None:
        First.__init__(self, answer, error)
        self.op = op


MOST_ADOPTIONS, RETRY_ADOPTION = 3, 0.05  # tries of an adoption that goes unanswered, and seconds between them
MOST_OWNERS = 1_000  # attempts before a store that cannot keep a claim is called unavailable


async def acquire(
    request: AcquireRequest,
    new_owner: Callable[[], str],
    floor: Callable[[], int],
    now: float,
    first: FirstClaim | None = None,
    own_leases: OwnLeases | None = None,
) -> LocalGrant:
    """Claim and wait until granted or until the wait is over. An owner whose claim came to nothing is never used
    again: the next attempt has a new one. ``first``: a claim that was sent at ``now``, and what came of it.
    ``own_leases`` knows what the caller holds, so that it does not wait for itself for ever."""
    give_up = None if request.wait is None else now + request.wait
    owners = 0  # that came to nothing, although the store had taken their claims
    while owners < MOST_OWNERS:
        owner = new_owner() if first is None else first.owner
        pending = None
        try:
            answer: ops.TimedReply[ops.ClaimReply] | None = None
            try:
                if first is None:
                    answer = await claim(request, owner, 1, floor(), budget_ms(give_up, now))
                else:
                    taken, first = first, None
                    answer = taken.take()
                grant = immediate_grant(request, owner, now, answer.reply, answer.at)
                if grant is not None:
                    return grant
                pending = PendingClaim(request, owner, floor, now, give_up, own_leases)
            except (StoreUnavailable, OutcomeUnknown) as error:
                pending = PendingClaim(request, owner, floor, now, give_up, own_leases)
                await pending.handle_outage(error)
            grant = await pending.wait_for_grant(answer)
            if grant is not None:
                return grant
            await pending.withdraw_later()
        except BaseException as error:
            await _leave_nothing(pending or PendingClaim(request, owner, floor, now, give_up), error)
            raise
        now = pending.now
        owners += not pending.turned_away
        if pending.out_of_time() and not pending.turned_away:
            raise pending.not_acquired("", 0)
    raise StoreUnavailable(
        f"{MOST_OWNERS} claims on {request.name.label} were over before they could be used: the store answers more "
        f"slowly than a ttl of {request.ttl_ms} ms allows, or forgets its waiters",
        resource=request.name.text,
    )


async def _leave_nothing(pending: PendingClaim, error: BaseException) -> None:
    """Withdraw before any error leaves the flow, cancellation and interrupts included (trap 9). A flow that is being
    closed may await nothing more."""
    if isinstance(error, GeneratorExit):
        return
    in_doubt = pending.known or pending.unanswered
    await pending.withdraw_later()
    if in_doubt and isinstance(error, StoreUnavailable):  # "nothing was taken" would not be true
        raise OutcomeUnknown(str(error), resource=pending.request.name.text) from error


async def renew(holding: Holding, now: float) -> None:
    """Send one renewal and apply its outcome to the holding."""
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


async def downgrade(holding: Holding, now: float) -> None:
    """From writer to reader, in one step. When this fails, the holder only reads all the same, later renewals repeat
    the change, and the caller may repeat it, too."""
    await _change(holding, holding.begin_downgrade(now), now)
    holding.end_downgrade()


async def change_meta(holding: Holding, meta: str, now: float) -> None:
    """Replace the holder's metadata. When this goes unanswered, later renewals repeat it. An empty text changes
    nothing."""
    await _change(holding, holding.begin_meta_change(meta, now), now)


async def _change(holding: Holding, op: ops.Renew, now: float) -> None:
    """Send a Renew that the caller waits for. LeaseLost when the lease is not ours."""
    try:
        answer = await op
    except (StoreUnavailable, OutcomeUnknown) as error:
        holding.renewal_failed(now, error)
        raise
    finally:
        holding.end_change()
    holding.apply_reply(op, now, answer.reply, answer.at)
    holding.require(answer.at)


async def transfer(holding: Holding, transfer: Transfer, now: float) -> None:
    """Allow a process that knows the ticket to adopt the lease. When this fails the lease is still ours: no other
    process knows the ticket."""
    op = holding.begin_transfer(transfer.nonce, now)
    try:
        answer = await op
    except (StoreUnavailable, OutcomeUnknown) as error:
        holding.renewal_failed(now, error)
        raise
    finally:
        holding.end_change()
    holding.end_transfer(transfer, op, now, answer.reply, answer.at)


async def adopt(
    request: AcquireRequest, ticket: Ticket, adopter: str, floor: Callable[[], int], now: float
) -> LocalGrant:
    """Take over the lease that a ticket names. An adoption that goes unanswered is repeated as the same adopter, which
    gets the same grant (trap 10); one that gives up leaves nothing behind."""
    answer = None
    pending = 0  # adoptions that may still arrive
    try:
        while answer is None:
            pending += 1
            try:
                answer = await ops.Adopt(
                    resource=ticket.resource,
                    fence=ticket.fence,
                    ticket=ticket.nonce,
                    adopter=adopter,
                    ttl_ms=request.ttl_ms,
                    floor=floor(),
                    holder_address=request.holder_address,
                    budget_ms=LEAST_BUDGET_MS,
                )
            except OutcomeUnknown:
                if pending == MOST_ADOPTIONS:
                    raise
                now = (await ops.Park(adopter, now + RETRY_ADOPTION)).at
        grant = _adopted(request, ticket, adopter, now, answer, pending > 1)
        if not grant.usable(request.renews):
            raise _no_longer_good(request, ticket, "expired")
        return grant
    except GeneratorExit:
        raise
    except BaseException as error:
        pending -= isinstance(error, StoreUnavailable)  # a definite no
        if pending and (answer is None or isinstance(answer.reply, ops.Granted)):
            await _withdraw_adoption(request, adopter)
            if isinstance(error, StoreUnavailable):  # "nothing was taken" would not be true
                raise OutcomeUnknown(str(error), resource=ticket.resource) from error
        raise


async def _withdraw_adoption(request: AcquireRequest, adopter: str) -> None:
    """Give back what may have been adopted; an adoption that arrives late gets nothing."""
    withdrawal = ops.Withdraw(resource=request.name.text, owner=adopter, forget_ms=tombstone_ms(request.ttl_ms))
    await ops.Defer(withdrawal, request.ttl_ms / 1000)


def _adopted(
    request: AcquireRequest, ticket: Ticket, adopter: str, sent: float, answer: ops.TimedReply[Any], unanswered: bool
) -> LocalGrant:
    reply = answer.reply
    if isinstance(reply, ops.Granted):
        return LocalGrant(
            owner=adopter,
            fence=reply.fence,
            ttl_ms=request.ttl_ms,
            sent=sent,
            remaining_ms=reply.remaining_ms,
            at=answer.at,
            unanswered=unanswered,
            rule=reply.rule,
            slots=reply.slots,
        )
    if isinstance(reply, ops.Rejected):
        raise InvalidRequest(reply.why, resource=ticket.resource)
    raise _no_longer_good(request, ticket, reply.reason)


def _no_longer_good(request: AcquireRequest, ticket: Ticket, reason: str) -> LeaseLost:
    why = "its lease is over, or another process has adopted it"
    if reason == "deleted":  # the store never had a later fence either: most likely it is the wrong store
        why = "this store knows nothing of its lease; is it the store that the giver uses?"
    return LeaseLost(
        f"the ticket for {request.name.label} is no longer good ({reason}): {why}",
        reason=reason if reason in LOSSES else "taken",
        resource=ticket.resource,
        fence=ticket.fence,
    )


async def release(holding: Holding, now: float, first: FirstRelease | None = None) -> bool:
    """Give back. True when it was ours until now. A release that goes unanswered is repeated in the background, and the
    caller may repeat it, too. ``first``: a release that was begun and sent at ``now``, and what came of it."""
    op = holding.begin_release(now) if first is None else first.op
    if op is None:
        return False
    try:
        answer = await op if first is None else first.take()
    except GeneratorExit:
        raise
    except BaseException as error:
        await ops.Defer(op._replace(again=True), holding.ttl_ms / 1000)
        if not isinstance(error, (StoreUnavailable, OutcomeUnknown)):
            raise
        if holding.phase != LOST:  # a lost lease was not ours any more, whatever becomes of this release
            raise OutcomeUnknown(
                f"the release of {holding.name.label} was not confirmed; it goes on in the background "
                "until the lease would have ended, and may be repeated",
                resource=holding.name.text,
                fence=holding.fence,
            ) from error
        return False
    return holding.end_release(op, answer.reply, answer.at)
