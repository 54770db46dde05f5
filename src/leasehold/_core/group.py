"""All or nothing: how a client acquires several resources. A flow, like those of one resource.

They are claimed in one order, the same for every client, and a client that waits for one of them holds only those that
come before it: so no circle of waiters can arise. As many as are free are claimed in one step and one round trip. What
is granted is renewed at once, because the rest may take long; when one of them is lost while a later one is waited for,
all of them are given back and claimed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from leasehold._core import ops
from leasehold._core.claims import AcquireRequest, OwnLeases, budget_ms, claim, immediate_grant
from leasehold._core.flows import FirstClaim, acquire
from leasehold._core.holding import ALIVE, LOST, Holding, LocalGrant
from leasehold._core.light_typing import Any, Protocol
from leasehold._core.policy import tombstone_ms
from leasehold.errors import InvalidRequest, NotAcquired, OutcomeUnknown, StoreUnavailable

MOST_ROUNDS = 100  # passes, before a store that cannot keep what it granted is called unavailable


class GroupCaller(Protocol):
    """The caller that wants all of them. A place is a number in the order of the requests."""

    def new_owner(self, place: int) -> str:
        """An owner for the claim of that place, recorded for clean-up."""

    def keep(self, place: int, grant: LocalGrant) -> Holding:
        """It was granted: have it renewed from now on."""


async def acquire_all(
    requests: Sequence[AcquireRequest],
    caller: GroupCaller,
    floor: Callable[[], int],
    now: float,
    own_leases: OwnLeases | None = None,
) -> list[Holding]:
    """Every one of them, or none: however this ends otherwise, nothing is left. ``wait`` is that of the first request,
    and for all together. ``own_leases`` as in ``acquire``."""
    wait = requests[0].wait
    requests = [request._replace(wait=wait) for request in requests]
    give_up = None if wait is None else now + wait
    in_doubt = False
    for _ in range(MOST_ROUNDS):
        group = GroupAcquisition(requests, caller, floor, now, give_up, in_doubt, own_leases)
        try:
            try:
                await group.claim_all()
            except (NotAcquired, InvalidRequest):
                await group.give_back()
                raise
            if group.all_held():
                return group.held
            await group.give_back()
        except GeneratorExit:
            raise
        except BaseException as error:
            await group.leave_nothing(error)
            raise
        now, in_doubt = group.now, group.in_doubt
    raise StoreUnavailable(f"what was granted was lost {MOST_ROUNDS} times before the rest was: the ttl is too short")


class GroupAcquisition:
    """One pass from the first to the last. What may be in the store is always in ``pending`` or in ``held``, or the
    ``acquire`` of the next one cleans it up: an interrupt between any two lines finds it there."""

    def __init__(
        self,
        requests: Sequence[AcquireRequest],
        caller: GroupCaller,
        floor: Callable[[], int],
        now: float,
        give_up: float | None,
        in_doubt: bool,
        own_leases: OwnLeases | None,
    ) -> None:
        self.requests = requests
        self.caller = caller
        self.floor = floor
        self.now = now
        self.give_up = give_up
        self.own_leases = own_leases
        self.held: list[Holding] = []
        self.pending: list[tuple[AcquireRequest, str]] = []  # claims that may have been granted and are not held yet
        self.in_doubt = in_doubt  # something went unanswered, and is being withdrawn

    async def claim_all(self) -> None:
        while len(self.held) < len(self.requests) and self.all_held(so_far=True):
            first = await self.claim_free()
            if len(self.held) < len(self.requests) and self.all_held(so_far=True):
                await self.acquire_next(first)

    async def claim_free(self) -> FirstClaim | None:
        """Claim as many as are free, in one step. Returns the answer of the first that is not free, or that needs more
        than its claim."""
        requests = self.claimable_together()
        if len(requests) < 2:
            return None
        sent = self.now
        first = len(self.held)
        self.pending = [(request, self.caller.new_owner(first + at)) for at, request in enumerate(requests)]
        budget = budget_ms(self.give_up, sent)
        claims = tuple([claim(request, owner, 1, self.floor(), budget) for request, owner in self.pending])
        try:
            answer = await ops.Group(claims, budget)
        except OutcomeUnknown:
            self.in_doubt = True
            await self.withdraw(self.pending)  # and go on one by one
            self.pending = []
            return None
        except StoreUnavailable:
            self.pending = []
            raise
        self.now = answer.at
        return await self.apply_replies(answer, sent)

    def claimable_together(self) -> list[AcquireRequest]:
        """What may be claimed in one step from here on: nothing after one that has to be confirmed first."""
        requests = []
        for request in self.requests[len(self.held) :]:
            requests.append(request)
            if request.at_least_ms or request.durability:
                break
        return requests

    async def apply_replies(self, answer: ops.TimedReply[ops.Replies], sent: float) -> FirstClaim | None:
        """Keep what is granted, up to the first that is not."""
        del self.pending[len(answer.reply.replies) :]  # the store did not try these
        for reply in answer.reply.replies:
            request, owner = self.pending[0]
            first = FirstClaim(owner, ops.TimedReply(reply, answer.at))  # type: ignore[arg-type]  # claims are answered so
            grant = immediate_grant(request, owner, sent, reply, answer.at)
            if grant is None:
                await self.withdraw(self.pending[1:])  # they must not be held while this one is waited for
                del self.pending[1:]
                self.now = sent  # its grant counts from there
                return first
            self.held.append(self.caller.keep(len(self.held), grant))
            del self.pending[0]
        return None

    async def acquire_next(self, first: FirstClaim | None) -> None:
        """Wait for the next one, as for a single resource."""
        place = len(self.held)
        request = self.requests[place]
        if self.give_up is not None and request.wait:
            request = request._replace(wait=max(self.give_up - self.now, 0.0))
        new_owner = partial(self.new_owner, request, place)
        try:
            grant = await acquire(request, new_owner, self.floor, self.now, first, self.own_leases)
        except BaseException:
            if first is None or first.used:
                self.pending = []  # acquire has cleaned up
            raise
        self.now = grant.at
        self.held.append(self.caller.keep(place, grant))
        self.pending = []

    def new_owner(self, request: AcquireRequest, place: int) -> str:
        owner = self.caller.new_owner(place)
        self.pending = [(request, owner)]
        return owner

    def all_held(self, so_far: bool = False) -> bool:
        """Is everything held, or everything so far, as of now?"""
        complete = so_far or len(self.held) == len(self.requests)
        return complete and all(one.settle(self.now) in ALIVE for one in self.held)

    # ------------------------------------------------------------ nothing is left

    async def give_back(self) -> None:
        """Give back all that was granted, before the caller learns that it got nothing. Nothing is pending then."""
        await self.withdraw(self.closed())
        try:
            self.now = (await _release(self.parts(closed=False), self.now))[1]
        except OutcomeUnknown:
            self.in_doubt = True  # it goes on in the background
        self.held = []

    def closed(self) -> list[tuple[AcquireRequest, str]]:
        """Those that have closed their door (``at_least``). No work was done with them, so they are withdrawn: a
        release would leave the door closed, also to a client that begins anew."""
        requests = {request.name.text: request for request in self.requests}
        ended = [one for one in self.parts(closed=True) if one.begin_release(self.now) is not None]
        return [(requests[one.name.text], one.owner) for one in ended]

    def parts(self, closed: bool) -> list[Holding]:
        held = zip(self.requests, self.held, strict=False)
        return [one for request, one in held if bool(request.at_least_ms) == closed]

    async def leave_nothing(self, error: BaseException) -> None:
        """In the background: a cancelled task must not be kept waiting, and the store may not answer."""
        in_doubt = self.in_doubt or bool(self.pending or self.held)
        await defer(withdrawals([*self.pending, *self.closed()]) + _releases(self.parts(closed=False), self.now))
        if in_doubt and isinstance(error, StoreUnavailable):  # "nothing was taken" would not be true
            raise OutcomeUnknown(str(error), resource=error.resource) from error

    async def withdraw(self, claims: Sequence[tuple[AcquireRequest, str]]) -> None:
        self.now = max(self.now, await defer(withdrawals(claims)))


async def release_all(holdings: Sequence[Holding], now: float) -> list[bool]:
    """Give all of them back in one step. Returns for each whether it was ours until now. A release that goes
    unanswered is repeated in the background, and may be repeated by the caller."""
    return (await _release(holdings, now))[0]


async def _release(holdings: Sequence[Holding], now: float) -> tuple[list[bool], float]:
    steps: dict[Holding, ops.Release] = {}
    ours: dict[Holding, bool] = {}
    try:
        for holding in holdings:
            release = holding.begin_release(now)
            if release is not None:
                steps[holding] = release
        if steps:
            answer: ops.TimedReply[Any] = await ops.Group(tuple(steps.values()))
            now = answer.at
            replies = zip(steps.items(), answer.reply.replies, strict=True)
            ours = {one: one.end_release(step, reply, now) for (one, step), reply in replies}
    except GeneratorExit:
        raise
    except BaseException as error:
        await defer(_releases(holdings, now))
        if not isinstance(error, (StoreUnavailable, OutcomeUnknown)):
            raise
        if any(holding.phase != LOST for holding in steps):
            raise OutcomeUnknown(
                "the release of several leases was not confirmed; it goes on in the background until they would "
                "have ended, and may be repeated"
            ) from error
    return [ours.get(holding, False) for holding in holdings], now


def withdrawals(claims: Sequence[tuple[AcquireRequest, str]]) -> list[ops.Defer]:
    """With a tombstone: a claim that arrives later must get nothing."""
    deferred = []
    for request, owner in reversed(claims):
        forget_ms = tombstone_ms(request.ttl_ms)
        withdrawal = ops.Withdraw(resource=request.name.text, owner=owner, forget_ms=forget_ms)
        deferred.append(ops.Defer(withdrawal, request.ttl_ms / 1000))
    return deferred


def _releases(holdings: Sequence[Holding], now: float) -> list[ops.Defer]:
    """The releases of all that is not given back for certain."""
    deferred = []
    for holding in reversed(holdings):
        release = holding.begin_release(now)
        if release is not None:
            deferred.append(ops.Defer(release, holding.ttl_ms / 1000))
    return deferred


async def defer(deferred: Sequence[ops.Defer]) -> float:
    """Defer all of them, whatever is thrown meanwhile: a driver keeps each before anything can be thrown. Returns the
    time of the last."""
    at, thrown = 0.0, None
    for defer in deferred:
        try:
            at = (await defer).at
        except GeneratorExit:
            raise
        except BaseException as error:
            thrown = error
    if thrown is not None:
        raise thrown
    return at
