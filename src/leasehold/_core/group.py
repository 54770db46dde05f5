"""All or nothing: how a client takes several resources. A flow, like those of one.

They are claimed in one order, the same for everybody, and whoever waits for one holds only what stands before it: so
nobody can stand in a circle. As many as are free are claimed in one step and one round trip. What is granted is looked
after at once, because the rest may take long; when something before the one that was waited for is lost meanwhile, all
of it is given back and claimed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasehold._core import ops
from leasehold._core.claims import AcquireRequest, OwnLeases, budget_ms, claim, immediate_grant
from leasehold._core.flows import FirstClaim, acquire
from leasehold._core.holding import ALIVE, LOST, Holding, LocalGrant
from leasehold._core.light_typing import Any, Protocol
from leasehold._core.policy import tombstone_ms
from leasehold.errors import InvalidRequest, NotAcquired, OutcomeUnknown, StoreUnavailable

MOST_ROUNDS = 100  # beginnings, before a store that cannot keep what it granted is called unavailable


class GroupCaller(Protocol):
    """Whoever wants all of them, in the order of the asks."""

    def new_owner(self, place: int) -> str:
        """For the claim of that place; known to whoever must clean up."""

    def keep(self, place: int, taken: LocalGrant) -> Holding:
        """It was granted: have it looked after from now on."""


async def acquire_all(
    asks: Sequence[AcquireRequest],
    party: GroupCaller,
    floor: Callable[[], int],
    now: float,
    oneself: OwnLeases | None = None,
) -> list[Holding]:
    """Every one of them, or none: however this ends otherwise, nothing is left. ``wait`` is the first ask's, and for
    all together. ``oneself`` as in ``acquire``."""
    wait = asks[0].wait
    asks = [ask._replace(wait=wait) for ask in asks]
    give_up = None if wait is None else now + wait
    doubt = False
    for _ in range(MOST_ROUNDS):
        taking = GroupAcquisition(asks, party, floor, now, give_up, doubt, oneself)
        try:
            try:
                await taking.claim_all()
            except (NotAcquired, InvalidRequest):
                await taking.give_back()
                raise
            if taking.all_held():
                return taking.held
            await taking.give_back()
        except GeneratorExit:
            raise
        except BaseException as error:
            await taking.leave_nothing(error)
            raise
        now, doubt = taking.now, taking.doubt
    raise StoreUnavailable(f"what was granted was lost {MOST_ROUNDS} times before the rest was: the ttl is too short")


class GroupAcquisition:
    """One go from the first to the last. What may be in the store is always in ``pending`` or in ``held``, or the
    ``acquire`` of the next looks after it: an interrupt between any two lines finds it there."""

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
        self.asks = requests
        self.party = caller
        self.floor = floor
        self.now = now
        self.give_up = give_up
        self.oneself = own_leases
        self.held: list[Holding] = []
        self.pending: list[
            tuple[AcquireRequest, str]
        ] = []  # claims that may have got something which nobody looks after
        self.doubt = in_doubt  # something went unanswered, and is being taken back

    async def claim_all(self) -> None:
        while len(self.held) < len(self.asks) and self.all_held(so_far=True):
            first = await self.claim_free()
            if len(self.held) < len(self.asks) and self.all_held(so_far=True):
                await self.acquire_next(first)

    async def claim_free(self) -> FirstClaim | None:
        """As many as are free, in one step. The answer of the first that is not, or needs more than its claim."""
        asks = self.claimable_together()
        if len(asks) < 2:
            return None
        sent = self.now
        place = len(self.held)
        self.pending = [(ask, self.party.new_owner(place + at)) for at, ask in enumerate(asks)]
        budget = budget_ms(self.give_up, sent)
        claims = tuple([claim(ask, owner, 1, self.floor(), budget) for ask, owner in self.pending])
        try:
            answer = await ops.Group(claims, budget)
        except OutcomeUnknown:
            self.doubt = True
            await self.withdraw(self.pending)  # and go on one by one
            self.pending = []
            return None
        except StoreUnavailable:
            self.pending = []
            raise
        self.now = answer.at
        return await self.apply_replies(answer, sent)

    def claimable_together(self) -> list[AcquireRequest]:
        """What may be claimed in one step from here on: nothing after one that has to close its door first."""
        asks = []
        for ask in self.asks[len(self.held) :]:
            asks.append(ask)
            if ask.at_least_ms:
                break
        return asks

    async def apply_replies(self, answer: ops.TimedReply[ops.Replies], sent: float) -> FirstClaim | None:
        """Keep what is granted, up to the first that is not."""
        del self.pending[len(answer.reply.replies) :]  # what was not tried
        for reply in answer.reply.replies:
            ask, owner = self.pending[0]
            first = FirstClaim(owner, ops.TimedReply(reply, answer.at))  # type: ignore[arg-type]  # claims are answered so
            taken = immediate_grant(ask, owner, sent, first.answer)
            if taken is None:
                await self.withdraw(self.pending[1:])  # they must not be held while this one is waited for
                del self.pending[1:]
                self.now = sent  # what it got counts from there
                return first
            self.held.append(self.party.keep(len(self.held), taken))
            del self.pending[0]
        return None

    async def acquire_next(self, first: FirstClaim | None) -> None:
        """Wait for the next one, as for any other."""
        place = len(self.held)
        ask = self.asks[place]
        if self.give_up is not None and ask.wait:
            ask = ask._replace(wait=max(self.give_up - self.now, 0.0))
        try:
            taken = await acquire(ask, lambda: self.new_owner(ask, place), self.floor, self.now, first, self.oneself)
        except BaseException:
            if first is None or first.used:
                self.pending = []  # it has seen to that
            raise
        self.now = taken.at
        self.held.append(self.party.keep(place, taken))
        self.pending = []

    def new_owner(self, ask: AcquireRequest, place: int) -> str:
        owner = self.party.new_owner(place)
        self.pending = [(ask, owner)]
        return owner

    def all_held(self, so_far: bool = False) -> bool:
        """Is everything held, or everything so far, as of now?"""
        complete = so_far or len(self.held) == len(self.asks)
        return complete and all(one.settle(self.now) in ALIVE for one in self.held)

    # ------------------------------------------------------------ nothing is left

    async def give_back(self) -> None:
        """All that was taken, before the caller hears that it got nothing. Nothing is pending then."""
        await self.withdraw(self.closed())
        try:
            self.now = (await _release(self.parts(closed=False), self.now))[1]
        except OutcomeUnknown:
            self.doubt = True  # it goes on in the background
        self.held = []

    def closed(self) -> list[tuple[AcquireRequest, str]]:
        """What has closed its door (``at_least``). Nobody has worked with it, so it is withdrawn: a release would leave
        the door closed, also to whoever begins anew."""
        asks = {ask.name.text: ask for ask in self.asks}
        ended = [one for one in self.parts(closed=True) if one.begin_release(self.now) is not None]
        return [(asks[one.name.text], one.owner) for one in ended]

    def parts(self, closed: bool) -> list[Holding]:
        return [one for ask, one in zip(self.asks, self.held, strict=False) if bool(ask.at_least_ms) == closed]

    async def leave_nothing(self, error: BaseException) -> None:
        """In the background: nothing may keep whoever was cancelled, and the store may not answer."""
        in_doubt = self.doubt or bool(self.pending or self.held)
        await _later(_withdrawals([*self.pending, *self.closed()]) + _releases(self.parts(closed=False), self.now))
        if in_doubt and isinstance(error, StoreUnavailable):  # "nothing was taken" would not be true
            raise OutcomeUnknown(str(error), resource=error.resource) from error

    async def withdraw(self, claims: Sequence[tuple[AcquireRequest, str]]) -> None:
        self.now = max(self.now, await _later(_withdrawals(claims)))


async def release_all(holdings: Sequence[Holding], now: float) -> list[bool]:
    """Give all of them back in one step; for each whether it was ours until now. What goes unanswered is repeated in
    the background, and may be repeated by the caller."""
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
            ours = {one: one.end_release(step, reply) for (one, step), reply in replies}
    except GeneratorExit:
        raise
    except BaseException as error:
        await _later(_releases(holdings, now))
        if not isinstance(error, (StoreUnavailable, OutcomeUnknown)):
            raise
        if any(holding.phase != LOST for holding in steps):
            raise OutcomeUnknown(
                "the release of several leases was not confirmed; it goes on in the background until they would "
                "have ended, and may be repeated"
            ) from error
    return [ours.get(holding, False) for holding in holdings], now


def _withdrawals(claims: Sequence[tuple[AcquireRequest, str]]) -> list[ops.Defer]:
    """With a tombstone: a claim that arrives later must take nothing."""
    laters = []
    for ask, owner in reversed(claims):
        withdrawal = ops.Withdraw(ask.name.text, owner, tombstone_ms(ask.ttl_ms))
        laters.append(ops.Defer(withdrawal, ask.ttl_ms / 1000))
    return laters


def _releases(holdings: Sequence[Holding], now: float) -> list[ops.Defer]:
    """Of all that is not given back for certain."""
    laters = []
    for holding in reversed(holdings):
        release = holding.begin_release(now)
        if release is not None:
            laters.append(ops.Defer(release, holding.ttl_ms / 1000))
    return laters


async def _later(laters: Sequence[ops.Defer]) -> float:
    """All of them, whatever is thrown meanwhile: a driver keeps each before anything can be. When that was."""
    at, thrown = 0.0, None
    for later in laters:
        try:
            at = (await later).at
        except GeneratorExit:
            raise
        except BaseException as error:
            thrown = error
    if thrown is not None:
        raise thrown
    return at
