"""All or nothing: how a client takes several resources. A flow, like those of one.

They are claimed in one order, the same for everybody, and whoever waits for one holds only what stands before it: so
nobody can stand in a circle. As many as are free are claimed in one step and one round trip. What is granted is looked
after at once, because the rest may take long; when something before the one that was waited for is lost meanwhile, all
of it is given back and claimed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasehold.core import ops
from leasehold.core.flows import First, acquire
from leasehold.core.holding import ALIVE, LOST, Holding
from leasehold.core.line import Ask, at_once, budget_ms, claim
from leasehold.core.policy import tombstone_ms
from leasehold.core.taken import Taken
from leasehold.core.typed import Any, Protocol
from leasehold.errors import InvalidRequest, NotAcquired, OutcomeUnknown, StoreUnavailable

MOST_ROUNDS = 100  # beginnings, before a store that cannot keep what it granted is called unavailable


class Party(Protocol):
    """Whoever wants all of them, in the order of the asks."""

    def new_owner(self, place: int) -> str:
        """For the claim of that place; known to whoever must clean up."""

    def keep(self, place: int, taken: Taken) -> Holding:
        """It was granted: have it looked after from now on."""


async def acquire_all(asks: Sequence[Ask], party: Party, floor: Callable[[], int], now: float) -> list[Holding]:
    """Every one of them, or none: however this ends otherwise, nothing is left. ``wait`` is the first ask's, and for
    all together."""
    give_up = None if asks[0].wait is None else now + asks[0].wait
    for _ in range(MOST_ROUNDS):
        taking = Taking(asks, party, floor, now, give_up)
        try:
            await taking.take()
        except GeneratorExit:
            raise
        except (NotAcquired, InvalidRequest):
            await taking.give_back()
            raise
        except BaseException:
            await taking.give_back_later()
            raise
        if taking.whole():
            return taking.held
        await taking.give_back()
        now = taking.now
    raise StoreUnavailable(f"what was granted was lost {MOST_ROUNDS} times before the rest was: the ttl is too short")


class Taking:
    """One go from the first to the last."""

    def __init__(
        self, asks: Sequence[Ask], party: Party, floor: Callable[[], int], now: float, give_up: float | None
    ) -> None:
        self.asks = asks
        self.party = party
        self.floor = floor
        self.now = now
        self.give_up = give_up
        self.held: list[Holding] = []
        self.pending: list[tuple[Ask, str]] = []  # claims of which nobody knows what came of them

    async def take(self) -> None:
        while len(self.held) < len(self.asks) and self.whole(so_far=True):
            first = await self.at_once()
            if len(self.held) < len(self.asks) and self.whole(so_far=True):
                await self.next(first)

    async def at_once(self) -> First | None:
        """As many as are free, in one step. The answer of the first that is not, or needs more than its claim."""
        asks = self.together()
        if len(asks) < 2:
            return None
        sent = self.now
        place = len(self.held)
        self.pending = [(ask, self.party.new_owner(place + at)) for at, ask in enumerate(asks)]
        budget = budget_ms(self.give_up, sent)
        claims = tuple([claim(ask, owner, 1, self.floor(), budget) for ask, owner in self.pending])
        try:
            answer = await ops.Together(claims, budget)
        except OutcomeUnknown:
            await self.withdraw_pending()  # and go on one by one
            return None
        except StoreUnavailable:
            self.pending = []
            raise
        self.now = answer.at
        return await self.hear(answer, sent)

    def together(self) -> list[Ask]:
        """What may be claimed in one step from here on: nothing after one that has to close its door first."""
        asks = []
        for ask in self.asks[len(self.held) :]:
            asks.append(ask)
            if ask.at_least_ms:
                break
        return asks

    async def hear(self, answer: ops.Answer[ops.Replies], sent: float) -> First | None:
        """Keep what is granted, up to the first that is not."""
        del self.pending[len(answer.reply.replies) :]  # what was not tried
        for reply in answer.reply.replies:
            ask, owner = self.pending[0]
            first = First(owner, ops.Answer(reply, answer.at))  # type: ignore[arg-type]  # claims are answered so
            taken = at_once(ask, owner, sent, first.answer)
            if taken is None:
                del self.pending[0]
                await self.withdraw_pending()  # later ones, which must not be held while this one is waited for
                self.now = sent  # what it got counts from there
                return first
            self.held.append(self.party.keep(len(self.held), taken))
            del self.pending[0]
        return None

    async def next(self, first: First | None) -> None:
        """Wait for the next one, as for any other."""
        place = len(self.held)
        wait = None if self.give_up is None else max(self.give_up - self.now, 0.0)
        ask = self.asks[place]
        taken = await acquire(
            ask if ask.wait == 0 else ask._replace(wait=wait),
            lambda: self.party.new_owner(place),
            self.floor,
            self.now,
            first,
        )
        self.now = taken.at
        self.pending = [(ask, taken.owner)]  # until it is kept: a coordinator that was closed meanwhile keeps nothing
        self.held.append(self.party.keep(place, taken))
        self.pending = []

    def whole(self, so_far: bool = False) -> bool:
        """Is everything held, or everything so far, as of now?"""
        complete = so_far or len(self.held) == len(self.asks)
        return complete and all(one.settle(self.now) in ALIVE for one in self.held)

    async def give_back(self) -> None:
        """At once: whoever tries again must not find himself in his way."""
        await self.withdraw_pending()
        try:
            await release_all(self.held, self.now)
        except (StoreUnavailable, OutcomeUnknown):
            pass  # it goes on in the background

    async def give_back_later(self) -> None:
        """In the background: nothing may keep whoever was cancelled."""
        await self.withdraw_pending()
        for holding in reversed(self.held):
            release = holding.begin_release(self.now)
            if release is not None:
                await ops.Later(release, holding.ttl_ms / 1000)

    async def withdraw_pending(self) -> None:
        pending, self.pending = self.pending, []
        for ask, owner in reversed(pending):
            withdrawal = ops.Withdraw(ask.name.text, owner, tombstone_ms(ask.ttl_ms))
            await ops.Later(withdrawal, ask.ttl_ms / 1000)


async def release_all(holdings: Sequence[Holding], now: float) -> list[bool]:
    """Give all of them back in one step; for each whether it was ours until now. What goes unanswered is repeated in
    the background."""
    releases = {holding: holding.begin_release(now) for holding in holdings}
    steps = {holding: release for holding, release in releases.items() if release is not None}
    ours: dict[Holding, bool] = {}
    if steps:
        try:
            answer: ops.Answer[Any] = await ops.Together(tuple(steps.values()))
        except GeneratorExit:
            raise
        except BaseException as error:
            for holding, release in steps.items():
                await ops.Later(release._replace(again=True), holding.ttl_ms / 1000)
            if not isinstance(error, (StoreUnavailable, OutcomeUnknown)):
                raise
            if any(holding.phase != LOST for holding in steps):
                raise OutcomeUnknown(
                    "the release of several leases was not confirmed; it goes on in the background until they would "
                    "have ended, and may be repeated"
                ) from error
        else:
            ours = {one: one.end_release(reply) for one, reply in zip(steps, answer.reply.replies, strict=True)}
    return [ours.get(holding, False) for holding in holdings]
