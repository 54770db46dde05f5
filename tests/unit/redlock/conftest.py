"""A Redlock without servers: the flows are driven by hand, and replies are what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from leasehold._core import ops
from leasehold.stores.redis.redlock.answers import Answer, Leave, Round
from leasehold.stores.redis.redlock.quorum import Quorum
from leasehold.stores.redis.redlock.rounds import Rounds

HOUR_US = 3_600_000_000
NOW_US = 1_800_000_000_000_000


class Play:
    """Three or five nodes that have been up for an hour, and what was requested of them."""

    def __init__(self, size: int = 3, longest_ttl_ms: int = 300_000) -> None:
        self.quorum = Quorum([f"node{place}:6379" for place in range(size)], longest_ttl_ms)
        self.quorum.met = True
        for place in range(size):
            self.quorum.introduce(place, f"run{place}", 3600, 0.0)
        self.rounds = Rounds(self.quorum, longest_ttl_ms, lambda: 25, lambda: 10.0)
        self.requests: list[Round | Leave] = []

    def run(self, op: ops.StoreOp, *replies: Sequence[Any]) -> Any:
        """The reply to the op when the nodes reply so, round after round. None for a node: nothing was sent there."""
        flow, left = self.rounds.execute(op), list(replies)
        try:
            while True:
                request = next(flow)
                self.requests.append(request)
                if isinstance(request, Round):
                    answer(request, left.pop(0))
        except StopIteration as end:
            return end.value

    def sent(self) -> list[list[bool]]:
        """For each round the nodes that got something."""
        return [[batch is not None for batch in one.batches] for one in self.requests if isinstance(one, Round)]

    def left(self) -> list[bool]:
        """Where the claim was withdrawn."""
        (leave,) = [one for one in self.requests if isinstance(one, Leave)]
        return [withdrawal is not None for withdrawal in leave.withdrawals]


def answer(request: Round, outcomes: Sequence[Any]) -> bool:
    """The nodes answer one after the other, those with None never. Whether that was enough."""
    enough = False
    for place, outcome in enumerate(outcomes):
        if outcome is not None:
            enough = request.take(place, Answer(outcome, 10.0, 10.001))
    return enough


def vote(reply: list[Any], since_us: int = NOW_US - HOUR_US, off_us: int = 0, longest_ms: int = 300_000) -> list[Any]:
    """What a node replies to a claim."""
    return [[reply, since_us, NOW_US + off_us, longest_ms]]


def granted(fence: int, ttl_ms: int = 30_000) -> list[Any]:
    """The claim succeeds there."""
    return [1, fence, ttl_ms]


BUSY = [3, b"web-1:7:secret.1", 12_000, 0]
CLAIM = ops.Claim("job", "web-2:8:secret.1", 30_000)


@pytest.fixture
def play() -> Play:
    """Three nodes."""
    return Play()
