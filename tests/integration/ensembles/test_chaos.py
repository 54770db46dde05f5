"""Everything at once: members of an ensemble in all kinds of trouble, and workers who go on all the same."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.ensembles.members import Members
from tests.integration.ensembles.stage import Worker, stage
from tests.support.servers.proxy import Proxy
from tests.support.waiting import until
from tests.support.workers.crew import report
from tests.support.workers.journal import now

TTL = 4.0  # seconds: some outages are longer
ENDLESS = 1_000_000  # turns


class Road(Proxy):
    """The network between one worker and one member."""

    def __init__(self, server: Any) -> None:
        super().__init__(server.port)
        self.address = f"127.0.0.1:{self.port}"

    def heal(self) -> None:
        """Good again."""
        self.release()
        self.cut()


class Nemesis:
    """Brings bad luck over one member after the other, sometimes two: then nobody has a majority; and over roads."""

    def __init__(self, members: Members, roads: list[Road], seed: int) -> None:
        self._members = members
        self._roads = roads
        self._chance = random.Random(seed)
        self.done: Counter[str] = Counter()

    def strike(self) -> None:
        """A pause, one piece of it, and its end."""
        time.sleep(self._chance.uniform(0.2, 1))
        if self._chance.random() < 0.5:
            self._disturb()
            return
        kinds: list[Callable[[Any], None]] = [self.kill, self.freeze, self.cut_off]
        kind = self._chance.choice(kinds)
        victims = self._chance.sample(list(self._members.servers), self._chance.choice([1, 1, 1, 2]))
        for victim in victims[:1] if kind == self.cut_off else victims:
            kind(victim)
            self.done[kind.__name__] += 1
        time.sleep(self._chance.uniform(0.1, 5))
        self._members.heal()

    def _disturb(self) -> None:
        """Requests or replies are late or lost, or nothing goes through."""
        kinds = [Road.hold_requests, Road.hold_replies, Road.drop_replies, Road.blackhole, Road.cut]
        kind = self._chance.choice(kinds)
        roads = self._chance.sample(self._roads, self._chance.randrange(1, len(self._roads) + 1))
        for road in roads:
            kind(road)
        self.done[kind.__name__] += 1
        time.sleep(self._chance.uniform(0.1, 3))
        for road in roads:
            road.heal()

    def kill(self, victim: Any) -> None:
        """It crashes."""
        victim.kill()

    def freeze(self, victim: Any) -> None:
        """It stands still."""
        victim.freeze()

    def cut_off(self, victim: Any) -> None:
        """It hears nothing of the others."""
        self._members.cut_off(victim)


def play(members: Members, seconds: float, seed: int) -> None:
    """Let them work, then heal everything, and judge."""
    report(f"seed {seed}")
    chance = random.Random(seed)
    with stage(members) as played:
        roads: list[Road] = []
        workers: list[Worker] = []
        for flavour in ("sync", "asyncio") * 2:
            # Two reach one member only, so that they are cut off with it.
            servers = chance.sample(list(members.servers), 1 if len(workers) < 2 else 3)
            own = [played.open(Road(server)) for server in servers]
            roads += own
            worker = played.enter(flavour, *own, ttl=TTL, turns=ENDLESS)
            worker.patience = lambda: chance.choice([0, 0, 0.1, 1, TTL + 1])
            workers.append(worker)
        nemesis = Nemesis(members, roads, seed)
        end = now() + seconds
        while now() < end:
            nemesis.strike()
        for worker in workers:
            until(more_turns(worker), "everybody goes on")
            worker.left = 0
    report(f"{dict(nemesis.done)}")


def more_turns(worker: Worker) -> Callable[[], bool]:
    """Has it had another turn since now?"""
    before = len(worker.turns)
    return lambda: len(worker.turns) > before or bool(worker.wrong)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_trouble_of_every_kind(members: Members) -> None:
    """Minutes of it. LEASEHOLD_SEED replays the choices."""
    seconds = float(os.environ.get("LEASEHOLD_SECONDS") or 180)
    play(members, seconds, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))
