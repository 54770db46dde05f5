"""The links to all nodes of a Redlock, as a thread and an event loop use them alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.ops import Withdraw
from leasehold.errors import LeaseholdError
from leasehold.stores.redis import protocol
from leasehold.stores.redis.redlock.answers import Answer, Leave, Outcome, Round
from leasehold.stores.redis.redlock.commands import Batch
from leasehold.stores.redis.redlock.exchange import Exchange, RunningRound
from leasehold.stores.redis.redlock.link import Link
from leasehold.stores.redis.redlock.rounds import RELEASE_SECONDS

if TYPE_CHECKING:
    from leasehold.stores.redis.redlock.store import RedlockStore


class Links:
    """One link for each node."""

    def __init__(
        self, store: RedlockStore, counts: bool = True, before_close: Callable[[int], object] = lambda fileno: None
    ) -> None:
        self._withdrawals = store.withdrawals
        self._now = store.clock.now
        self.each = [Link(node, counts, before_close) for node in store.nodes]

    def submit(self, running: RunningRound) -> list[Exchange | None]:
        """Send what a round requests. Its exchanges are to be ended with ``abandon``."""
        exchanges: list[Exchange | None] = []
        now, sent_at, request = time.monotonic(), self._now(), running.request
        follow = None if request.follow is None else partial(self._follow, request)
        for place, batch in enumerate(request.batches):
            if batch is None:
                exchanges.append(None)
                continue
            link = self.each[place]
            exchange = Exchange(place, link.node.taught(batch), running, sent_at, follow)
            exchanges.append(exchange)
            link.submit(exchange, now)
        return exchanges

    def abandon(self, exchanges: list[Exchange | None]) -> None:
        """The round is over, and answers are still to come."""
        for link, exchange in zip(self.each, exchanges, strict=False):  # an interrupt may have come between two
            if exchange is not None and not exchange.done:
                link.abandon(exchange)

    def _follow(self, request: Round, place: int, outcome: Outcome) -> None:
        if request.follow is not None:
            for op in request.follow(place, outcome):
                self._withdrawals.add(place, op, time.monotonic() + RELEASE_SECONDS)

    def leave(self, request: Leave) -> bool:
        """Over an open link withdrawals leave at once. The others are for the background: nobody may ever use those
        links again. True if any has left."""
        now, until = time.monotonic(), time.monotonic() + request.seconds
        left = False
        for place, op in enumerate(request.withdrawals):
            if op is None:
                continue
            link = self.each[place]
            if not link.is_open():
                self._withdrawals.add(place, op, until)
                continue
            batch = Batch([protocol.command(op)])
            # One that is late may be about to reply that it has lost its scripts.
            batch = batch.with_texts(set()) if link.is_late() else link.node.taught(batch)
            exchange = Exchange(place, batch, NOBODY_WAITS, self._now(), partial(self._left, op, until))
            exchange.wanted = False
            link.submit(exchange, now)
            left = True
        return left

    def _left(self, op: Withdraw, until: float, place: int, outcome: Outcome) -> None:
        if isinstance(outcome, LeaseholdError) or isinstance(outcome[0], Exception):
            self._withdrawals.add(place, op, until)

    def owe(self) -> bool:
        """True while something is under way whose outcome somebody has to know."""
        return any(link.must_arrive() for link in self.each)

    def reset(self) -> None:
        """After an interrupt no link is used again."""
        for link in self.each:
            link.reset()


def _ignore(place: int, answer: Answer) -> bool:
    return True


NOBODY_WAITS = RunningRound(Round([], 0, _ignore))
