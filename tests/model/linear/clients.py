"""Clients that record what they ask of one resource and what they hear: in threads, in tasks and in processes.

Each asks for a place by some rule, in the queue or with one try, looks, lowers itself, gives up, gives back, releases
twice: at random, by its seed. Nothing here expires: a ttl is longer than any run.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import leasehold
from leasehold._core import ops
from leasehold._core.ports import Store
from leasehold.coordinator.stores import open_store
from leasehold.errors import OutcomeUnknown
from leasehold.stores.redis import RedisStore
from leasehold.stores.sqlite import SQLiteStore
from tests.model.linear.checker import Call

ROOM = "linear:1"
TTL_MS = 600_000
LIMIT = 3
MIXES = {
    "mutex": ["mutex"],
    "read-write": ["read", "read", "write"],
    "semaphore": ["semaphore"],
    "everything": ["mutex", "read", "read", "write", "semaphore", "semaphore"],
}

PATIENCE = 100.0  # seconds
TRIES = 20  # of a batch
Asking = Generator[Any, Any, None]
_barrier: Any = None


def script(seed: int, rules: list[str], rounds: int, address: str = "") -> Asking:
    """What one client does: yields ops, and is sent the replies. With an ``address`` it may be granted what another
    gives back, in the same step; it does not listen there, and learns it from a beat."""
    chance = random.Random(seed)
    for number in range(rounds):
        owner, rule = f"host:{seed}:secret.{number}", chance.choice(rules)
        permits = chance.choice([1, 1, 2, LIMIT]) if rule == "semaphore" else 1
        waits = chance.random() < 0.6
        claim = ops.Claim(ROOM, owner, TTL_MS, enqueue=waits, rule=rule, permits=permits, limit=LIMIT, address=address)
        reply = yield claim
        yield from _go_on(chance, claim, reply)


def _go_on(chance: random.Random, claim: ops.Claim, reply: Any) -> Asking:
    beat = 1
    patience = chance.choice([3, 200, 200])
    while isinstance(reply, ops.Queued):
        if beat > patience:
            yield ops.Withdraw(ROOM, claim.owner)
            return
        beat += 1
        reply = yield ops.Beat(ROOM, claim.owner, beat)
    if not isinstance(reply, ops.Granted):
        return
    if chance.random() < 0.3:
        yield ops.Inspect(ROOM, queue=False)
    if claim.rule == "write" and chance.random() < 0.5:
        yield ops.Renew(ROOM, claim.owner, reply.fence, TTL_MS, number=1, shared=True)
    yield ops.Release(ROOM, claim.owner, reply.fence)
    if chance.random() < 0.2:
        yield ops.Release(ROOM, claim.owner, reply.fence)  # it is gone


def play(store: Store, seed: int, rules: list[str], rounds: int, address: str = "") -> list[Call]:
    """On the calling thread."""
    calls: list[Call] = []
    asking = script(seed, rules, rounds, address)
    op = next(asking)
    while True:
        if isinstance(op, ops.Beat):
            time.sleep(0.001)  # whoever waits asks now and then
        began = time.monotonic_ns()
        try:
            reply = store.execute(op)
        except OutcomeUnknown:  # PostgreSQL ends the turn of a thread that stands still in it, on a busy machine
            reply = store.execute(op)
        calls.append(Call(op, reply, began, time.monotonic_ns()))
        try:
            op = asking.send(reply)
        except StopIteration:
            return calls


async def play_async(store: Store, seed: int, rules: list[str], rounds: int) -> list[Call]:
    """In a task, which lets others run between its ops."""
    calls: list[Call] = []
    asking = script(seed, rules, rounds)
    op = next(asking)
    while True:
        began = time.monotonic_ns()
        await asyncio.sleep(0.001 if isinstance(op, ops.Beat) else 0)  # whoever waits asks now and then
        reply = await store.execute_async(op)
        calls.append(Call(op, reply, began, time.monotonic_ns()))
        try:
            op = asking.send(reply)
        except StopIteration:
            return calls


def in_threads(
    make_store: Callable[[], Store], rules: list[str], clients: int, rounds: int, seed: int
) -> list[list[Call]]:
    """Clients that begin at once, and are interrupted often."""
    store = make_store()
    histories: list[list[Call]] = []
    together = threading.Barrier(clients)

    def client(number: int) -> None:
        together.wait()
        histories.append(play(store, number, rules, rounds))

    crowd = [threading.Thread(target=client, args=(one,)) for one in range(seed, seed + clients)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    store.close()
    return histories


def in_tasks(
    make_store: Callable[[], Store], rules: list[str], clients: int, rounds: int, seed: int
) -> list[list[Call]]:
    """Clients on one event loop."""

    async def all_of_them() -> list[list[Call]]:
        store = make_store()
        subscriber = store.listen(lambda push: None)
        played = await asyncio.gather(*[play_async(store, one, rules, rounds) for one in range(seed, seed + clients)])
        subscriber.close()
        store.close()
        return list(played)

    return asyncio.run(all_of_them())


def in_processes(
    url: str, rules: list[str], clients: int, rounds: int, seed: int, address: str = ""
) -> list[list[Call]]:
    """Each client with a store of its own."""
    context = get_context("spawn")
    with ProcessPoolExecutor(clients, context, _meet_at, (context.Barrier(clients),)) as pool:
        parts = [pool.submit(_in_process, url, one, rules, rounds, address) for one in range(seed, seed + clients)]
        return [part.result() for part in parts]


def _meet_at(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _in_process(url: str, seed: int, rules: list[str], rounds: int, address: str) -> list[Call]:
    store = open_url(url)
    _barrier.wait(PATIENCE)  # so that they ask side by side
    calls = play(store, seed, rules, rounds, address)
    store.close()
    return calls


# ---------------------------------------------------------------- locks, whose leases pass inside a process


def crew(url: str, seed: int, threads: int, rounds: int) -> tuple[list[list[Call]], int, int]:
    """Threads of one coordinator that want one lock, by itself or in a batch with another: their histories, how many
    leases were passed on, or taken while they lingered, and how many came with a batch. What a thread does counts as a
    claim that was granted when its acquire returned, with the fence of its own lease, and a release: whether the store
    had a part in it makes no difference to anybody."""
    histories: list[list[Call]] = [[] for _ in range(threads)]
    passed: list[str] = []
    batches: list[str] = []
    together = threading.Barrier(threads)

    def client(hold: leasehold.Leasehold, number: int) -> None:
        chance, calls = random.Random(seed + number), histories[number]
        together.wait(PATIENCE)
        for _ in range(rounds):
            lock = hold.lock("linear", ttl=TTL_MS / 1000, linger=chance.choice([0, 0.01]))
            beside = [lock, hold.lock("beside", number, ttl=TTL_MS / 1000)]
            wait, batch = chance.choice([0.001, None, None, None]), chance.random() < 0.3
            for _ in range(TRIES if batch else 1):  # a batch never waits
                began = time.monotonic_ns()
                found = hold.acquire_many(beside) if batch else [lock.acquire(wait=wait)]
                ended = time.monotonic_ns()
                lease = found[0]
                if lease is not None:
                    break
                hold.release_many(found)
                time.sleep(0.001)
            if lease is None:
                continue
            held = lease._held
            calls.append(Call(ops.Claim(ROOM, held.owner, TTL_MS), ops.Granted(held.fence, TTL_MS), began, ended))
            passed.extend([held.owner] if held.granted_as else [])
            batches.extend([held.owner] if batch else [])
            time.sleep(chance.choice([0, 0, 0.0005]))
            began = time.monotonic_ns()
            ours = hold.release_many(found)[0] if batch else lease.release()
            reply = ops.Released() if ours else ops.NotYours("taken")
            calls.append(Call(ops.Release(ROOM, held.owner, held.fence), reply, began, time.monotonic_ns()))

    with leasehold.connect(url) as hold:
        everybody = [threading.Thread(target=client, args=(hold, number)) for number in range(threads)]
        for thread in everybody:
            thread.start()
        for thread in everybody:
            thread.join()
    return histories, len(passed), len(batches)


def in_crews(url: str, processes: int, threads: int, rounds: int, seed: int) -> tuple[list[list[Call]], int, int]:
    """Several such processes."""
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, _meet_at, (context.Barrier(processes),)) as pool:
        parts = [pool.submit(_crew_in_process, url, seed + 100 * one, threads, rounds) for one in range(processes)]
        played = [part.result() for part in parts]
    calls = [calls for histories, _, _ in played for calls in histories]
    return calls, sum(passed for _, passed, _ in played), sum(batches for _, _, batches in played)


def _crew_in_process(url: str, seed: int, threads: int, rounds: int) -> tuple[list[list[Call]], int, int]:
    _barrier.wait(PATIENCE)  # so that they ask side by side
    return crew(url, seed, threads, rounds)


def open_url(url: str) -> Store:
    """A new store there."""
    if url.startswith(("etcd", "zk", "postgresql")):
        return open_store(url)
    return SQLiteStore(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else RedisStore(url)
