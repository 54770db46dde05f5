"""Standing in line: one owner's way from its claim to its grant, or out again.

A claim until the store knows us, beats from then on, parked in between until a push or the next beat. Every send is
noted with a local time not later than its sending, because that is what a deadline may count from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasehold._core import ops
from leasehold._core.holding import LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias
from leasehold._core.names import Name
from leasehold._core.policy import (
    BUDGET_MS,
    LEAST_BUDGET_MS,
    forgotten_after_ms,
    next_beat_ms,
    next_common_beat,
    retry_beat_after,
    tombstone_ms,
)
from leasehold._core.rules import MUTEX, READ, RULES, SEMAPHORE
from leasehold._core.types import Door, Waiter
from leasehold.errors import InvalidRequest, NotAcquired, OutcomeUnknown, StoreUnavailable

if TYPE_CHECKING:
    pass

# ---------------------------------------------------------------- oneself
#
# Waiting for oneself: what a thread or task that has to wait holds already, and what it had better do.
#
# Whoever waits inside the body of its own lease for that lease to end waits for ever: nobody else gives it back, and
# it is renewed meanwhile. That is a mistake in a program. To try, or to wait for a while, is not: those end by
# themselves.


UPGRADE = (
    "It cannot write before it has stopped: two readers who both wait to write would wait for each other (deadlock). "
    "Release the read lease and acquire write(), then look again at what you read; or begin with write() and "
    "downgrade()"
)


class OwnLease(NamedTuple):
    """A lease of the very thread or task that asks. It is ``lasting`` inside a body that is open, when nothing but the
    end of that body is to end it."""

    rule: str
    slots: tuple[int, ...]
    lasting: bool
    leads: bool = False  # it is a term of an election


class OwnLeases(Protocol):
    """Who knows."""

    def own(self, name: Name) -> Sequence[OwnLease]:
        """What the thread or task that asks holds of this resource as of now."""


def self_deadlock(ask: AcquireRequest, own: Sequence[OwnLease], limit: int) -> InvalidRequest | None:
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


def self_deadlock_hint(ask: AcquireRequest, own: Sequence[OwnLease], limit: int) -> str:
    """What to add to the error of a wait that is over, when it was oneself who stood in the way."""
    if not _shut_out(ask, own, limit):
        return ""
    holds, instead = _advice(ask, own, limit)
    return f". This thread or task {holds} itself. {instead}"


def _shut_out(ask: AcquireRequest, own: Sequence[OwnLease], limit: int) -> bool:
    """Would this be refused if nobody else were there?"""
    seats = [Door(one.rule, one.slots, 0) for one in own]
    claim = Waiter("", ask.ttl_ms, 0, 0, permits=ask.permits)
    return bool(seats) and RULES[ask.rule](seats, claim, limit) is None


def _advice(ask: AcquireRequest, own: Sequence[OwnLease], limit: int) -> tuple[str, str]:
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


# ---------------------------------------------------------------- line


ClaimAnswer: TypeAlias = ops.TimedReply[ops.ClaimReply] | ops.TimedReply[ops.BeatReply]


class AcquireRequest(NamedTuple):
    """What somebody wants to acquire."""

    name: Name
    ttl_ms: int
    wait: float | None = None
    renews: bool = True
    at_least_ms: int = 0
    rule: str = "mutex"
    permits: int = 1
    limit: int = 1
    address: str = ""
    holder_address: str = ""
    meta: str = ""
    delay_ms: int = 0


def claim(ask: AcquireRequest, owner: str, beat: int, floor: int, budget_ms: int) -> ops.Claim:
    """All that was asked for, as the store hears it."""
    name, ttl_ms, wait, _, _, rule, permits, limit, address, holder_address, meta, delay_ms = ask
    return ops.Claim(
        name.text,
        owner,
        ttl_ms,
        beat,
        floor,
        wait != 0,
        rule,
        permits,
        limit,
        address,
        holder_address,
        meta,
        delay_ms,
        budget_ms,
    )


def budget_ms(give_up: float | None, now: float) -> int:
    """How long one call may take for somebody who gives up then."""
    if give_up is None:
        return BUDGET_MS
    return int(min(BUDGET_MS, max(LEAST_BUDGET_MS, (give_up - now) * 1000)))


def immediate_grant(
    ask: AcquireRequest, owner: str, sent: float, answer: ops.TimedReply[ops.ClaimReply]
) -> LocalGrant | None:
    """The grant, when the first claim got one and there is nothing more to ask: nobody has to stand in line."""
    reply = answer.reply
    if not isinstance(reply, ops.Granted) or ask.at_least_ms:
        return None
    fence, remaining_ms, slots, limit, _ = reply
    taken = LocalGrant(owner, fence, ask.ttl_ms, sent, remaining_ms, answer.at, False, ask.rule, slots, limit)
    return taken if taken.usable(ask.renews) else None


def refusal(ask: AcquireRequest, reply: ops.Rejected) -> InvalidRequest:
    """The error of a claim that the store would never grant."""
    advice = ": ask for fewer, or store a higher limit with resize()" if ask.permits > 1 else ""
    return InvalidRequest(f"{ask.name.kind}: {reply.why}{advice}", resource=ask.name.text)


class PendingClaim:
    """One owner's time in line, from its first claim on, which was sent ``now``: what was sent when, and what may still
    be under way."""

    __slots__ = (
        "ask",
        "beat",
        "floor",
        "give_up",
        "known",
        "limit",
        "now",
        "oneself",
        "owner",
        "push",
        "sent",
        "trouble",
        "unanswered",
    )

    def __init__(
        self,
        request: AcquireRequest,
        owner: str,
        floor: Callable[[], int],
        now: float,
        give_up: float | None,
        own_leases: OwnLeases | None = None,
    ) -> None:
        self.ask = request
        self.owner = owner
        self.floor = floor
        self.now = now
        self.give_up = give_up
        self.oneself = own_leases  # who knows what the caller holds already, if anybody does
        self.known = False  # the store has us, waiting or granted
        self.unanswered = 1  # claims that may still be delivered
        self.beat = 1
        self.sent = {1: now}  # beat -> a local time not later than its sending
        self.limit = 0  # what others go by, when it is another than ours
        self.push: ops.Push | None = None
        self.failing_since: float | None = None  # since when the store has not answered

    async def wait_for_grant(self, answer: ClaimAnswer | None) -> LocalGrant | None:
        """From what was answered, if anything, to the grant. None when this owner's claim is gone and another owner
        must claim."""
        while True:
            taken = None
            if answer is not None:
                reply = self.apply_reply(answer)
                if isinstance(reply, ops.Granted):
                    taken = self.usable_grant(reply.fence, self.beat, reply.remaining_ms, reply.slots)
                    if taken is None:  # so little is left that it is not entered
                        await self.withdraw()
                        return None
                elif isinstance(reply, ops.Queued):
                    await self.wait_in_queue(reply)
                else:
                    self.raise_refusal(reply)
                    return None
            if taken is None and self.push is not None:
                taken = self.usable_grant(self.push.fence, self.push.beat, self.push.remaining_ms, self.push.slots)
                self.push = None  # one that was read too late is a hint to beat, nothing more (trap 41)
            if taken is not None:
                return await self.close_door(taken) if self.ask.at_least_ms else taken
            answer = await self.send_again()

    # ------------------------------------------------------------ asking the store

    async def send_again(self) -> ClaimAnswer | None:
        """A claim until the store knows us, a beat from then on. None: no answer this time."""
        self.beat += 1
        self.sent[self.beat] = self.now
        try:
            return await self.heartbeat() if self.known else await self.claim()
        except (StoreUnavailable, OutcomeUnknown) as error:
            await self.handle_outage(error)
            return None

    def claim(self) -> ops.Claim:
        self.unanswered += 1
        return claim(self.ask, self.owner, self.beat, self.floor(), budget_ms(self.give_up, self.now))

    def heartbeat(self) -> ops.Beat:
        oldest = next(iter(self.sent))
        if self.sent[oldest] + forgotten_after_ms(self.ask.ttl_ms) / 1000 < self.now:
            del self.sent[oldest]  # no grant names a beat as old as that
        return ops.Beat(self.ask.name.text, self.owner, self.beat, self.floor(), budget_ms(self.give_up, self.now))

    def apply_reply(self, answer: ClaimAnswer) -> ops.ClaimReply:
        self.now = answer.at
        self.failing_since = None
        if not self.known:  # it was a claim; in this order, else an interrupt in between would leave our place behind
            self.known = isinstance(answer.reply, (ops.Granted, ops.Queued))
            self.unanswered -= 1
        if isinstance(answer.reply, (ops.Granted, ops.Queued, ops.Busy)):
            self.limit = answer.reply.limit
        return answer.reply

    async def wait_in_queue(self, reply: ops.Queued) -> None:
        """Somebody is before us. It is only here, where one has to wait, that it matters what one holds already."""
        own = () if self.oneself is None else self.oneself.own(self.ask.name)
        limit = reply.limit or self.ask.limit
        if self.out_of_time():
            await self.withdraw()
            raise self.not_acquired(reply.holder, reply.free_in_ms, self_deadlock_hint(self.ask, own, limit))
        if own and self.give_up is None and (error := self_deadlock(self.ask, own, limit)) is not None:
            await self.withdraw()
            raise error
        await self.park(self.next_beat(reply))

    async def handle_outage(self, error: Exception) -> None:
        """The store does not answer. A place in the queue outlives that for a while (10 L); a first claim
        is only repeated when it may have won (trap 10)."""
        if not self.known:
            if isinstance(error, StoreUnavailable):  # a definite no; after OutcomeUnknown the claim stays in doubt
                self.unanswered -= 1
            if not self.unanswered:
                raise error
        self.failing_since = self.now if self.failing_since is None else self.failing_since
        ttl_ms = self.ask.ttl_ms
        await self.park(self.now + retry_beat_after(ttl_ms, self.now - self.failing_since))
        bearable_ms = forgotten_after_ms(ttl_ms) if self.known else 2 * BUDGET_MS
        if self.push is None and (self.out_of_time() or self.now > self.failing_since + bearable_ms / 1000):
            raise error

    async def park(self, until: float) -> None:
        """Wait for a push, never without an end (trap 24)."""
        if self.give_up is not None:
            until = min(until, self.give_up)
        answer = await ops.Park(self.owner, until)
        self.now = answer.at
        self.push = answer.reply

    async def close_door(self, taken: LocalGrant) -> LocalGrant | None:
        """``at_least``: the door is closed by the holder itself, so that a grant which reaches nobody closes
        nothing."""
        ask, sent = self.ask, self.now
        left_ms = max(int((taken.deadline - sent) * 1000), 1)
        answer = await ops.Renew(
            ask.name.text,
            self.owner,
            taken.fence,
            ask.ttl_ms,
            closed_ms=ask.at_least_ms,
            budget_ms=min(BUDGET_MS, left_ms),
        )
        self.now = answer.at
        if isinstance(answer.reply, ops.NotYours):
            self.known = False
            return None
        self.sent[self.beat] = sent
        closed = self.usable_grant(taken.fence, self.beat, answer.reply.remaining_ms, taken.slots)
        if closed is None:  # the answer took so long that the lease is over
            await self.withdraw()
        return closed

    # ------------------------------------------------------------ leaving

    async def withdraw(self) -> None:
        """Give up the place, whatever it has become meanwhile (trap 25)."""
        try:
            answer = await self.withdrawal()
        except (StoreUnavailable, OutcomeUnknown):
            await self.withdraw_later()
        else:
            self.now = answer.at
        self.known = False
        self.unanswered = 0

    async def withdraw_later(self) -> None:
        """In the background, until the lease would be over anyway."""
        if self.known or self.unanswered:
            await ops.Defer(self.withdrawal(), self.ask.ttl_ms / 1000)

    def withdrawal(self) -> ops.Withdraw:
        """With a tombstone when a claim may still arrive after it: it must take nothing then."""
        forget_ms = tombstone_ms(self.ask.ttl_ms) if self.unanswered else 0
        return ops.Withdraw(self.ask.name.text, self.owner, forget_ms, LEAST_BUDGET_MS)

    # ------------------------------------------------------------ judging

    def usable_grant(self, fence: int, beat: int, remaining_ms: int, slots: tuple[int, ...]) -> LocalGrant | None:
        """The grant that answers ``beat``, if there is time left to work in. Its deadline counts from when that
        beat was sent: neither the last one sent nor the last one acknowledged would be safe (trap 41)."""
        sent = self.sent.get(beat)
        if sent is None:
            return None
        ask, unanswered = self.ask, self.unanswered > 0
        taken = LocalGrant(
            self.owner, fence, ask.ttl_ms, sent, remaining_ms, self.now, unanswered, ask.rule, slots, self.limit
        )
        return taken if taken.usable(ask.renews) else None

    def raise_refusal(self, reply: ops.Busy | ops.NoClaim | ops.Rejected) -> None:
        self.known = False
        if isinstance(reply, ops.Busy):
            raise self.not_acquired(reply.holder, reply.retry_in_ms)
        if isinstance(reply, ops.Rejected):
            raise refusal(self.ask, reply)

    def next_beat(self, reply: ops.Queued) -> float:
        after_ms = next_beat_ms(self.ask.ttl_ms, reply.ahead, reply.free_in_ms, reply.pushable)
        if reply.ahead:
            return next_common_beat(self.now, after_ms, self.ask.holder_address)
        return self.now + after_ms / 1000

    def out_of_time(self) -> bool:
        return self.give_up is not None and self.now >= self.give_up

    def not_acquired(self, holder: str, retry_in_ms: int, more: str = "") -> NotAcquired:
        left = f"{retry_in_ms / 1000:.3f} s"
        by = f"held by {holder}; its lease expires in {left} unless it is renewed"
        closed = f"not free for {left}" if retry_in_ms else "not free"  # nobody holds it, and its door is closed
        return NotAcquired(
            f"{self.ask.name.kind} is {by if holder else closed}{more}",
            holder=holder or None,
            retry_in=retry_in_ms / 1000,
            limit=self.limit or None,
            resource=self.ask.name.text,
        )
