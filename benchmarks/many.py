"""Many leases at once in one process: what a round of renewals costs, and what a held lease weighs."""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redis

import leasehold
from benchmarks.server import Server, usage
from leasehold._core.ops import Inspect, View

COUNT = 10_000
TTL = 60
PIPELINE = 500
RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"


class Renewing(NamedTuple):
    """How one contender renews all its leases, and how the result is checked."""

    renew: Callable[[], None]
    check: Callable[[float], None]
    prepare: Callable[[], None] = lambda: None


# ---------------------------------------------------------------- renewals


class Ours:
    """Leases of one coordinator. A round of its watchdog is done on this thread, where it can be measured."""

    def __init__(self, hold: leasehold.Leasehold) -> None:
        self._engine = hold._engine
        self._leases = [hold.lock("renew", number, ttl=TTL).acquire() for number in range(COUNT)]

    def prepare(self) -> None:
        """Make every lease due. The watchdog's own thread sleeps for a third of the ttl, and does not notice."""
        watchdog = self._engine.watchdog
        leases = watchdog.leases()
        for held in leases:
            held.renew_at = 0
        with watchdog.transitions:
            watchdog._schedule.move(leases, time.monotonic())

    def renew(self) -> None:
        """What the watchdog's thread does when it wakes."""
        self._engine.watchdog.round()

    def check(self, began: float) -> None:
        """In the store each lease has our owner, and was renewed since then."""
        leases = [lease for lease in self._leases if lease is not None and lease.state == "held"]
        views = self._engine.store.execute_many([Inspect(lease.resource) for lease in leases])
        least_ms = (TTL - (time.monotonic() - began)) * 1000
        renewed = 0
        for lease, view in zip(leases, views, strict=True):
            assert isinstance(view, View), view
            left = {grant.owner: grant.expires_ms - view.now_ms for grant in view.holders}
            renewed += left.get(lease.owner, 0) >= least_ms
        _none_lost("Leasehold", renewed)


class Theirs:
    """Keys with an owner, renewed by a script that compares it."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._script: str = client.script_load(RENEW)
        self._keys = [f"renew:{number}" for number in range(COUNT)]
        for keys in self._batches():
            with client.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.set(key, "owner-of-" + key, nx=True, px=TTL * 1000)
                pipe.execute()

    def _batches(self) -> Iterator[list[str]]:
        for start in range(0, COUNT, PIPELINE):
            yield self._keys[start : start + PIPELINE]

    def pipeline(self) -> None:
        """In pipelines."""
        replies: list[Any] = []
        for keys in self._batches():
            with self._client.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.evalsha(self._script, 1, key, "owner-of-" + key, str(TTL * 1000))
                replies += pipe.execute()
        _none_lost("redis-py, pipeline", sum(replies))

    def loop(self) -> None:
        """With one round trip for each key."""
        evalsha: Any = self._client.evalsha
        replies = [evalsha(self._script, 1, key, "owner-of-" + key, str(TTL * 1000)) for key in self._keys]
        _none_lost("redis-py, loop", sum(replies))

    def check(self, began: float) -> None:
        """Each key was renewed since then; the script has checked that it has our owner."""
        left: list[int] = []
        for keys in self._batches():
            with self._client.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.pttl(key)
                left += pipe.execute()
        least_ms = (TTL - (time.monotonic() - began)) * 1000
        _none_lost("redis-py", sum(ms >= least_ms for ms in left))


def _none_lost(name: str, renewed: int) -> None:
    if renewed != COUNT:
        raise RuntimeError(f"{name}: {COUNT - renewed} of {COUNT} leases were lost or not renewed")


def renewals(server: Server, with_us: bool, rounds: int = 5) -> None:
    """CPU time of client and server for one round over all leases."""
    pipeline = f"redis-py, pipelines of {PIPELINE}"
    with ExitStack() as stack:
        theirs = Theirs(stack.enter_context(redis.Redis.from_url(server.url(1))))
        work = {
            pipeline: Renewing(theirs.pipeline, theirs.check),
            "redis-py, one after the other": Renewing(theirs.loop, theirs.check),
        }
        if with_us:
            ours = Ours(stack.enter_context(leasehold.connect(server.url())))
            work["Leasehold, the watchdog's round"] = Renewing(ours.renew, ours.check, ours.prepare)
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
        for _ in range(rounds):
            for name, one in work.items():
                time.sleep(0.2)  # so that a lease which was not renewed has visibly less time left
                one.prepare()
                began = time.monotonic()
                spent[name].append(_cpu_ms(server, one.renew))
                one.check(began)
    _show_renewals(spent, pipeline)


def _cpu_ms(server: Server, renew: Callable[[], None]) -> tuple[float, float]:
    before, cpu = server.usage(), time.process_time()
    renew()
    client_ms = (time.process_time() - cpu) * 1000
    return client_ms, server.usage().since(before).cpu_ms


def _show_renewals(spent: dict[str, list[tuple[float, float]]], base: str) -> None:
    print(f"\nOne round of renewals of {COUNT:,} leases, CPU ms; none was lost")
    print(f"  {'':<44}{'client':>10}{'Redis':>10}{'both':>10}{'spread':>9}  × {base}")
    both = {name: [sum(one) for one in many] for name, many in spent.items()}
    for name, many in spent.items():
        client, redis_server = (statistics.median(one[side] for one in many) for side in (0, 1))
        middle = statistics.median(both[name])
        low, _, high = statistics.quantiles(both[name], n=4)
        ratio = middle / statistics.median(both[base])
        spread = (high - low) / 2 / middle * 100
        print(f"  {name:<44}{client:>10,.1f}{redis_server:>10,.1f}{middle:>10,.1f}{spread:>8.1f}%  {ratio:.2f}")


# ---------------------------------------------------------------- memory


@contextmanager
def hold_ours(url: str) -> Iterator[Callable[[int], object]]:
    with leasehold.connect(url) as hold:
        yield lambda number: hold.lock("memory", number, ttl=TTL).acquire()


@contextmanager
def hold_redis_py(url: str) -> Iterator[Callable[[int], object]]:
    """The lock object must be kept: it has the token."""

    def acquire(number: int) -> object:
        lock = client.lock(f"memory:{number}", timeout=TTL)
        assert lock.acquire(blocking=False)
        return lock

    with redis.Redis.from_url(url) as client:
        yield acquire


def weigh(holder: Callable[[str], Any], url: str) -> tuple[float, float]:
    """In a process of its own: bytes of this process and of Redis for each held lease."""
    with redis.Redis.from_url(url) as client, holder(url) as acquire:
        kept = [acquire(number) for number in range(-200, 0)]  # so that what is allocated once does not count
        resident, stored = _resident(), usage(client).memory
        kept += [acquire(number) for number in range(COUNT)]
        weights = (_resident() - resident) / COUNT, (usage(client).memory - stored) / COUNT
        assert all(kept)
        return weights


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(server: Server, with_us: bool, rounds: int = 3) -> None:
    """What a held lease takes on both sides."""
    holders: dict[str, Callable[[str], Any]] = {"redis-py Lock": hold_redis_py}
    if with_us:
        holders["Leasehold"] = hold_ours
    weights: dict[str, list[tuple[float, float]]] = {name: [] for name in holders}
    for _ in range(rounds):
        for name, holder in holders.items():
            server.empty()
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                weights[name].append(alone.submit(weigh, holder, server.url()).result())
    print(f"\nBytes for each of {COUNT:,} held leases")
    print(f"  {'':<44}{'Python RSS':>14}{'Redis':>10}")
    for name, many in weights.items():
        resident, stored = (statistics.median(one[side] for one in many) for side in (0, 1))
        print(f"  {name:<44}{resident:>14,.0f}{stored:>10,.0f}")
