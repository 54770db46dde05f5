"""Several processes or threads take turns on one lock. Counts true handoffs (to another party), fairness and how long
a handoff takes, and checks at the same time that two parties are never inside together and that fences grow.

Nothing is done inside, and a party that has released claims again at once: fairness means that it then waits its turn.
The score board is shared memory that only the holder touches: it is itself a test of the lock. Now and then the holder
stays for a moment: a turn alone is so short that a second thread inside would hardly ever be noticed."""

from __future__ import annotations

import mmap
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
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

INSIDE, LAST, HANDOFFS, FENCE, BROKEN, STOP, RELEASED = range(7)
HANDOFFS_PER_S, FAIRNESS, COMMANDS = "handoffs/s", "fairness", "commands a handoff"
MOST = 100  # parties, counted from 1
TURNS, READY, JOURNAL = 100, 200, 300
JOURNAL_WORDS = 1 << 16  # the latest handoffs
SETTLE_SECONDS = 0.3
STAY_EVERY, STAY_SECONDS = 128, 0.00005
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


class Broken(RuntimeError):
    """The lock did not do what it promises, so no figure of it counts."""


class Board:
    """64-bit words in shared memory."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")

    @classmethod
    def new(cls, path: Path) -> Board:
        """All zeros."""
        path.write_bytes(bytes(8 * (JOURNAL + JOURNAL_WORDS)))
        return cls(path)

    def __getitem__(self, word: int) -> int:
        return self._words[word]

    def __setitem__(self, word: int, value: int) -> None:
        self._words[word] = value

    def turn(self, me: int, fence: int) -> None:
        """What the holder does: check that it is alone, and count."""
        now, words = time.monotonic_ns(), self._words
        if words[INSIDE]:
            words[BROKEN] += 1
        words[INSIDE] = me
        if words[LAST] != me:
            words[JOURNAL + words[HANDOFFS] % JOURNAL_WORDS] = now - words[RELEASED]
            words[HANDOFFS] += 1
            words[LAST] = me
            if words[HANDOFFS] % STAY_EVERY == 0:
                time.sleep(STAY_SECONDS)
        if fence:
            words[BROKEN] += fence <= words[FENCE]
            words[FENCE] = fence
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

    def journal_us(self, first: int, last: int) -> list[float]:
        """How long these handoffs took."""
        first = max(first, last - JOURNAL_WORDS)
        return [self._words[JOURNAL + number % JOURNAL_WORDS] / 1000 for number in range(first, last)]


def take_turns(board: Board, me: int, locks: Locks, fenced: bool) -> None:
    """One party: take turns until the board says stop, each with a new lock object, as people write it."""
    board[READY + me] = 1
    while not board[STOP]:
        with locks(1) as lease:
            board.turn(me, lease.fence if fenced else 0)


def run_party(path: Path, me: int, peer: Peer, place: str, fenced: bool) -> None:
    """One party that is a process of its own, with its own client."""
    with peer(place) as locks:
        take_turns(Board(path), me, locks, fenced)


@contextmanager
def processes(path: Path, peer: Peer, place: str, parties: int, fenced: bool) -> Iterator[list[Future[None]]]:
    """Each party is a process. When something went wrong they are ended: next the files of their lock are deleted."""
    others, pool = active_children(), ProcessPoolExecutor(parties, FORKED)
    with _ended(pool):
        try:
            yield [pool.submit(run_party, path, me, peer, place, fenced) for me in range(1, parties + 1)]
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
    peer: Peer,
    place: str,
    folder: Path,
    parties: int,
    seconds: float,
    *,
    crowd: Callable[[Path, Peer, str, int, bool], AbstractContextManager[list[Future[None]]]] = processes,
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
            _await_start(board, futures)
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


def _await_start(board: Board, futures: list[Future[None]]) -> None:
    until = time.monotonic() + 60
    while not all(board[READY + me] for me in range(1, len(futures) + 1)):
        for future in futures:
            if future.done():
                future.result()
        if time.monotonic() > until:
            raise RuntimeError("a party did not start")
        time.sleep(0.01)
    time.sleep(SETTLE_SECONDS)


def check_order(turns: Sequence[int]) -> None:
    """With turns in order of arrival no party starves. How even they are is reported as fairness."""
    if max(turns) > MOST_UNFAIR * (min(turns) + 1):
        raise Broken(f"one party had {min(turns)} turns while another had {max(turns)}: the queue is not in order")


def _watch(board: Board, parties: int, seconds: float, usage: Callable[[], Usage]) -> tuple[Result, list[int]]:
    """What was measured, and how many turns each party had."""
    mine = [TURNS + me for me in range(1, parties + 1)]
    used, first, began = usage(), board[HANDOFFS], time.monotonic()
    turns = [board[word] for word in mine]
    time.sleep(seconds)
    spent, last, ended = usage().since(used), board[HANDOFFS], time.monotonic()
    gained = [board[word] - before for word, before in zip(mine, turns, strict=True)]
    handoffs = last - first
    if handoffs < 2:
        raise Broken(f"{handoffs} handoffs in {seconds} s: a party is stuck")
    took_us = board.journal_us(first, last)
    percent = statistics.quantiles(took_us, n=100)
    result = Result(
        handoffs / (ended - began),
        max(gained) / min(gained) if min(gained) else float("inf"),
        percent[49],
        percent[98],
        spent.commands / handoffs,
        spent.requests / handoffs,
        took_us,
    )
    return result, gained


# ---------------------------------------------------------------- several contenders

Racer = Callable[[Path, int], Result]  # lets so many parties run once, with a new folder for what it needs


def compete(setup: Setup, racers: Mapping[str, Racer], parties: int) -> dict[str, list[Result]]:
    """Each contender in turn, round after round."""
    results: dict[str, list[Result]] = {name: [] for name in racers}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(setup.effort.races):
            for place, (name, run) in enumerate(racers.items()):
                setup.step(
                    f"{parties} parties: race", number * len(racers) + place + 1, setup.effort.races * len(racers)
                )
                results[name].append(run(Path(folder) / f"{name.replace('/', ' ')} {number}", parties))
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
