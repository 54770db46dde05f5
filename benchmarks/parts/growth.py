"""What more of everything costs: waiters of one lock, processes on one lock, leases that one process holds, and names.

A cost for each of them that stays the same is good; one that grows says where the limit is."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import redis

import leasehold
from benchmarks import peers, race
from benchmarks.parts import embedded
from benchmarks.race import COMMANDS, FAIRNESS, HANDOFFS_PER_S, SERVER_US, TURNS_PER_S, WAIT_SHARES, Broken
from benchmarks.report.rows import Axis, Chart, Result, Row, compare
from benchmarks.rounds import FULL, QUICK, TINY, Effort, Setup
from benchmarks.server import Server, execution, usage
from leasehold._core.policy import renew_after
from leasehold._core.types import Instant
from leasehold._runtime.renewal_round import RenewalRound
from leasehold.stores.clock import SystemClock
from leasehold.stores.sqlite import SQLiteStore
from tests.support.servers.clock import WallClock


class Sizes(NamedTuple):
    """How far everything grows."""

    waiters: tuple[int, ...]
    processes: tuple[int, ...]
    leases: tuple[int, ...]
    file_leases: tuple[int, ...]  # on SQLite
    names: int
    file_names: int
    rest: float  # of a third of the ttl, in which the watchdog is watched


SIZES: dict[Effort, Sizes] = {
    FULL: Sizes(
        (2, 8, 64, 256, 1_000),
        (1, 2, 4, 8, 16, 32),
        (1, 100, 1_000, 10_000, 100_000),
        (1, 100, 1_000, 10_000),
        1_000_000,
        100_000,
        1.0,
    ),
    QUICK: Sizes((2, 64, 1_000), (1, 8, 32), (100, 10_000), (100, 1_000), 100_000, 10_000, 0.4),
    TINY: Sizes((2,), (1, 2), (20,), (20,), 500, 500, 0.01),
}
STRANGERS = 4  # processes for waiters that do not share a coordinator
MANY_TURNS, FEW_TURNS = 400, 16  # parties for each second of a race, so that each of them gets several turns


# ---------------------------------------------------------------- waiters and processes


def sides(parties: int, parts: int) -> list[int]:
    """So many parties, in so many parts of the same size."""
    parts = min(parties, parts)
    return [parties // parts + (number < parties % parts) for number in range(parts)]


def strangers(path: Path, peer: Any, place: str, parties: int, fenced: bool) -> Any:
    """Tasks with a coordinator each, so that each has a claim in the store."""
    sizes = sides(parties, STRANGERS)
    return race.processes(path, peer, place, parties, fenced, sizes=sizes, run=race.run_strangers)


THREADS, TASKS, OWN = "threads of one process", "tasks of one process", "tasks with a coordinator each"
CROWDS: dict[str, tuple[Any, Any]] = {
    THREADS: (race.threads, peers.ours),
    TASKS: (race.tasks, peers.ours_asyncio),
    OWN: (strangers, peers.ours_asyncio),
}
Lines = dict[str, list[tuple[float, float]]]


def waiters_work(kind: str) -> str:
    """The title of its table."""
    return f"Waiters of one lock on Redis, {kind}"


def waiters(setup: Setup) -> Result:
    """One lock that more and more wait for. Those of one coordinator pass it on; others wait in the store."""
    rows: list[Row] = []
    rates: Lines = {}
    costs: Lines = {}
    counts = SIZES[setup.effort].waiters
    with Server() as server:
        for kind, (crowd, peer) in CROWDS.items():
            racers = {f"{count:,} waiters": partial(_race, setup, server, crowd, peer, count) for count in counts}
            found = _compete(setup, kind, racers)
            rows += _crowd_rows(waiters_work(kind), found)
            rates[kind], costs[kind] = _lines(counts, found)
    axis = Axis("waiters of one lock", log=True, ticks=counts)
    rate, cost = Axis(HANDOFFS_PER_S, log=True), Axis(SERVER_US, log=True)
    charts = [
        Chart("growth-waiters", "Throughput against waiters of one lock", axis, rate, rates),
        Chart("growth-waiters-cost", "Cost against waiters of one lock", axis, cost, costs),
    ]
    return Result(rows, charts)


def processes_work(store: str) -> str:
    """The title of its table."""
    return f"Processes on one lock, {store}"


def processes(setup: Setup) -> Result:
    """One lock that more and more processes want, each with one thread."""
    rows: list[Row] = []
    lines: Lines = {}
    counts = SIZES[setup.effort].processes
    with Server() as server:
        stores: dict[str, Callable[[int], Callable[[Path], race.Result]]] = {
            "Redis": lambda count: partial(_race, setup, server, race.processes, peers.ours, count),
            "SQLite": lambda count: partial(_file_race, setup, count),
        }
        for store, racer in stores.items():
            found = _compete(setup, store, {_processes(count): racer(count) for count in counts})
            rows += _crowd_rows(processes_work(store), found, server=store == "Redis")
            lines[store] = _lines(counts, found)[0]
    axis = Axis("processes on one lock", log=True, ticks=counts)
    title = "Throughput against processes on one lock"
    return Result(rows, [Chart("growth-processes", title, axis, Axis(HANDOFFS_PER_S, log=True), lines)])


TWO = "Two processes on one lock, SQLite, by core"
ANYWHERE, SAME, OWN_CORE = "where the system puts them", "both on one core", "each on a core of its own"


def cores(setup: Setup) -> Result:
    """Two processes can run at the same time only if the system gives them two cores, and that differs from run to
    run: each way by itself."""
    racers = {
        ANYWHERE: partial(_file_race, setup, 2),
        SAME: partial(_file_race, setup, 2, peer=_ours_on_one_core),
        OWN_CORE: partial(_file_race, setup, 2, peer=_ours_on_its_own_core),
    }
    return Result(_crowd_rows(TWO, _compete(setup, "SQLite", racers), server=False))


@contextmanager
def _ours_on_one_core(folder: str) -> Iterator[Any]:
    """All processes on the first core. Each sets its own: those that start them are not asked."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with embedded.ours(folder) as locks:
        yield locks


@contextmanager
def _ours_on_its_own_core(folder: str) -> Iterator[Any]:
    """The first process that comes gets the first core, and so on."""
    with Path(f"{folder}.cores").open("ab") as file:  # what is appended has a place that no other process gets
        file.write(b".")
        file.flush()
        place = file.tell()
    mine = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {mine[place % len(mine)]})
    with embedded.ours(folder) as locks:
        yield locks


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _race(setup: Setup, server: Server, crowd: Any, peer: Any, parties: int, folder: Path) -> race.Result:
    server.empty()
    seconds = max(setup.effort.race_seconds, parties / MANY_TURNS)
    return race.race(peer, server.url(), folder, parties, seconds, crowd=crowd, usage=server.usage, fenced=True)


def _file_race(setup: Setup, parties: int, folder: Path, peer: Any = embedded.ours) -> race.Result:
    seconds = max(setup.effort.race_seconds, parties / FEW_TURNS)
    return race.race(peer, str(folder), folder, parties, seconds, fenced=True)


def _compete(
    setup: Setup, kind: str, racers: Mapping[str, Callable[[Path], race.Result]]
) -> dict[str, list[race.Result]]:
    """Each size in turn, round after round."""
    results: dict[str, list[race.Result]] = {name: [] for name in racers}
    rounds = min(setup.effort.races, 3)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for place, (name, run) in enumerate(racers.items()):
                setup.step(f"{kind}, {name}: race", number * len(racers) + place + 1, rounds * len(racers))
                results[name].append(run(Path(folder) / f"{name} {number}"))
    return results


def _crowd_rows(work: str, found: Mapping[str, list[race.Result]], server: bool = True) -> list[Row]:
    columns: dict[str, Callable[[race.Result], float]] = {
        HANDOFFS_PER_S: lambda one: one.handoffs_per_s,
        TURNS_PER_S: lambda one: one.turns_per_s(),
        FAIRNESS: lambda one: one.fairness,
        WAIT_SHARES: lambda one: one.wait_shares(),
    }
    if server:
        columns |= {COMMANDS: lambda one: one.commands, SERVER_US: lambda one: one.server_us}
    return [
        row
        for unit, figure in columns.items()
        for row in compare(work, unit, {name: [figure(one) for one in many] for name, many in found.items()})
    ]


def _lines(counts: Sequence[int], found: Mapping[str, list[race.Result]]) -> tuple[Any, Any]:
    """Handoffs/s and the cost of one, against the number of parties."""
    each = list(zip(counts, found.values(), strict=True))
    rates = [(count, statistics.median(one.handoffs_per_s for one in many)) for count, many in each]
    return rates, [(count, statistics.median(one.server_us for one in many)) for count, many in each]


# ---------------------------------------------------------------- what a turn takes among many

TTL = 30
CALLS, TURN_CPU = "calls a turn", "CPU, µs a turn"
COHORT, RING = "one lock for all", "a lock for each"
LOOK = 0.01  # seconds between two looks whether everybody has had a turn


class Calls:
    """Counts what is called, in Python and in C, on the threads that start while it watches."""

    def __init__(self) -> None:
        self._counts: list[list[int]] = []

    def __enter__(self) -> Calls:
        threading.setprofile(self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)

    def _begin(self, *_: object) -> None:
        count = [0]
        self._counts.append(count)

        def note(frame: object, event: str, argument: object) -> None:
            if event in {"call", "c_call"}:
                count[0] += 1

        sys.setprofile(note)

    def total(self) -> int:
        """Until now."""
        return sum(count[0] for count in self._counts)


class Turns:
    """How many turns each party has had, and whether it is to go on."""

    def __init__(self, parties: int) -> None:
        self.parties = parties
        self.over = False
        self.taken = [0] * parties

    def total(self) -> int:
        """Of all of them."""
        return sum(self.taken)


def _cohort_of_threads(turns: Turns) -> None:
    """All take one lock, and pass it on to each other."""
    with leasehold.connect("memory://turns") as hold:

        def run(me: int) -> None:
            while not turns.over:
                with hold.lock("turns", ttl=TTL):
                    turns.taken[me] += 1

        _together(run, turns.parties)


def _ring_of_threads(turns: Turns) -> None:
    """Each takes a lock of its own, when the one before it says so: no lock is ever waited for."""
    asleep = [threading.Semaphore(0) for _ in turns.taken]
    asleep[0].release()
    with leasehold.connect("memory://turns") as hold:

        def run(me: int) -> None:
            while not turns.over:
                asleep[me].acquire()
                with hold.lock("turns", me, ttl=TTL):
                    turns.taken[me] += 1
                asleep[(me + 1) % turns.parties].release()

        _together(run, turns.parties)


def _together(run: Callable[[int], None], parties: int) -> None:
    threads = [threading.Thread(target=run, args=[number]) for number in range(parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _cohort_of_tasks(turns: Turns) -> None:
    """The same on an event loop."""

    async def main() -> None:
        async with leasehold.aio.connect("memory://turns") as hold:

            async def run(me: int) -> None:
                while not turns.over:
                    async with hold.lock("turns", ttl=TTL):
                        turns.taken[me] += 1
                        await asyncio.sleep(0)  # others come to wait

            await asyncio.gather(*[run(me) for me in range(turns.parties)])

    asyncio.run(main())


def _ring_of_tasks(turns: Turns) -> None:
    """The same on an event loop."""

    async def main() -> None:
        asleep = [asyncio.Semaphore(0) for _ in turns.taken]
        asleep[0].release()
        async with leasehold.aio.connect("memory://turns") as hold:

            async def run(me: int) -> None:
                while not turns.over:
                    await asleep[me].acquire()
                    async with hold.lock("turns", me, ttl=TTL):
                        turns.taken[me] += 1
                        await asyncio.sleep(0)
                    asleep[(me + 1) % turns.parties].release()

            await asyncio.gather(*[run(me) for me in range(turns.parties)])

    asyncio.run(main())


MOVES = {
    "threads": {COHORT: _cohort_of_threads, RING: _ring_of_threads},
    "tasks": {COHORT: _cohort_of_tasks, RING: _ring_of_tasks},
}


def turns_work(kind: str) -> str:
    """The title of its table."""
    return f"A turn among {kind} of one process, in memory"


def turns(setup: Setup) -> Result:
    """Does a turn do more when more wait, or does the same take longer? Each turn is a lease: of one lock that passes
    within the process, or of a lock for each party, which nobody waits for."""
    rows: list[Row] = []
    counts = [count for count in SIZES[setup.effort].waiters if count >= 64] or list(SIZES[setup.effort].waiters)
    rounds = min(setup.effort.rounds, 5)
    for kind, moves in MOVES.items():
        racers = {f"{count:,} {kind}, {name}": (move, count) for count in counts for name, move in moves.items()}
        cpu: dict[str, list[float]] = {name: [] for name in racers}
        for number in range(rounds):
            for place, (name, (move, count)) in enumerate(racers.items()):
                setup.step(f"{name}: turns", number * len(racers) + place + 1, rounds * len(racers))
                cpu[name].append(_turn_cost(setup, move, count, lambda: time.process_time() * 1e6))
        calls: dict[str, list[float]] = {}
        for name, (move, count) in racers.items():
            with Calls() as watch:
                calls[name] = [_turn_cost(setup, move, count, watch.total)] * 2
        rows += [*compare(turns_work(kind), TURN_CPU, cpu), *compare(turns_work(kind), CALLS, calls)]
    return Result(rows)


def _turn_cost(setup: Setup, move: Callable[[Turns], None], parties: int, meter: Callable[[], float]) -> float:
    """What the meter counts, for each turn."""
    taken = Turns(parties)
    thread = threading.Thread(target=move, args=[taken])
    thread.start()
    try:
        while not all(taken.taken):
            time.sleep(LOOK)
        before, began = meter(), taken.total()
        time.sleep(setup.effort.race_seconds)
        return (meter() - before) / max(taken.total() - began, 1)
    finally:
        taken.over = True
        thread.join()


# ---------------------------------------------------------------- held leases

WARM_UP = 200  # leases that come first, so that what is allocated once does not count
CHUNKS, CHUNK = 20, 50  # pairs of which the median is taken
LEAST_WEIGHED = 1_000  # leases: the memory of fewer is lost in that of the process
ACQUIRE, PAIR, RENEWAL = "an acquire, µs", "a pair beside them, µs", "a renewal, client CPU, µs"
RENEWAL_REDIS, SHARE, SHARE_REDIS = "Redis executes, µs", "CPU of the process, %", "CPU of Redis, %"
IN_PYTHON, IN_REDIS, IN_FILE = "Python, bytes a lease", "Redis, bytes a lease", "file, bytes a lease"
UNITS = (ACQUIRE, PAIR, RENEWAL, RENEWAL_REDIS, SHARE, SHARE_REDIS, IN_PYTHON, IN_REDIS, IN_FILE)


def leases_work(store: str) -> str:
    """The title of its table."""
    return f"Held leases of one process, {store}, ttl 30 s"


def pair_us(hold: leasehold.Leasehold, name: str) -> float:
    """How long a pair on names that nobody has used takes: the median over chunks."""
    took = []
    for chunk in range(CHUNKS):
        began = time.perf_counter()
        for number in range(CHUNK):
            with hold.lock(name, chunk, number, ttl=TTL):
                pass
        took.append((time.perf_counter() - began) / CHUNK * 1e6)
    return statistics.median(took)


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Renewals:
    """Counts the leases that watchdogs renew in this process."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[Renewals]:
        """Meanwhile."""
        renew = RenewalRound.renew

        def counting(one: RenewalRound, due: list[Any], others: Sequence[Any] = ()) -> None:
            self.count += len(due)
            renew(one, due, others)

        with patch.object(RenewalRound, "renew", counting):
            yield self


class Meter(NamedTuple):
    """What a store has used so far, as a process of its own reads it."""

    stored: Callable[[], float]  # bytes
    executed_us: Callable[[], float]
    cpu_ms: Callable[[], float]


@contextmanager
def meter(place: str) -> Iterator[Meter]:
    """For a URL of Redis or of a file."""
    if place.startswith("sqlite"):
        path = place.removeprefix("sqlite:///")
        yield Meter(lambda: file_bytes(path), lambda: 0.0, lambda: 0.0)
        return
    with redis.Redis.from_url(place) as client:
        yield Meter(lambda: usage(client).memory, lambda: execution(client)[1], lambda: usage(client).cpu_ms)


def file_bytes(path: str) -> int:
    """With the log that is not yet part of it."""
    return sum(one.stat().st_size for one in (Path(path), Path(f"{path}-wal")) if one.exists())


def hold_many(place: str, count: int, rest: float) -> dict[str, float]:
    """In a process of its own: acquire so many leases, then rest and let the watchdog work."""
    with leasehold.connect(place) as hold, meter(place) as store, Renewals().counted() as renewals:
        for number in range(WARM_UP):
            with hold.lock("warm-up", number, ttl=TTL):
                pass
        resident, stored = _resident(), store.stored()
        began = time.perf_counter()
        kept = [hold.lock("held", number, ttl=TTL).acquire() for number in range(count)]
        found = {ACQUIRE: (time.perf_counter() - began) / count * 1e6}
        if count >= LEAST_WEIGHED:
            found[IN_PYTHON] = (_resident() - resident) / count
            found[IN_FILE if place.startswith("sqlite") else IN_REDIS] = (store.stored() - stored) / count
        found[PAIR] = pair_us(hold, "beside")
        found |= _rested(store, renewals, rest * renew_after(TTL))
        if any(lease is None or lease.state != "held" for lease in kept):
            raise Broken("a lease was lost")
        return found


def _rested(store: Meter, renewals: Renewals, seconds: float) -> dict[str, float]:
    """What the watchdog and the store do while nothing else happens."""
    renewed, cpu, executed, server_ms = renewals.count, time.process_time(), store.executed_us(), store.cpu_ms()
    time.sleep(seconds)  # what is spent meanwhile is measured
    client_us = (time.process_time() - cpu) * 1e6
    renewed = renewals.count - renewed
    found = {SHARE: client_us / seconds / 1e4}
    if server_ms:
        found[SHARE_REDIS] = (store.cpu_ms() - server_ms) / seconds / 10
    if renewed:
        found[RENEWAL] = client_us / renewed
    if renewed and server_ms:
        found[RENEWAL_REDIS] = (store.executed_us() - executed) / renewed
    return found


def redis_leases(setup: Setup) -> Result:
    """Leases that one process holds: what the next one costs, what renewing them costs, and what each weighs."""
    with Server() as server, server.one_core():
        places = {count: server.url() for count in SIZES[setup.effort].leases}
        return Result(_leases(setup, "Redis", places, server.empty))


def sqlite_leases(setup: Setup) -> Result:
    """The same in a file."""
    with tempfile.TemporaryDirectory() as folder:
        places = {count: f"sqlite:///{folder}/{count}.db" for count in SIZES[setup.effort].file_leases}
        return Result(_leases(setup, "SQLite", places, lambda: None))


def _leases(setup: Setup, store: str, places: Mapping[int, str], begin: Callable[[], None]) -> list[Row]:
    stages: dict[str, dict[str, float]] = {}
    for number, (count, place) in enumerate(places.items()):
        setup.step(f"{count:,} leases:", number + 1, len(places))
        begin()
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            found = alone.submit(hold_many, place, count, SIZES[setup.effort].rest).result()
        stages[f"{count:,} lease{'s' * (count > 1)}"] = {unit: found[unit] for unit in UNITS if unit in found}
    return stage_rows(leases_work(store), stages)


def stage_rows(work: str, stages: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """A line for each stage, a column for each unit; measured once."""
    return [
        row
        for stage, found in stages.items()
        for unit, value in found.items()
        for row in compare(work, unit, {stage: [value]})
    ]


# ---------------------------------------------------------------- names

LATER = 25 * 3600  # seconds: a name that was idle for a day is forgotten
BATCH = 250
LONGEST_EXPIRY = 60  # seconds in which Redis must have deleted what is over
KEYS, ROWS, MB, BYTES, PAIR_ALONE = "keys", "rows", "MB", "bytes a name", "a pair, µs"


def use_names(setup: Setup, hold: leasehold.Leasehold, name: str, count: int) -> None:
    """Take and give back so many names, each once."""
    for start in range(0, count, BATCH):
        if start % (count // 10 // BATCH * BATCH or BATCH) == 0:
            setup.step(f"names, {name}", start + 1, count)
        batch = hold.acquire_many(
            [hold.lock(name, number, ttl=TTL) for number in range(start, min(start + BATCH, count))]
        )
        if not all(hold.release_many(batch)):
            raise Broken("a lease was lost")


def names_work(store: str, count: int) -> str:
    """The title of its table."""
    return f"{count:,} names, each taken and given back once, {store}"


def until_gone(client: redis.Redis) -> float:
    """Wait until Redis has deleted every key; returns the seconds."""
    began = time.monotonic()
    while client.dbsize():
        if time.monotonic() - began > LONGEST_EXPIRY:
            raise Broken(f"{client.dbsize():,} keys are left of names that were idle for a day")
        time.sleep(0.05)  # between two looks
    return time.monotonic() - began


def redis_names(setup: Setup) -> Result:
    """Names on Redis, and what is left of them."""
    count = SIZES[setup.effort].names
    clock = WallClock()
    stages: dict[str, dict[str, float]] = {}
    with (
        Server(clock.environment()) as server,
        server.one_core(),
        leasehold.connect(server.url()) as hold,
        redis.Redis.from_url(server.url()) as client,
    ):

        def stage(name: str, pair: str) -> None:
            keys, memory = float(client.dbsize()), server.usage().memory
            stages[name] = {KEYS: keys, MB: memory / 1e6, PAIR_ALONE: pair_us(hold, pair)}

        pair_us(hold, "warm-up")
        stage("before", "before")
        empty = server.usage().memory
        use_names(setup, hold, "names", count)
        weight = (server.usage().memory - empty) / count
        stage("after", "after")
        stages["after"][BYTES] = weight
        clock.set_off(LATER)
        took = until_gone(client)
        stage("a day later", "later")
    note = f"Redis deleted the keys within {took:.1f} s of the day being over."
    return Result(stage_rows(names_work("Redis", count), stages), notes=[note])


USED = """SELECT (page_count - freelist_count) * page_size
    FROM pragma_page_count, pragma_freelist_count, pragma_page_size"""


class Later(SystemClock):
    """The real time, and some more."""

    seconds = 0.0

    def now(self) -> float:
        """Since boot."""
        return super().now() + self.seconds

    def instant(self) -> Instant:
        """For the store."""
        found = super().instant()
        return Instant(found.ms + int(self.seconds * 1e3), found.wall_us + int(self.seconds * 1e6))


def sqlite_names(setup: Setup) -> Result:
    """Names in a file, which does not grow for ever."""
    count = SIZES[setup.effort].file_names
    clock = Later()
    stages: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/leases.db"
        with leasehold.connect(SQLiteStore(path, clock)) as hold:
            pair_us(hold, "warm-up")

            def stage(name: str, pair: str) -> None:
                with closing(sqlite3.connect(path)) as file:
                    rows = file.execute("SELECT count(*) FROM resources").fetchone()[0]
                    used = file.execute(USED).fetchone()[0]
                stages[name] = {ROWS: rows, MB: file_bytes(path) / 1e6, BYTES: used / rows}
                stages[name][PAIR_ALONE] = pair_us(hold, pair)

            stage("before", "before")
            use_names(setup, hold, "names", count)
            stage("after", "after")
            for day in range(1, 4):
                clock.seconds += LATER
                use_names(setup, hold, f"day-{day}", count)
                stage(f"{day} day{'s' * (day > 1)} later, after as many new names", f"later-{day}")
    return Result(stage_rows(names_work("SQLite", count), stages))


PIECES = {
    "waiters": waiters,
    "turns": turns,
    "processes": processes,
    "cores": cores,
    "redis_leases": redis_leases,
    "sqlite_leases": sqlite_leases,
    "redis_names": redis_names,
    "sqlite_names": sqlite_names,
}
