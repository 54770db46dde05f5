"""Everything at once: members, networks and clients in all kinds of trouble, and workers who go on all the same."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ensembles.members import Members
from tests.integration.ensembles.process import ENDLESS, STAYS, TTL, more_turns
from tests.integration.ensembles.stage import Inside, SharedData, Worker, stage
from tests.support.servers.proxy import Proxy
from tests.support.waiting import until
from tests.support.workers import crew
from tests.support.workers.crew import report
from tests.support.workers.journal import now

STANDSTILL = 2 * TTL  # seconds: longer than a lease, and than a session


class Crew(crew.Crew):
    """Workers that are processes."""

    module = "tests.integration.ensembles.process"


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
    """Brings bad luck over one member after the other, sometimes two: then nobody has a majority; over roads; and over
    processes, which stand still while other things happen."""

    def __init__(self, members: Members, roads: list[Road], clients: list[crew.Worker], seed: int) -> None:
        self._members = members
        self._roads = roads
        self._clients = clients
        self._asleep: dict[crew.Worker, threading.Timer] = {}
        self._chance = random.Random(seed)
        self.done: Counter[str] = Counter()

    def strike(self) -> None:
        """A pause, one piece of it, and its end."""
        time.sleep(self._chance.uniform(0.2, 1))
        if self._chance.random() < 0.5:
            self.stand_still(self._chance.choice(self._clients))
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

    def stand_still(self, client: crew.Worker) -> None:
        """For a while, which may be longer than its lease and its session last."""
        if client not in self._asleep:
            client.stop()
            self.done["stand_still"] += 1
            self._asleep[client] = threading.Timer(self._chance.uniform(0.1, STANDSTILL), self._wake, [client])
            self._asleep[client].start()

    def _wake(self, client: crew.Worker) -> None:
        client.go_on()
        del self._asleep[client]

    def end(self) -> None:
        """Nobody stands still."""
        for timer in list(self._asleep.values()):
            timer.join()

    def kill(self, victim: Any) -> None:
        """It crashes."""
        victim.kill()

    def freeze(self, victim: Any) -> None:
        """It stands still."""
        victim.freeze()

    def cut_off(self, victim: Any) -> None:
        """It hears nothing of the others."""
        self._members.cut_off(victim)


def play(members: Members, folder: Path, seconds: float, seed: int) -> None:
    """Let them work, then heal everything, and judge."""
    report(f"seed {seed}")
    chance = random.Random(seed)
    with closing(Crew(folder, members.url())) as processes, stage(members) as played:
        played.data = SharedData(processes.data)
        roads: list[Road] = []
        workers: list[Worker] = []

        def ways(count: int) -> list[Road]:
            own = [played.open(Road(server)) for server in chance.sample(list(members.servers), count)]
            roads.extend(own)
            return own

        for flavour, count in zip(("sync", "asyncio") * 2, (1, 1, 3, 3), strict=True):
            # Two reach one member only, so that they are cut off with it.
            worker = played.enter(flavour, *ways(count), ttl=TTL, turns=ENDLESS)
            worker.patience = lambda: chance.choice(STAYS)
            workers.append(worker)
        for flavour, count in (("sync", 1), ("asyncio", 3)):
            processes.spawn(flavour, members.url(*ways(count)))
        nemesis = Nemesis(members, roads, processes.workers, seed)
        end = now() + seconds
        while now() < end:
            nemesis.strike()
        nemesis.end()
        for worker in workers:
            until(more_turns(worker), "everybody goes on")
        for process in processes.workers:  # one more turn of theirs, too
            process.tell("end")
        for process in processes.workers:
            played.elsewhere += results(process)
        for worker in workers:
            worker.left = 0
    report(f"{dict(nemesis.done)}")


def results(process: crew.Worker) -> list[Inside]:
    """What it did, when it has ended."""
    answer = process.hear()
    assert answer["wrong"] == []
    assert process.end() == 0
    report(f"{process.name}: {len(answer['turns'])} turns, {answer['errors']}")
    return [Inside(*turn) for turn in answer["turns"]]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_trouble_of_every_kind(members: Members, tmp_path: Path) -> None:
    """Minutes of it. LEASEHOLD_SEED replays the choices."""
    seconds = float(os.environ.get("LEASEHOLD_SECONDS") or 180)
    play(members, tmp_path, seconds, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))
