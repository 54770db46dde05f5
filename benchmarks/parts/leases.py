"""Many leases at once in one process: what a round of renewals costs, and what a held lease weighs."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redis

import leasehold
from benchmarks.peers import OURS, REDIS_PY
from benchmarks.race import Broken
from benchmarks.report.rows import Axis, Chart, Result, compare
from benchmarks.rounds import Setup
from benchmarks.server import Server, usage

TTL = 60
BATCH = 500
PIPELINE, ONE_BY_ONE = f"redis-py, pipelines of {BATCH}", "redis-py, one by one"
CPU, CLIENT_CPU, REDIS_CPU = "CPU, ms", "of the client", "of Redis"
MEMORY, IN_PYTHON, IN_REDIS = "Memory for each held lease", "Python, bytes", "Redis, bytes"
RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
ROUNDING = 0.002  # seconds: the store counts whole milliseconds
TRIES = 20  # of a round
CHECKED = 100  # leases that are also looked up in the store
MARKS = 10  # how often memory is read while leases are acquired


def renewals_work(count: int) -> str:
    """The title of its table."""
    return f"One round of renewals, {count:,} leases"


class Renewing(NamedTuple):
    """How one contender renews all its leases, and how the result is checked."""

    renew: Callable[[], None]
    check: Callable[[float], None]
    prepare: Callable[[], None] = lambda: None
    late: Callable[[], bool] = lambda: False  # Redis did not answer in time, so the round has to be repeated


# ---------------------------------------------------------------- renewals


class Ours:
    """Leases of one coordinator. Rounds of its watchdog are done on this thread, where they can be measured."""

    def __init__(self, hold: leasehold.Leasehold, count: int) -> None:
        self._hold, self._watchdog = hold, hold._engine.watchdog
        acquired = [hold.lock("renew", number, ttl=TTL).acquire() for number in range(count)]
        self._leases = [lease for lease in acquired if lease is not None]
        self._deadlines: list[float] = []

    def prepare(self) -> None:
        """Make every lease due. The watchdog's own thread sleeps for a third of the ttl, and does not notice."""
        self._deadlines = [lease.deadline for lease in self._leases]
        leases = self._watchdog.leases()
        for held in leases:
            held.renew_at = 0
        with self._watchdog.transitions:
            self._watchdog._schedule.move(leases, time.monotonic())

    def renew(self) -> None:
        """What the watchdog's thread does when it wakes, until nothing is due; a round may leave some for the next."""
        for _ in self._leases:
            self._watchdog.round()
            if all(held.renew_at for held in self._watchdog.leases()):
                return

    def late(self) -> bool:
        """A busy machine may be slower than the watchdog waits; no lease is lost by that, but it did not measure."""
        return any(lease.state == "unsure" for lease in self._leases)

    def check(self, began: float) -> None:
        """The deadline of each lease has moved, and the store says the same of some of them."""
        leases = zip(self._leases, self._deadlines, strict=True)
        renewed = sum(lease.state == "held" and lease.deadline > before for lease, before in leases)
        _none_lost(OURS, renewed, len(self._leases))
        some = self._leases[:: max(len(self._leases) // CHECKED, 1)]
        _none_lost(f"{OURS}, in the store", sum(self._renewed_since(lease, began) for lease in some), len(some))

    def _renewed_since(self, lease: leasehold.Lease, began: float) -> bool:
        """Whether the store keeps the lease as long as a renewal since then makes it."""
        left = [one.expires_in for one in self._hold.inspect(lease.resource).holders if one.fence == lease.fence]
        return bool(left) and left[0] >= TTL - (time.monotonic() - began) - ROUNDING


class Theirs:
    """Keys with an owner, renewed by a script that compares it."""

    def __init__(self, client: redis.Redis, count: int) -> None:
        self._client = client
        self._script: str = client.script_load(RENEW)
        self._keys = [f"renew:{number}" for number in range(count)]
        for keys in self._batches():
            with client.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.set(key, "owner-of-" + key, nx=True, px=TTL * 1000)
                pipe.execute()

    def _batches(self) -> Iterator[list[str]]:
        for start in range(0, len(self._keys), BATCH):
            yield self._keys[start : start + BATCH]

    def pipeline(self) -> None:
        """In pipelines."""
        replies: list[Any] = []
        for keys in self._batches():
            with self._client.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.evalsha(self._script, 1, key, "owner-of-" + key, str(TTL * 1000))
                replies += pipe.execute()
        _none_lost(PIPELINE, sum(replies), len(self._keys))

    def loop(self) -> None:
        """With one round trip for each key."""
        evalsha: Any = self._client.evalsha
        replies = [evalsha(self._script, 1, key, "owner-of-" + key, str(TTL * 1000)) for key in self._keys]
        _none_lost(ONE_BY_ONE, sum(replies), len(self._keys))

    def check(self, began: float) -> None:
        """Each key was renewed since then; the script has checked that it has our owner."""
        left: list[int] = []
        for keys in self._batches():
            with self._client.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.pttl(key)
                left += pipe.execute()
        least_ms = (TTL - (time.monotonic() - began)) * 1000
        _none_lost("redis-py", sum(ms >= least_ms for ms in left), len(self._keys))


def _none_lost(name: str, renewed: int, count: int) -> None:
    if renewed != count:
        raise Broken(f"{name}: {count - renewed} of {count} leases were lost or not renewed")


def renewals(setup: Setup) -> Result:
    """CPU time of client and server for one round over all leases; none may be lost."""
    result, lines = Result([]), dict[str, list[tuple[float, float]]]()
    for count in setup.effort.leases:
        with Server() as server:
            spent = _renew(setup, server, count)
        both = {name: [client + server_ms for client, server_ms in many] for name, many in spent.items()}
        rows = compare(renewals_work(count), CPU, both, PIPELINE)
        for row in rows:
            lines.setdefault(row.contender, []).append((count, row.figure.value))
        for side, unit in enumerate((CLIENT_CPU, REDIS_CPU)):
            rows += compare(
                renewals_work(count), unit, {name: [one[side] for one in many] for name, many in spent.items()}
            )
        result += Result(rows)
    title = "Cost against the number of leases: CPU of one round of renewals, client and Redis"
    chart = Chart("renewals", title, Axis("held leases", log=True), Axis("CPU, ms", log=True), lines)
    return result + Result([], [chart])


def _renew(setup: Setup, server: Server, count: int) -> dict[str, list[tuple[float, float]]]:
    rounds = max(setup.effort.rounds // 2, 1)
    with ExitStack() as stack:
        theirs = Theirs(stack.enter_context(redis.Redis.from_url(server.url(1))), count)
        ours = Ours(stack.enter_context(leasehold.connect(server.url())), count)
        work = {
            PIPELINE: Renewing(theirs.pipeline, theirs.check),
            OURS: Renewing(ours.renew, ours.check, ours.prepare, ours.late),
        }
        if not setup.effort.quick:
            work[ONE_BY_ONE] = Renewing(theirs.loop, theirs.check)
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
        for number in range(rounds):
            setup.step(f"{count:,} leases, round", number + 1, rounds)
            for name, one in work.items():
                spent[name].append(_round(server, one))
    return spent


def _round(server: Server, one: Renewing) -> tuple[float, float]:
    for _ in range(TRIES):
        time.sleep(0.2)  # so that a lease which was not renewed has visibly less time left
        measured, began = not one.late(), time.monotonic()  # a round after a late one only makes up for it
        one.prepare()
        spent = _cpu_ms(server, one.renew)
        if measured and not one.late():
            one.check(began)
            return spent
    raise TimeoutError(f"Redis did not answer in time in {TRIES} rounds of renewals: the machine is too busy")


def _cpu_ms(server: Server, renew: Callable[[], None]) -> tuple[float, float]:
    before, cpu = server.usage(), time.process_time()
    renew()
    client_ms = (time.process_time() - cpu) * 1000
    return client_ms, server.usage().since(before).cpu_ms


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


HOLDERS: dict[str, Callable[[str], Any]] = {REDIS_PY: hold_redis_py, OURS: hold_ours}
Weights = list[tuple[int, float, float]]  # held leases, and bytes of the process and of Redis since the first


def weigh(name: str, url: str, count: int) -> Weights:
    """In a process of its own: acquire so many leases, and read memory now and then."""
    with redis.Redis.from_url(url) as client, HOLDERS[name](url) as acquire:
        kept = [acquire(number) for number in range(-200, 0)]  # so that what is allocated once does not count
        resident, stored = _resident(), usage(client).memory
        weights: Weights = []
        for mark in range(MARKS):
            kept += [acquire(number) for number in range(mark * count // MARKS, (mark + 1) * count // MARKS)]
            weights.append((len(kept) - 200, _resident() - resident, usage(client).memory - stored))
        assert all(kept)
        return weights


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(setup: Setup) -> Result:
    """What a held lease takes on both sides."""
    count, rounds = setup.effort.leases[-1], max(setup.effort.races // 2, 1)
    weights: dict[str, list[Weights]] = {name: [] for name in HOLDERS}
    with Server() as server:
        for number in range(rounds):
            setup.step("round", number + 1, rounds)
            for name, many in weights.items():
                server.empty()
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                    many.append(alone.submit(weigh, name, server.url(), count).result())
    rows, lines = [], {}
    for side, unit in enumerate((IN_PYTHON, IN_REDIS), 1):
        rows += compare(
            MEMORY, unit, {name: [one[-1][side] / count for one in many] for name, many in weights.items()}, REDIS_PY
        )
        for name, many in weights.items():
            lines[f"{name}: {unit.partition(',')[0]}"] = [(held, amount[side - 1] / 1e6) for held, *amount in many[-1]]
    chart = Chart("memory", "Memory against the number of held leases", Axis("held leases"), Axis("MB"), lines)
    return Result(rows, [chart])


PIECES = {"renewals": renewals, "memory": memory}
