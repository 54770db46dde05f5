"""What this process knows of the nodes of a Redlock, and which of them count. Pure: times are given to it.

A node counts for a claim unless it may have forgotten a lease that is still held, or may end one too soon:

    it was started less than the longest ttl ago     it may have restarted without its last writes
    its marker is missing, or younger than that      it was flushed, or is new
    its clock is more than 500 ms off the median     it has jumped, or is about to be corrected

For a renewal only the clock matters: a node that confirms one has the record of this very lease, and whoever claims
later still finds it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from leasehold._core.light_typing import Any, NamedTuple
from leasehold.errors import InvalidRequest, Unsupported

MOST_CLOCK_OFF = 0.5  # seconds
FENCE_AHEAD = 0.02  # seconds that a fence is ahead of the clocks, so that it is still ahead when a claim arrives
MOST_DELAY = 0.03  # seconds that the way to a node may add to that
SAMPLE_SECONDS = 60.0  # for which a clock is believed to run as ours does
LEAST_QUARANTINE = (
    1.2  # seconds: clocks that count are at most one apart, and fences at most 0.05 ahead of them, so that
)
# fences by the time alone are higher afterwards
RATE = 1.01  # how much faster than that of a node our clock may run
LEAST_NODES, MOST_NODES = 3, 7


class ClockSample(NamedTuple):
    """By how many seconds the clock of a node is ahead of the local one: between these two, because the node read its
    clock at some moment between our request and its reply."""

    least: float
    most: float
    read_at: float  # local time


class Node:
    """What is known of one node. Times are local."""

    __slots__ = ("address", "clock", "longest_ttl_ms", "run_id", "started_by")

    def __init__(self, address: str) -> None:
        self.address = address
        self.run_id = ""
        self.started_by = 0.0  # it has been up since then, at least as far as it says
        self.clock: ClockSample | None = None
        self.longest_ttl_ms = 0  # of all clients, as its marker says


class Vote(NamedTuple):
    """One node's reply to a claim, and what came with it; by the node's clock in µs."""

    reply: Any
    since_us: int
    now_us: int


class Quorum:
    """The nodes of one store."""

    def __init__(self, addresses: Sequence[str], longest_ttl_ms: int) -> None:
        self.nodes = [Node(address) for address in addresses]
        self.majority = len(addresses) // 2 + 1
        self._longest_ttl_ms = longest_ttl_ms
        self.quarantine = max(longest_ttl_ms / 1000, LEAST_QUARANTINE)  # seconds for which a node that lost its memory
        # does not count
        self.met = False  # every node was tried once, so that a wrong one is refused by the first call

    # ------------------------------------------------------------ what is learnt

    def introduce(self, place: int, run_id: str, uptime: int, now: float) -> None:
        """A connection was opened. The uptime is the difference of two times in whole seconds, so one second less is
        certain."""
        for other, node in enumerate(self.nodes):
            if other != place and node.run_id == run_id:
                raise Unsupported(
                    f"{self.nodes[place].address} and {node.address} are the same server, and would count as two: a "
                    "Redlock needs independent masters"
                )
        self.nodes[place].run_id = run_id
        self.nodes[place].started_by = now - max(uptime - 1, 0)

    def learn_clock(self, place: int, now_us: int, sent: float, received: float) -> None:
        """What time it was there between two moments here."""
        self.nodes[place].clock = ClockSample(now_us / 1_000_000 - received, now_us / 1_000_000 - sent, received)

    def learn_longest_ttl(self, place: int, longest_ttl_ms: int) -> None:
        """Clients may be configured differently: a lease of the one with the longest ttl must not be forgotten."""
        if self.nodes[place].longest_ttl_ms != longest_ttl_ms:
            self.nodes[place].longest_ttl_ms = longest_ttl_ms
            longest_ms = max(self._longest_ttl_ms, *[node.longest_ttl_ms for node in self.nodes])
            self.quarantine = max(longest_ms / 1000, LEAST_QUARANTINE)

    def next_fence(self, now: float) -> int:
        """One that all nodes are likely to give, if they are asked for at least that: it is a little ahead of every
        clock that counts. 0 when too little is known. A node whose clock is ahead of it gives a higher one, and nothing
        is lost but time."""
        middle = self._middle()
        ahead = [
            clock.least + min(clock.most - clock.least, MOST_DELAY)
            for node in self.nodes
            if (clock := node.clock) is not None
            and now - clock.read_at < SAMPLE_SECONDS
            and abs(clock.least - middle) <= MOST_CLOCK_OFF
        ]
        return int((now + max(ahead) + FENCE_AHEAD) * 1_000_000) if len(ahead) >= self.majority else 0

    # ------------------------------------------------------------ which of them count

    def _middle(self) -> float:
        """By how many seconds the clock in the middle is ahead of ours."""
        middles = sorted([(clock.least + clock.most) / 2 for node in self.nodes if (clock := node.clock) is not None])
        half = len(middles) // 2
        if len(middles) < self.majority:
            return math.nan
        return middles[half] if len(middles) % 2 else (middles[half - 1] + middles[half]) / 2

    def clock_faults(self, places: Iterable[int]) -> dict[int, str]:
        """Which of these nodes do not count because of their clocks, and why. With fewer samples than a majority nobody
        knows which clock is right."""
        middle, found = self._middle(), {}
        for place in places:
            clock = self.nodes[place].clock
            if clock is None or math.isnan(middle):
                found[place] = "too few clocks are known to compare its own with"
                continue
            off = clock.least - middle if clock.least > middle else min(clock.most - middle, 0.0)
            if abs(off) > MOST_CLOCK_OFF:
                found[place] = f"its clock is {off:+.1f} s off the median of all nodes"
        return found

    def memory_fault(self, place: int, vote: Vote, sent: float) -> str:
        """Why this node may have forgotten a lease; empty if it cannot."""
        longest = self.quarantine
        up = (sent - self.nodes[place].started_by) / RATE
        kept = (vote.now_us - vote.since_us) / 1_000_000
        if up < longest:
            left = (longest - up) * RATE
            return f"it was started {max(up, 0):.0f} s ago and may lack leases; it counts again in {left:.1f} s"
        if kept < longest:
            left = longest - kept
            return f"it was flushed or set up {max(kept, 0):.0f} s ago; it counts again in {left:.1f} s"
        return ""


def check_nodes(addresses: Sequence[str]) -> None:
    """Refuse what cannot be a Redlock, before anything is sent."""
    count = len(addresses)
    if count < LEAST_NODES or count > MOST_NODES or count % 2 == 0:
        why = "one less survives as many failures"
        if count < LEAST_NODES:
            why = "of fewer than three none may fail"
        elif count > MOST_NODES:
            why = "each further one makes every call dearer, and three of seven may fail already"
        raise InvalidRequest(f"a Redlock has 3, 5 or 7 independent masters, not {count}: {why}")
    for place, address in enumerate(addresses):
        if address in addresses[:place]:
            raise InvalidRequest(f"{address} is named twice, and would count as two masters")
