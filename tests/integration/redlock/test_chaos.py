"""Several clients, and minorities of nodes that are cut off, slow, silent, or restarted without their data: one holder
at a time, and fences that grow."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any, NamedTuple

import pytest

from leasehold.errors import LeaseholdError
from tests.integration.redlock.stage import Stage
from tests.support.parties import Party, mostly
from tests.support.servers.redlock import RedlockNode

pytestmark = pytest.mark.slow
TTL = 2
OPTIONS = f"?max_ttl={TTL}"


class Holding(NamedTuple):
    """From when to when a client believed in its lease, and its fence."""

    since: float
    until: float
    fence: int


class Crew:
    """Clients that acquire, hold for a moment and release, until they are told to stop."""

    def __init__(self, parties: list[Party], seed: int) -> None:
        self.holdings: list[Holding] = []
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(party,)) for party in parties]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each come to its end."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, party: Party) -> None:
        while not self._stop.is_set():
            try:
                lease = party.do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=self._random.choice([0, 0.05, 1])))
                if lease is not None:
                    self._hold(party, lease)
            except LeaseholdError:
                time.sleep(0.01)

    def _hold(self, party: Party, lease: Any) -> None:
        since = time.monotonic()
        time.sleep(self._random.random() * 0.03)
        believes = lease.state in ("held", "unsure")
        self.holdings.append(Holding(since, time.monotonic() if believes else since, lease.fence))
        party.do(lambda _: lease.release())


def trouble(node: RedlockNode, kind: str) -> None:
    """It lasts until the node is healed."""
    if kind == "cut":
        node.cut_off()
    elif kind == "requests":
        node.link.hold_requests()
    elif kind == "replies":
        node.link.hold_replies()
    elif kind == "slow":
        node.link.delay(0.02, 0.02)
    elif kind == "restart":
        node.restart(keep=False)


@mostly("sync", "five")
@pytest.mark.parametrize("seed", [7, pytest.param(11, marks=pytest.mark.soak)])
@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.soak)])
def test_one_holder_at_a_time_while_a_minority_is_in_trouble(five: Stage, seed: int, seconds: float) -> None:
    """No two believe at once, each fence is higher than the last, and nothing is left behind."""
    chance = random.Random(seed)
    ill: list[RedlockNode] = []
    crew = Crew([five.party(OPTIONS) for _ in range(4)], seed)
    end, troubles = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        time.sleep(chance.random() * 0.3)
        for node in ill:
            node.heal()
        ill = chance.sample(five.nodes, chance.choice([0, 1, 2]))
        troubles += len(ill)
        for node in ill:
            trouble(node, chance.choice(["cut", "requests", "replies", "slow", *["restart"] * (chance.random() < 0.3)]))
    for node in ill:
        node.heal()
    crew.stop()
    found = sorted(crew.holdings)
    print(f"seed {seed}: {len(found)} leases, {troubles} times a node was in trouble")  # noqa: T201  # what the soak is for
    assert found
    assert [pair for pair in itertools.pairwise(found) if pair[1].since < pair[0].until] == []
    assert [one.fence for one in found] == sorted({one.fence for one in found})
    five.nothing_left()
