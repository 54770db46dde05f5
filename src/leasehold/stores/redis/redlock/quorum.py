"""What this process knows of the nodes of a Redlock, and which of them count. Pure: times are given to it.

A node counts for a claim unless it may have forgotten a lease that is still held, or may end one too soon:

    it was started less than the longest ttl ago     it may have restarted without its last writes
    its marker is missing, or younger than that      it was flushed, or is new
    its clock is more than 500 ms off the median     it has jumped, or is about to be corrected

For a renewal only the clock matters: a node that confirms one has the record of this very lease, and whoever claims
later still finds it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from leasehold._core.light_typing import Any, NamedTuple
from leasehold.errors import InvalidRequest, Unsupported

MOST_CLOCK_OFF = 0.5  # seconds
LEAST_QUARANTINE = 1.1  # seconds: clocks that count are at most one apart, so that fences by the time alone are higher
RATE = 1.01  # how much faster than that of a node our clock may run
LEAST_NODES = 3


class ClockSample(NamedTuple):
    """By how many seconds the clock of a node is ahead of the local one: between these two, because the node read its
    clock at some moment between our request and its reply."""

    least: float
    most: float


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
        self.nodes[place].clock = ClockSample(now_us / 1_000_000 - received, now_us / 1_000_000 - sent)

    def learn_longest_ttl(self, place: int, longest_ttl_ms: int) -> None:
        """Clients may be configured differently: a lease of the one with the longest ttl must not be forgotten."""
        self.nodes[place].longest_ttl_ms = longest_ttl_ms

    # ------------------------------------------------------------ which of them count

    @property
    def quarantine(self) -> float:
        """Seconds for which a node that lost its memory does not count."""
        longest_ms = max(self._longest_ttl_ms, *[node.longest_ttl_ms for node in self.nodes])
        return max(longest_ms / 1000, LEAST_QUARANTINE)

    def clock_fault(self, place: int) -> str:
        """Why its clock keeps this node from counting; empty if it does not. With fewer samples than a majority nobody
        knows which clock is right."""
        samples = [node.clock for node in self.nodes if node.clock is not None]
        own = self.nodes[place].clock
        if own is None or len(samples) < self.majority:
            return "too few clocks are known to compare its own with"
        middle = median([(sample.least + sample.most) / 2 for sample in samples])
        off = own.least - middle if own.least > middle else min(own.most - middle, 0.0)
        return f"its clock is {off:+.1f} s off the median of all nodes" if abs(off) > MOST_CLOCK_OFF else ""

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
    if count < LEAST_NODES or count % 2 == 0:
        why = "of fewer than three none may fail" if count < LEAST_NODES else "one less survives as many failures"
        raise InvalidRequest(f"a Redlock has 3, 5 or 7 independent masters, not {count}: {why}")
    for place, address in enumerate(addresses):
        if address in addresses[:place]:
            raise InvalidRequest(f"{address} is named twice, and would count as two masters")
