"""Several processes or threads take turns on one lock. Counts true handoffs (to another party), fairness and how long
a handoff takes, and checks at the same time that two parties are never inside together and that fences grow.

Nothing is done inside, and a party that has released claims again at once: fairness means that it then waits its turn.
The score board is shared memory that only the holder touches: it is itself a test of the lock. Fifty times a second
the holder stays for a moment: a turn alone is so short that a second thread inside would hardly ever be noticed. That
goes by time and not by turns, so that it costs a quick lock no more than a slow one."""

from __future__ import annotations

import asyncio
import gc
import mmap
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from multiprocessing import active_children
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.processes import FORKED
from benchmarks.report.rows import Row, compare
from benchmarks.rounds import Setup
from benchmarks.server import Usage

Lock = AbstractContextManager[Any]
Locks = Callable[[int], Lock]  # makes the lock of that number
Peer = Callable[[str], AbstractContextManager[Locks]]  # opens a client at a place: a folder or a URL
AsyncLocks = Callable[[int], AbstractAsyncContextManager[Any]]
AsyncPeer = Callable[[str], AbstractAsyncContextManager[AsyncLocks]]

INSIDE, LAST, HANDOFFS, FENCE, BROKEN, STOP, RELEASED, TAKEN, STAYED = range(9)
HANDOFFS_PER_S, TURNS_PER_S, FAIRNESS, COMMANDS = "handoffs/s", "turns/s", "fairness", "commands a handoff"
SERVER_US, WAIT_SHARES = "Redis CPU, µs a handoff", "wait p99, × fair share"
VISIT_EVERY = (0.004, 0.008)  # seconds between two visits
MOST = 1_100  # parties, counted from 1
TURNS, READY, JOURNAL = MOST, 2 * MOST, 3 * MOST
JOURNAL_WORDS = 1 << 16  # the latest handoffs; then of the latest turns how long each waited, and whose it was
WAITS, WHOSE, WORDS = (JOURNAL + part * JOURNAL_WORDS for part in (1, 2, 3))
SETTLE_SECONDS = 0.3
STAY_EVERY_NS, STAY_SECONDS = 20_000_000, 0.00005
MOST_UNFAIR = 20  # times as many turns as another party, which a busy machine may keep from claiming its next


class Result(NamedTuple):
    """What was measured in a race."""

    handoffs_per_s: float
    fairness: float  # most turns of a party over fewest
    p50_us: float  # from before the release to after the next acquire
    p99_us: float
    commands: float  # for each handoff, of the server
    requests: float
    took_us: list[float]  # each of the latest handoffs
    server_us: float = 0.0  # for each handoff, CPU of the server
    parties: int = 0
    share_us: float = 0.0  # how long a party waits when all wait equally long
    waits: Sequence[tuple[int, float]] = ()  # of the latest turns: whose it was, and the µs from its claim

    def turns_per_s(self) -> float:
        """Also those that the same party had again."""
        return self.parties * 1e6 / self.share_us

    def wait_shares(self, whose: Container[int] = range(MOST), percent: int = 99) -> float:
        """How long these parties wait at p99, in units of the fair share."""
        waits = [us for party, us in self.waits if party in whose]
        return statistics.quantiles(waits, n=100)[percent - 1] / self.share_us


class Broken(RuntimeError):
    """The lock did not do what it promises, so no figure of it counts."""


class PeerFailed(Broken):
    """A contender that is not ours has given no answer. The others go on without it."""


class Board:
    """64-bit words in shared memory."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    @classmethod
    def new(cls, path: Path) -> Board:
        """All zeros."""
        path.write_bytes(bytes(8 * WORDS))
        return cls(path)

    def __getitem__(self, word: int) -> int:
        return self._words[word]

    def __setitem__(self, word: int, value: int) -> None:
        self._words[word] = value

    def turn(self, me: int, fence: int, claimed_ns: int = 0) -> None:
        """What the holder does: check that it is alone, and count."""
        now, words = time.monotonic_ns(), self._words
        if words[INSIDE]:
            words[BROKEN] += 1
        words[INSIDE] = me
        if words[LAST] != me:
            words[JOURNAL + words[HANDOFFS] % JOURNAL_WORDS] = now - words[RELEASED]
            words[HANDOFFS] += 1
            words[LAST] = me
            if now - words[STAYED] > STAY_EVERY_NS:
                words[STAYED] = now
                time.sleep(STAY_SECONDS)
        if fence:
            words[BROKEN] += fence <= words[FENCE]
            words[FENCE] = fence
        turn = words[TAKEN]
        words[WAITS + turn % JOURNAL_WORDS] = now - claimed_ns
        words[WHOSE + turn % JOURNAL_WORDS] = me
        words[TAKEN] = turn + 1
        words[TURNS + me] += 1
        if words[INSIDE] != me:
            words[BROKEN] += 1
        words[INSIDE] = 0
        words[RELEASED] = time.monotonic_ns()

    def share(self, me: int, weight: int, limit: int) -> None:
        """What somebody does who may not be alone: note how much it holds, and check that all together hold no more
        than the limit. Afterwards it notes 0, before it releases."""
        self._words[TURNS + me] = weight
        if sum(self._words[TURNS:READY]) > limit:
            self._words[BROKEN] += 1

    def counts(self) -> tuple[int, int]:
        """How many handoffs and turns there were, both at one moment: between two turns."""
        while True:
            turns, handoffs = self._words[TAKEN], self._words[HANDOFFS]
            if not self._words[INSIDE] and self._words[TAKEN] == turns:
                return handoffs, turns

    def journal_us(self, first: int, last: int) -> list[float]:
        """How long these handoffs took."""
        first = max(first, last - JOURNAL_WORDS)
        return [self._words[JOURNAL + number % JOURNAL_WORDS] / 1000 for number in range(first, last)]

    def waits_us(self, first: int, last: int) -> list[tuple[int, float]]:
        """Whose these turns were, and how long it waited for each."""
        places = [number % JOURNAL_WORDS for number in range(max(first, last - JOURNAL_WORDS), last)]
        return [(self._words[WHOSE + place], self._words[WAITS + place] / 1000) for place in places]


def take_turns(board: Board, me: int, locks: Locks, fenced: bool) -> None:
    """One party: take turns until the board says stop, each with a new lock object, as people write it."""
    board[READY + me] = 1
    while not board[STOP]:
        claimed = time.monotonic_ns()
        with locks(1) as lease:
            board.turn(me, lease.fence if fenced else 0, claimed)


async def take_turns_in_task(board: Board, me: int, locks: AsyncLocks, fenced: bool) -> None:
    """The same in a task."""
    board[READY + me] = 1
    while not board[STOP]:
        claimed = time.monotonic_ns()
        async with locks(1) as lease:
            board.turn(me, lease.fence if fenced else 0, claimed)


def run_crew(path: Path, crew: range, peer: Peer, place: str, fenced: bool) -> None:
    """The parties of one process, with a client that they share: a single one, or threads. What was loaded is collected
    first: in a process that is a second old, that would take 25 ms of some contender's race, while all others wait."""
    board = Board(path)
    with peer(place) as locks:
        gc.collect()
        if len(crew) == 1:
            take_turns(board, crew[0], locks, fenced)
            return
        with ThreadPoolExecutor(len(crew)) as pool:
            list(pool.map(lambda me: take_turns(board, me, locks, fenced), crew))


def run_visited(path: Path, crew: range, peer: Peer, place: str, fenced: bool) -> None:
    """The same, but a party that is alone in its process only comes now and then."""
    if len(crew) > 1:
        run_crew(path, crew, peer, place, fenced)
        return
    board, (me,) = Board(path), crew
    with peer(place) as locks:
        gc.collect()
        board[READY + me] = 1
        while not board[STOP]:
            claimed = time.monotonic_ns()
            with locks(1) as lease:
                board.turn(me, lease.fence if fenced else 0, claimed)
            time.sleep(random.uniform(*VISIT_EVERY))


def run_tasks(path: Path, crew: range, peer: AsyncPeer, place: str, fenced: bool) -> None:
    """The same as tasks of one event loop."""

    async def run() -> None:
        board = Board(path)
        async with peer(place) as locks:
            await asyncio.gather(*[take_turns_in_task(board, me, locks, fenced) for me in crew])

    asyncio.run(run())


def run_strangers(path: Path, crew: range, peer: AsyncPeer, place: str, fenced: bool) -> None:
    """Tasks of one event loop, each with a client of its own."""

    async def one(board: Board, me: int) -> None:
        async with peer(place) as locks:
            await take_turns_in_task(board, me, locks, fenced)

    async def run() -> None:
        board = Board(path)
        await asyncio.gather(*[one(board, me) for me in crew])

    asyncio.run(run())


def crews(sizes: Sequence[int]) -> list[range]:
    """The numbers of the parties in each process."""
    return [range(1 + sum(sizes[:number]), 1 + sum(sizes[: number + 1])) for number in range(len(sizes))]


@contextmanager
def processes(
    path: Path,
    peer: Any,
    place: str,
    parties: int,
    fenced: bool,
    sizes: Sequence[int] = (),
    run: Callable[[Path, range, Any, str, bool], None] = run_crew,
) -> Iterator[list[Future[None]]]:
    """Each party is a process, or ``sizes`` says how many of them each process has, which ``run`` lets take turns. When
    something went wrong they are ended: next the files of their lock are deleted."""
    sizes = sizes or [1] * parties
    others, pool = active_children(), ProcessPoolExecutor(len(sizes), FORKED)
    with _ended(pool):
        try:
            yield [pool.submit(run, path, crew, peer, place, fenced) for crew in crews(sizes)]
        except BaseException:
            for process in set(active_children()).difference(others):
                process.terminate()
            raise


@contextmanager
def threads(path: Path, peer: Peer, place: str, parties: int, fenced: bool) -> Iterator[list[Future[None]]]:
    """Each party is a thread of this process; they share a client."""
    pool, board = ThreadPoolExecutor(parties), Board(path)
    with peer(place) as locks, _ended(pool):
        yield [pool.submit(take_turns, board, me, locks, fenced) for me in range(1, parties + 1)]


def tasks(path: Path, peer: AsyncPeer, place: str, parties: int, fenced: bool) -> Any:
    """Each party is a task of one process; they share a client."""
    return processes(path, peer, place, parties, fenced, sizes=[parties], run=run_tasks)


@contextmanager
def _ended(pool: Executor) -> Iterator[None]:
    """Wait for all parties, unless something went wrong: then one may be stuck, and the error must be seen."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def race(
    peer: Peer | AsyncPeer,
    place: str,
    folder: Path,
    parties: int,
    seconds: float,
    *,
    crowd: Callable[[Path, Any, str, int, bool], AbstractContextManager[list[Future[None]]]] = processes,
    usage: Callable[[], Usage] = lambda: Usage(0, 0, 0.0, 0),
    fenced: bool = False,
) -> Result:
    """Let the parties run for so long, and read the board. ``fenced`` is for locks that promise rising fences and turns
    in order of arrival: both are checked."""
    if parties >= MOST:
        raise ValueError(f"the board has room for {MOST - 1} parties")
    folder.mkdir()
    board = Board.new(folder / "board")
    with crowd(folder / "board", peer, place, parties, fenced) as futures:
        try:
            _await(board, READY, parties, futures)
            if fenced:  # then everybody gets a turn
                _await(board, TURNS, parties, futures)
            time.sleep(SETTLE_SECONDS)  # what starting them left to do must not be part of the race
            result, turns = _watch(board, parties, seconds, usage)
        finally:
            board[STOP] = 1
        for future in futures:
            future.result(60)
    if board[BROKEN]:
        raise Broken(f"{folder.name}: exclusion or fence order was broken {board[BROKEN]} times")
    if fenced:
        check_order(turns)
    return result


def _await(board: Board, words: int, parties: int, futures: list[Future[None]]) -> None:
    """Until the word of each party is set."""
    until = time.monotonic() + 60
    while not all(board[words + me] for me in range(1, parties + 1)):
        for future in futures:
            if future.done():
                future.result()
        if time.monotonic() > until:
            raise RuntimeError("a party did not start")
        time.sleep(0.01)


def check_order(turns: Sequence[int]) -> None:
    """With turns in order of arrival no party starves. How even they are is reported as fairness."""
    if max(turns) > MOST_UNFAIR * (min(turns) + 1):
        raise Broken(f"one party had {min(turns)} turns while another had {max(turns)}: the queue is not in order")


def _watch(board: Board, parties: int, seconds: float, usage: Callable[[], Usage]) -> tuple[Result, list[int]]:
    """What was measured, and how many turns each party had."""
    mine = [TURNS + me for me in range(1, parties + 1)]
    used, (first, first_turn), began = usage(), board.counts(), time.monotonic()
    turns = [board[word] for word in mine]
    time.sleep(seconds)
    spent, (last, last_turn), ended = usage().since(used), board.counts(), time.monotonic()
    gained = [board[word] - before for word, before in zip(mine, turns, strict=True)]
    waits = board.waits_us(first_turn, last_turn)
    handoffs = last - first if parties > 1 else len(waits)  # one alone hands it to itself
    if handoffs < 2:
        raise Broken(f"{handoffs} handoffs in {seconds} s: a party is stuck")
    took_us = board.journal_us(first, last) if parties > 1 else [us for _, us in waits]
    percent = statistics.quantiles(took_us, n=100)
    result = Result(
        handoffs / (ended - began),
        max(gained) / min(gained) if min(gained) else float("inf"),
        percent[49],
        percent[98],
        spent.commands / handoffs,
        spent.requests / handoffs,
        took_us,
        spent.cpu_ms * 1000 / handoffs,
        parties,
        parties * (ended - began) * 1e6 / sum(gained),
        waits,
    )
    return result, gained


# ---------------------------------------------------------------- several contenders

Racer = Callable[[Path, int], Result]  # lets so many parties run once, with a new folder for what it needs


def compete(setup: Setup, racers: Mapping[str, Racer], parties: int) -> dict[str, list[Result]]:
    """Each contender in turn, round after round. One that failed is left out."""
    results: dict[str, list[Result]] = {name: [] for name in racers}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(setup.effort.races):
            for place, (name, run) in enumerate(racers.items()):
                setup.step(
                    f"{parties} parties: race", number * len(racers) + place + 1, setup.effort.races * len(racers)
                )
                if name not in results:
                    continue
                try:
                    results[name].append(run(Path(folder) / f"{name.replace('/', ' ')} {number}", parties))
                except PeerFailed:
                    del results[name]
    return results


def race_rows(work: str, results: Mapping[str, list[Result]], *peers: str, server: bool = True) -> list[Row]:
    """The rows of a comparison; ``server`` is for those in which a server counts its commands."""
    columns: dict[str, Callable[[Result], float]] = {
        FAIRNESS: lambda one: one.fairness,
        "p50, µs": lambda one: one.p50_us,
        "p99, µs": lambda one: one.p99_us,
    }
    if server:
        columns |= {COMMANDS: lambda one: one.commands, "requests a handoff": lambda one: one.requests}
    rows = compare(
        work, HANDOFFS_PER_S, {name: [one.handoffs_per_s for one in many] for name, many in results.items()}, *peers
    )
    for unit, figure in columns.items():
        rows += compare(work, unit, {name: [figure(one) for one in many] for name, many in results.items()})
    return rows
