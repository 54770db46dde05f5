"""Many workers and a bad network, or bad members: every confirmed change happened once, and no other but unknown ones.

Each worker raises a number in a record, conditional on the revision that it has read. etcd counts the writes itself.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable

import pytest

from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.record.requests import Change, Look, Outcome, Part, Record
from tests.integration.etcd.flavours import Connect
from tests.support.servers.etcd import EtcdEnsemble, EtcdServer
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.waiting import PATIENCE

COUNTERS = 3
WORKERS = 4
BUDGET = 2.0  # seconds for a call


class Counts:
    """What the workers were told."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done = dict.fromkeys(map(str, range(COUNTERS)), 0)
        self.unknown = dict(self.done)
        self.failed = 0
        self.revisions: dict[str, set[int]] = {name: set() for name in self.done}

    def note(self, name: str, reply: object, told: int) -> None:
        """One change, and what it was to make of the number."""
        with self.lock:
            if isinstance(reply, OutcomeUnknown):
                self.unknown[name] += 1
            elif isinstance(reply, StoreUnavailable):
                self.failed += 1
            elif isinstance(reply, Outcome) and reply.done:
                assert reply.records[0].text == str(told)
                assert reply.records[0].revision not in self.revisions[name], "two changes of one revision"
                self.revisions[name].add(reply.records[0].revision)
                self.done[name] += 1

    def check(self, server: EtcdServer) -> None:
        """etcd's own count of the writes lies between what was confirmed and what may have been."""
        for name, row in server.keys("leasehold/r/").items():
            counter = name.removeprefix("leasehold/r/count:")
            written = int(row["version"])
            assert int(row["value"]) == written
            assert self.done[counter] <= written <= self.done[counter] + self.unknown[counter]
        assert sum(self.done.values()) > COUNTERS


def number(record: Record) -> int:
    """What a record counts."""
    return int(record.text or 0)


async def work(records: EtcdRecords, counts: Counts, chance: random.Random, end: float) -> None:
    """Read and raise, one counter or all at once. Runs on a thread as well: see ``thread``."""
    while time.monotonic() < end:
        names = [chance.choice("012")] if chance.random() < 0.7 else list("012")
        looks = [Look((f"count:{name}",)) for name in names]
        seen = await records.perform_async(looks, time.monotonic() + BUDGET)
        found = [
            (name, one.records[0]) for name, one in zip(names, seen, strict=True) if not isinstance(one, Exception)
        ]
        changes = [Change((Part(old.resource, old.revision, str(number(old) + 1)),)) for _, old in found]
        replies = await records.perform_async(changes, time.monotonic() + BUDGET)
        for (name, old), reply in zip(found, replies, strict=True):
            counts.note(name, reply, number(old) + 1)


class OnThread:
    """The same calls on the calling thread, for ``work``."""

    def __init__(self, records: EtcdRecords) -> None:
        self._records = records

    async def perform_async(self, requests: list[Look | Change], give_up: float) -> list[object]:
        """It blocks the event loop, which has nothing else to do."""
        return self._records.perform(requests, give_up)


def run(records: EtcdRecords, seed: int, end: float, trouble: Callable[[random.Random], None]) -> Counts:
    """Half of the workers are threads, the others tasks of one event loop; this thread makes the trouble."""
    counts, chance = Counts(), random.Random(seed)
    errors: list[BaseException] = []

    def guard(coroutine: Callable[[], object]) -> None:
        try:
            asyncio.run(coroutine())  # type: ignore[arg-type]
        except BaseException as error:
            errors.append(error)

    def thread(at: int) -> threading.Thread:
        worker = OnThread(records)
        return threading.Thread(
            target=guard,
            args=(lambda: work(worker, counts, random.Random(seed + at), end),),  # type: ignore[arg-type]
        )

    async def tasks() -> None:
        await asyncio.gather(*(work(records, counts, random.Random(seed - at), end) for at in range(WORKERS // 2)))

    threads = [thread(at) for at in range(WORKERS // 2)] + [threading.Thread(target=guard, args=(tasks,))]
    for one in threads:
        one.start()
    while time.monotonic() < end:
        trouble(chance)
    for one in threads:
        one.join(PATIENCE)
    assert errors == []
    return counts


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_bad_network(etcd: EtcdServer, proxy: Proxy, connect: Connect, seed: int) -> None:
    """Replies are lost or come late; requests are cut or held; connections break."""
    records = connect(etcd.url_at(proxy.port))
    verdicts: list[Verdict] = ["cut_reply", "cut_request", "hold", "hold_reply", "drop_reply"]
    network = random.Random(seed)
    proxy.on_request = lambda _: network.choice(verdicts) if network.random() < 0.03 else "pass"

    def trouble(chance: random.Random) -> None:
        time.sleep(chance.random() * 0.3)
        if chance.random() < 0.3:
            proxy.cut()
        proxy.release()

    counts = run(records, seed, time.monotonic() + 3.0, trouble)
    proxy.on_request = None
    proxy.release()
    time.sleep(0.3)  # what was late has arrived
    counts.check(etcd)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_bad_members(ensemble: EtcdEnsemble, connect: Connect, seed: int) -> None:
    """Members are killed, frozen and cut off, one at a time."""
    records = connect(ensemble.url)

    def trouble(chance: random.Random) -> None:
        member = chance.choice(ensemble.members)
        match chance.randrange(3):
            case 0:
                member.kill()
                time.sleep(chance.random() * 2)
                member.start()
            case 1:
                member.freeze()
                time.sleep(chance.random() * 4)
                member.thaw()
            case _:
                ensemble.cut_off(member)
                time.sleep(chance.random() * 4)
                ensemble.heal()
        time.sleep(chance.random() * 2)

    counts = run(records, seed, time.monotonic() + 30.0, trouble)
    ensemble.heal()
    counts.check(ensemble.leader())
