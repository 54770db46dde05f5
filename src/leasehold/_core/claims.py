"""Claims: one owner's way from its first claim to its grant, or out of the queue again.

It sends a claim until the store knows it, and beats from then on; in between it is parked until a push arrives or the
next beat is due. Every send is recorded with a local time not later than its sending, because that is what a deadline
may count from.
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.holding import LocalGrant
from leasehold._core.light_typing import Callable, NamedTuple, Protocol, Sequence, TypeAlias, make_tuple
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
from leasehold.errors import InvalidRequest, NotAcquired, OutcomeUnknown, StoreUnavailable, Unsupported

# ---------------------------------------------------------------- requests


class AcquireRequest(NamedTuple):
    """What a caller wants to acquire, and how."""

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
    durability: str = ""


def claim(request: AcquireRequest, owner: str, beat: int, floor: int, budget_ms: int) -> ops.Claim:
    """The claim of this owner for what was requested. Every acquire makes one: by position, which is fast."""
    name, ttl_ms, wait, _, _, rule, permits, limit, address, holder_address, meta, delay_ms, _ = request
    return make_tuple(
        ops.Claim,
        (
            name.text, owner, ttl_ms, beat, floor, wait != 0, rule, permits, limit, address, holder_address, meta,
            delay_ms, budget_ms,
        ),
    )  # fmt: skip


class ClaimTemplate:
    """What is the same in all first claims of a lock over one connection, and what that connection makes of it."""

    __slots__ = ("packed", "request", "used")

    def __init__(self, request: AcquireRequest) -> None:
        self.request = request
        self.packed: Callable[[str, int], bytes] | None = None  # (owner, floor) -> the bytes to send
        self.used = False  # for the first claim nothing is packed: most of ten thousand locks are used once

    def claim(self, owner: str, floor: int, budget_ms: int) -> ops.Claim:
        """The first claim of this owner."""
        return claim(self.request, owner, 1, floor, budget_ms)


def budget_ms(give_up: float | None, now: float) -> int:
    """How long one call may take for a caller that gives up at ``give_up``, seen from ``now``."""
    if give_up is None:
        return BUDGET_MS
    return int(min(BUDGET_MS, max(LEAST_BUDGET_MS, (give_up - now) * 1000)))


def immediate_grant(request: AcquireRequest, owner: str, sent: float, reply: ops.Reply, at: float) -> LocalGrant | None:
    """Fast path: the grant, when the first claim got one at ``at`` and nothing else has to be sent."""
    if type(reply) is not ops.Granted or request.at_least_ms or request.durability:
        return None
    unanswered = False
    fence, remaining_ms, slots, limit, _ = reply  # by position, as below: keywords are slow, and this is the fast path
    grant = LocalGrant(owner, fence, request.ttl_ms, sent, remaining_ms, at, unanswered, request.rule, slots, limit)
    return grant if (grant.stop_at if request.renews else grant.deadline) > at else None


def refusal(request: AcquireRequest, reply: ops.Rejected) -> InvalidRequest:
    """The error of a claim that the store would never grant."""
    advice = ": ask for fewer, or store a higher limit with resize()" if request.permits > 1 else ""
    return InvalidRequest(f"{request.name.label}: {reply.why}{advice}", resource=request.name.text)


# ---------------------------------------------------------------- self-deadlock
#
# A caller that waits without an end, inside the body of its own lease, for that lease to end waits for ever: nothing
# else gives the lease back, and it is renewed meanwhile. That is a mistake in a program, and an error. To try, or to
# wait for a while, is no mistake: both end by themselves, with a hint.


UPGRADE = (
    "It cannot write before it has stopped: two readers who both wait to write would wait for each other (deadlock). "
    "Release the read lease and acquire write(), then look again at what you read; or begin with write() and "
    "downgrade()"
)


class OwnLease(NamedTuple):
    """A lease of the same thread or task that now waits. It is ``lasting`` inside an open body, when only the end of
    that body is to end it."""

    rule: str
    slots: tuple[int, ...]
    lasting: bool
    leads: bool = False  # it is a term of an election


class OwnLeases(Protocol):
    """Knows what the calling thread or task holds; the runtime's engine does."""

    def own(self, name: Name) -> Sequence[OwnLease]:
        """What the calling thread or task holds of this resource now."""


def self_deadlock(request: AcquireRequest, own: Sequence[OwnLease], limit: int) -> InvalidRequest | None:
    """The error of a wait without an end that would never be over. A lease that is not lasting may be given back by
    another thread or task, or end: to wait for it is right."""
    lasting = [one for one in own if one.lasting]
    if not _shut_out(request, lasting, limit):
        return None
    holds, instead = _advice(request, lasting, limit)
    return InvalidRequest(
        f"{request.name.label} would be waited for for ever: this thread or task {holds} itself, in a with body around "
        f"this call. {instead}",
        resource=request.name.text,
    )


def self_deadlock_hint(request: AcquireRequest, own: Sequence[OwnLease], limit: int) -> str:
    """What to add to the error of a wait that is over, when a lease of the caller stood in the way."""
    if not _shut_out(request, own, limit):
        return ""
    holds, instead = _advice(request, own, limit)
    return f". This thread or task {holds} itself. {instead}"


def _shut_out(request: AcquireRequest, own: Sequence[OwnLease], limit: int) -> bool:
    """Would this be refused if there were no other holders?"""
    seats = [Door(rule=one.rule, slots=one.slots, until_ms=0) for one in own]
    claim = Waiter(owner="", ttl_ms=request.ttl_ms, beat=0, beat_ms=0, permits=request.permits)
    return bool(seats) and RULES[request.rule](seats, claim, limit) is None


def _advice(request: AcquireRequest, own: Sequence[OwnLease], limit: int) -> tuple[str, str]:
    """What the caller holds, and what it can do instead."""
    rules = {one.rule for one in own}
    if any(one.leads for one in own):
        return "leads it", "End that term first, or stand for the next one in another thread or task"
    if rules == {SEMAPHORE} and request.rule == SEMAPHORE:
        has = sum(len(one.slots) for one in own)
        instead = f"There are never {request.permits} more: give some back first, or store a higher limit with resize()"
        return f"has {has} of {limit} permits", instead
    if SEMAPHORE in rules or request.rule == SEMAPHORE:
        return "holds it with another primitive", "Give that back first, or use another name for the one of them"
    if READ in rules:
        return "reads it", UPGRADE
    if request.rule == MUTEX:
        return "holds it", "Take it once, outside, or with rlock(), which enters it again"
    if MUTEX in rules:
        return "holds it with lock() or rlock()", "A read-write lock cannot enter that again: use write() there"
    return "writes it", "Take it once, outside, or with reentrant=True, which enters it again as rlock() does"


# ---------------------------------------------------------------- the pending claim


ClaimAnswer: TypeAlias = ops.TimedReply[ops.ClaimReply] | ops.TimedReply[ops.BeatReply]


class PendingClaim:
    """One owner's claim from its first send on, which was at ``now``: what was sent when, and what may still arrive."""

    __slots__ = (
        "beat",
        "failing_since",
        "floor",
        "give_up",
        "known",
        "limit",
        "now",
        "own_leases",
        "owner",
        "push",
        "request",
        "sent",
        "turned_away",
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
        self.request = request
        self.owner = owner
        self.floor = floor
        self.now = now
        self.give_up = give_up
        self.own_leases = own_leases
        self.known = False  # the store has this owner, waiting or granted
        self.unanswered = 1  # claims that may still be delivered
        self.beat = 1
        self.sent = {1: now}  # beat -> a local time not later than its sending
        self.limit = 0  # of a semaphore: the limit that others go by, when it differs from the requested one
        self.push: ops.Push | None = None  # the last one that arrived, until it is read
        self.failing_since: float | None = None  # since when the store has not answered
        self.turned_away = False  # it was refused by a store that has no queue

    async def wait_for_grant(self, answer: ClaimAnswer | None) -> LocalGrant | None:
        """Go on from the answer to the first claim, if there was one, to the grant. None when this owner's claim is
        gone and another owner must claim."""
        while True:
            grant = None
            if answer is not None:
                reply = self.apply_reply(answer)
                if isinstance(reply, ops.Granted):
                    grant = self.usable_grant(reply.fence, self.beat, reply.remaining_ms, reply.slots)
                    if grant is None:  # too little time is left to begin work
                        await self.withdraw()
                        return None
                elif isinstance(reply, ops.Queued):
                    await self.wait_in_queue(reply)
                elif isinstance(reply, ops.Busy) and reply.again_ms and self.request.wait != 0:
                    await self.wait_without_queue(reply)
                    return None
                else:
                    self.raise_refusal(reply)
                    return None
            if grant is None and self.push is not None:
                push = self.push
                grant = self.usable_grant(push.fence, push.beat, push.remaining_ms, push.slots, push.last)
                self.push = None  # a push that was read too late is a hint to beat, nothing more (trap 41)
            if grant is not None:
                confirms = self.request.at_least_ms or self.request.durability
                return await self.confirm(grant) if confirms else grant
            answer = await self.send_again()

    # ------------------------------------------------------------ requests to the store

    async def send_again(self) -> ClaimAnswer | None:
        """Send a claim until the store knows this owner, a beat from then on. None: no answer this time."""
        self.beat += 1
        self.sent[self.beat] = self.now
        try:
            return await self.heartbeat() if self.known else await self.claim()
        except (StoreUnavailable, OutcomeUnknown) as error:
            await self.handle_outage(error)
            return None

    def claim(self) -> ops.Claim:
        self.unanswered += 1
        return claim(self.request, self.owner, self.beat, self.floor(), budget_ms(self.give_up, self.now))

    def heartbeat(self) -> ops.Beat:
        oldest = next(iter(self.sent))
        if self.sent[oldest] + forgotten_after_ms(self.request.ttl_ms) / 1000 < self.now:
            del self.sent[oldest]  # no grant names a beat as old as that
        return ops.Beat(
            resource=self.request.name.text,
            owner=self.owner,
            beat=self.beat,
            floor=self.floor(),
            budget_ms=budget_ms(self.give_up, self.now),
        )

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
        """Other claims come first. Only here, where the caller has to wait, does it matter what it holds already."""
        own = () if self.own_leases is None else self.own_leases.own(self.request.name)
        limit = reply.limit or self.request.limit
        if self.out_of_time():
            await self.withdraw()
            raise self.not_acquired(reply.holder, reply.free_in_ms, self_deadlock_hint(self.request, own, limit))
        if own and self.give_up is None and (error := self_deadlock(self.request, own, limit)) is not None:
            await self.withdraw()
            raise error
        await self.park(self.next_beat(reply))

    async def wait_without_queue(self, reply: ops.Busy) -> None:
        """The store has no queue: this owner's claim is over, and after a while another owner claims."""
        self.turned_away = True
        own = () if self.own_leases is None else self.own_leases.own(self.request.name)
        limit = reply.limit or self.request.limit
        if self.out_of_time():
            raise self.not_acquired(reply.holder, reply.retry_in_ms, self_deadlock_hint(self.request, own, limit))
        if own and self.give_up is None and (error := self_deadlock(self.request, own, limit)) is not None:
            raise error
        await self.park(self.now + reply.again_ms / 1000)

    async def handle_outage(self, error: Exception) -> None:
        """The store does not answer. A place in the queue outlives that for a while (10 L); a first claim is only
        repeated when it may have won (trap 10)."""
        if not self.known:
            if isinstance(error, StoreUnavailable):  # a definite no; after OutcomeUnknown the claim stays in doubt
                self.unanswered -= 1
            if not self.unanswered:
                raise error
        self.failing_since = self.now if self.failing_since is None else self.failing_since
        ttl_ms = self.request.ttl_ms
        await self.park(self.now + retry_beat_after(ttl_ms, self.now - self.failing_since))
        patience_ms = forgotten_after_ms(ttl_ms) if self.known else 2 * BUDGET_MS
        if self.push is None and (self.out_of_time() or self.now > self.failing_since + patience_ms / 1000):
            raise error

    async def park(self, until: float) -> None:
        """Wait for a push, never without an end (trap 24)."""
        if self.give_up is not None:
            until = min(until, self.give_up)
        answer = await ops.Park(self.owner, until)
        self.now = answer.at
        self.push = answer.reply

    async def confirm(self, grant: LocalGrant) -> LocalGrant | None:
        """A first Renew before the grant is used. ``at_least``: the holder itself closes the door, so that a grant
        which never reached its owner closes nothing. ``durability``: the Renew is confirmed by others, or the lease is
        given back."""
        request, sent = self.request, self.now
        left_ms = max(int((grant.deadline - sent) * 1000), 1)
        try:
            answer = await ops.Renew(
                resource=request.name.text,
                owner=self.owner,
                fence=grant.fence,
                ttl_ms=request.ttl_ms,
                closed_ms=request.at_least_ms,
                budget_ms=min(BUDGET_MS, left_ms),
                durability=request.durability,
            )
        except (StoreUnavailable, Unsupported):
            if request.durability:
                await self.withdraw()
            raise
        self.now = answer.at
        if isinstance(answer.reply, ops.NotYours):
            self.known = False
            return None
        self.sent[self.beat] = sent
        closed = self.usable_grant(grant.fence, self.beat, answer.reply.remaining_ms, grant.slots)
        if closed is None:  # the answer took so long that the lease is over
            await self.withdraw()
        return closed

    # ------------------------------------------------------------ withdrawal

    async def withdraw(self) -> None:
        """Give up the place, even if it was granted meanwhile (trap 25)."""
        try:
            answer = await self.withdrawal()
        except (StoreUnavailable, OutcomeUnknown):
            await self.withdraw_later()
        else:
            self.now = answer.at
        self.known = False
        self.unanswered = 0

    async def withdraw_later(self) -> None:
        """Withdraw in the background, until the lease would be over anyway."""
        if self.known or self.unanswered:
            await ops.Defer(self.withdrawal(), self.request.ttl_ms / 1000)

    def withdrawal(self) -> ops.Withdraw:
        """With a tombstone when a claim may still arrive after it: that claim must get nothing."""
        return ops.Withdraw(
            resource=self.request.name.text,
            owner=self.owner,
            forget_ms=tombstone_ms(self.request.ttl_ms) if self.unanswered else 0,
            budget_ms=LEAST_BUDGET_MS,
        )

    # ------------------------------------------------------------ decisions

    def usable_grant(
        self, fence: int, beat: int, remaining_ms: int, slots: tuple[int, ...], last_fence: int = 0
    ) -> LocalGrant | None:
        """The grant that answers ``beat``, if there is time left to work in. Its deadline counts from when that
        beat was sent: neither the last one sent nor the last one acknowledged would be safe (trap 41)."""
        sent = self.sent.get(beat)
        if sent is None:
            return None
        grant = LocalGrant(
            owner=self.owner,
            fence=fence,
            ttl_ms=self.request.ttl_ms,
            sent=sent,
            remaining_ms=remaining_ms,
            at=self.now,
            unanswered=self.unanswered > 0,
            rule=self.request.rule,
            slots=slots,
            limit=self.limit,
        )
        grant.last_fence = last_fence
        return grant if grant.usable(self.request.renews) else None

    def raise_refusal(self, reply: ops.Busy | ops.NoClaim | ops.Rejected) -> None:
        """Raise what a refusal means. Returns for NoClaim: another owner may try."""
        self.known = False
        if isinstance(reply, ops.Busy):
            raise self.not_acquired(reply.holder, reply.retry_in_ms)
        if isinstance(reply, ops.Rejected):
            raise refusal(self.request, reply)

    def next_beat(self, reply: ops.Queued) -> float:
        after_ms = next_beat_ms(self.request.ttl_ms, reply.ahead, reply.free_in_ms, reply.pushable)
        if reply.ahead:
            return next_common_beat(self.now, after_ms, self.request.holder_address)
        return self.now + after_ms / 1000

    def out_of_time(self) -> bool:
        return self.give_up is not None and self.now >= self.give_up

    def not_acquired(self, holder: str, retry_in_ms: int, hint: str = "") -> NotAcquired:
        left = f"{retry_in_ms / 1000:.3f} s"
        by = f"held by {holder}; its lease expires in {left} unless it is renewed"
        closed = f"not free for {left}" if retry_in_ms else "not free"  # without a holder: its door is closed
        return NotAcquired(
            f"{self.request.name.label} is {by if holder else closed}{hint}",
            holder=holder or None,
            retry_in=retry_in_ms / 1000,
            limit=self.limit or None,
            resource=self.request.name.text,
        )
