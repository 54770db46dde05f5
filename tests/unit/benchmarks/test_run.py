"""How the benchmark runs: rounds, the checks during a race, the command line and its smallest part."""

from __future__ import annotations

import io
import itertools
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import race
from benchmarks.__main__ import PARTS, main
from benchmarks.parts import capacity, embedded, growth
from benchmarks.progress import GREEN, Progress, coloured
from benchmarks.race import Board, Broken
from benchmarks.report.machine import ROOT
from benchmarks.rounds import EFFORTS, TINY, Effort, Run, Setup, interleave, rates
from tests.support.tables import each
from tests.support.waiting import until
from tests.unit.benchmarks import pieces


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


def quiet() -> Setup:
    """A setup that shows nothing."""
    return Setup(TINY, lambda *_: None)


# ---------------------------------------------------------------- rounds


def test_contenders_alternate() -> None:
    """After a warm-up each contender runs once in each round. Each round has an order of its own, the same in each
    run of the benchmarks."""

    def calls_of(rounds: int) -> list[str]:
        calls: list[str] = []

        def run(name: str) -> Run:
            return lambda count: calls.append(f"{name}{count}")

        series = interleave(quiet(), {"a": run("a"), "b": run("b")}, {"a": 20, "b": 5}, rounds)
        assert [len(one.rates) for one in series.values()] == [rounds, rounds]
        return calls

    calls = calls_of(10)
    assert calls[:2] == ["a2", "b1"]
    orders = [tuple(calls[at : at + 2]) for at in range(2, len(calls), 2)]
    assert set(orders) == {("a20", "b5"), ("b5", "a20")}
    assert calls_of(10) == calls


def test_a_contender_may_measure_itself() -> None:
    """Its rate is taken as it is, and its CPU time is not known."""
    series = interleave(quiet(), {"a": lambda _: 1000.0, "b": lambda _: None}, {"a": 1, "b": 1}, 2)
    assert series["a"].rates == [1000.0, 1000.0]
    assert {row.contender for row in rates("work", "pairs/s", series, cpu=True) if "CPU" in row.unit} == {"b"}


# ---------------------------------------------------------------- the checks during a race


class AlternatingLock:
    """Two threads get it in turn, however seldom one of them runs, until the race is over; each turn has the next
    fence."""

    def __init__(self, fences: Iterator[int], folder: Path) -> None:
        self._free, self._last, self._fences, self._folder = threading.Lock(), 0, fences, folder

    def __enter__(self) -> SimpleNamespace:
        board = Board(self._folder / "board")
        until(lambda: self._last != threading.get_ident() or board[race.STOP], every=0.0001)
        self._free.acquire()
        self._last = threading.get_ident()
        return SimpleNamespace(fence=next(self._fences))

    def __exit__(self, *_: object) -> None:
        self._free.release()


@pytest.fixture
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure at once: what a figure is does not matter here."""
    monkeypatch.setattr(race, "SETTLE_SECONDS", 0.0)


def raced(fences: Iterator[int], folder: Path) -> race.Result:
    """Two threads take turns for a moment."""
    lock = AlternatingLock(fences, folder / "race")
    return race.race(
        lambda _: nullcontext(lambda _: lock), "", folder / "race", 2, 0.2, crowd=race.threads, fenced=True
    )


@pytest.mark.usefixtures("no_settling")
def test_a_race_counts_handoffs(tmp_path: Path) -> None:
    """Every turn goes to the other thread: between two looks at the board, one of them is two turns ahead at most."""
    found = raced(itertools.count(1), tmp_path)
    assert found.fairness <= 3
    assert len(found.took_us) >= 2 and found.p50_us <= found.p99_us


def test_two_holders_are_noticed(tmp_path: Path) -> None:
    """The board is shared memory that only the holder touches: whoever finds another inside reports it."""
    board = Board.new(tmp_path / "board")
    board.turn(1, 0)
    assert not board[race.BROKEN]
    board[race.INSIDE] = 2
    board.turn(1, 0)
    assert board[race.BROKEN] == 1


@pytest.mark.usefixtures("no_settling")
def test_a_falling_fence_fails_the_race(tmp_path: Path) -> None:
    """No figure of a lock that breaks its promise is shown."""
    with pytest.raises(Broken, match="fence order"):
        raced(itertools.count(10**9, -1), tmp_path)


@pytest.mark.usefixtures("no_settling")
def test_a_race_measures_waits(tmp_path: Path) -> None:
    """Of two threads that alternate each waits for one turn of the other: about its fair share."""
    found = raced(itertools.count(1), tmp_path)
    assert {party for party, _ in found.waits} == {1, 2}
    assert found.turns_per_s() == pytest.approx(found.parties * 1e6 / found.share_us)
    assert found.wait_shares() > 0 and found.wait_shares(range(1, 2)) > 0


def test_waits_are_kept_by_party(tmp_path: Path) -> None:
    """The latest turns, in their order, and how long each party waited for its turn."""
    board = Board.new(tmp_path / "board")
    for me in (1, 2, 1):
        board.turn(me, 0, time.monotonic_ns() - me * 10**9)
    waits = board.waits_us(0, board[race.TAKEN])
    assert [party for party, _ in waits] == [1, 2, 1]
    assert [round(us / 1e6) for _, us in waits] == [1, 2, 1]


def test_parties_are_numbered_through_all_processes() -> None:
    """From 1 on, each once."""
    assert race.crews([2, 1, 3]) == [range(1, 3), range(3, 4), range(4, 7)]
    assert growth.sides(10, 4) == [3, 3, 2, 2]
    assert growth.sides(2, 4) == [1, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("no_settling")
def test_a_race_that_fails_ends_its_processes(tmp_path: Path) -> None:
    """A party may be stuck, and nobody waits for it."""
    before = set(active_children())
    with pytest.raises(Broken, match="a party is stuck"):
        race.race(pieces.stuck, "", tmp_path / "race", 2, 0.0)
    until(lambda: not set(active_children()) - before, "every party has ended")


def test_too_many_permits_are_noticed(tmp_path: Path) -> None:
    """Each holder notes how much it holds: together never more than the limit."""
    board = Board.new(tmp_path / "board")
    board.share(1, 3, limit=4)
    board.share(2, 1, limit=4)
    assert not board[race.BROKEN]
    board.share(3, 1, limit=4)
    assert board[race.BROKEN] == 1
    board.share(2, 0, limit=4)
    board.share(3, 1, limit=4)
    assert board[race.BROKEN] == 1


def test_turns_out_of_order_are_noticed() -> None:
    """A busy machine may keep a party from claiming its next turn for a while, but none must starve."""
    race.check_order([30, 31, 30])
    race.check_order([0, 20])
    race.check_order([26, 102])
    with pytest.raises(Broken, match="not in order"):
        race.check_order([1, 50])


# ---------------------------------------------------------------- the command line


def test_every_part_is_listed() -> None:
    """A module of ``benchmarks.parts`` is a part, and the command knows it."""
    assert embedded.__file__ is not None
    modules = {path.stem for path in Path(embedded.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(PARTS) == modules
    assert len(PARTS) == len(modules)


@each("sizes", [growth.SIZES, capacity.WAITERS, capacity.HOLDERS])
def test_every_effort_has_sizes(sizes: dict[Effort, object]) -> None:
    """Also the smallest one."""
    assert set(sizes) == set(EFFORTS.values())


@pytest.mark.slow
def test_names_vanish_from_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The smallest piece of growth: as many new names on each of several days, and fewer rows than all of them."""
    assert main(["growth.sqlite_names", "--effort", "tiny", "--out", str(tmp_path), "--json", "-"]) == 0
    rows = json.loads(capfd.readouterr().out)["rows"]
    kept = [row["value"] for row in rows if row["unit"] == growth.ROWS]
    assert len(kept) == 5 and kept[-1] < 5 * growth.SIZES[TINY].file_names + 5 * growth.CHUNKS * growth.CHUNK


@pytest.mark.slow
@pytest.mark.parametrize("move", [move for moves in growth.MOVES.values() for move in moves.values()])
def test_a_turn_does_as_much_among_many(move: Callable[[growth.Turns], None]) -> None:
    """What is called for each of them, among two and among sixteen. That is counted, and so is not a matter of time."""
    calls = []
    for parties in (2, 16):
        with growth.Calls() as watch:
            calls.append(growth._turn_cost(quiet(), move, parties, watch.total))
    assert 50 < calls[0] < 1.3 * calls[1] and calls[1] < 1.3 * calls[0], calls


@pytest.mark.slow
def test_the_smallest_part(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With ``--json -`` standard output is JSON alone; progress goes to standard error, and files to the folder."""
    assert main(["embedded.threads", "--effort", "tiny", "--out", str(tmp_path), "--json", "-"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert {"date", "commit", "CPUs", "Python", "redis-server", "redis", "effort"} <= set(found["machine"])
    assert [(row["part"], row["unit"], row["value"] > 0) for row in found["rows"]] == [
        ("embedded.threads", unit, True)
        for unit in ("handoffs/s", "fairness", "p50, µs", "p99, µs")
        for _ in ("SQLite", "memory")
    ]
    assert "[1/1] embedded.threads ... " in err
    assert "\x1b" not in out + err
    assert json.loads((tmp_path / "report.json").read_text()) == found
    assert "| **Leasehold, memory** " in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_a_part_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The others still run and are written; the report names it, and the exit status is 1."""
    monkeypatch.setattr(embedded, "PIECES", {"broken": pieces.broken, "fine": pieces.fine})
    assert main(["embedded", "--effort", "tiny", "--out", str(tmp_path)]) == 1
    assert "[1/2] embedded.broken ... 0 s: Broken: two holders" in re.sub(r"\d+ s", "0 s", capfd.readouterr().err)
    text = (tmp_path / "report.md").read_text()
    assert "**embedded.broken failed**: Broken: two holders" in text
    assert "all is well" in text


PROGRAM = """
import fcntl, signal, sys, termios
from benchmarks.__main__ import main
from benchmarks.parts import capacity, embedded, growth
from tests.unit.benchmarks import pieces
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # its keys are for us
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
embedded.PIECES = {"first": pieces.fine, "second": pieces.waiting, "third": pieces.fine}
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_an_interrupt_ends_the_run(tmp_path: Path) -> None:
    """Ctrl-C: what was found until then is said and written; what comes after does not run."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        with os.fdopen(theirs) as end:
            command = [sys.executable, "-c", PROGRAM, "embedded", "--effort", "tiny", "--out", str(tmp_path)]
            run = subprocess.Popen(
                command, cwd=ROOT, stdin=end, stdout=subprocess.DEVNULL, stderr=end, start_new_session=True
            )
        shown = b""
        while b"1 of 1" not in shown:
            shown += terminal.read(1000)
        os.write(ours, b"\x03")
        while b"wrote" not in shown:
            shown += terminal.read(1000)
        assert run.wait(60) == 1
    assert b"interrupted; measured until then: embedded.first" in shown
    assert b"Traceback" not in shown
    found = json.loads((tmp_path / "report.json").read_text())
    assert list(found["notes"]) == ["embedded.first"]
    assert list(found["failures"]) == ["embedded.second"]


@pytest.mark.parametrize("part", ["nothing", "embedded.nothing"])
def test_an_unknown_part(part: str, tmp_path: Path) -> None:
    """It is refused before anything runs."""
    with pytest.raises(SystemExit):
        main([part, "--out", str(tmp_path)])


# ---------------------------------------------------------------- progress


def test_progress_off_a_terminal() -> None:
    """One line for each part, without control characters."""
    stream = io.StringIO()
    progress = Progress(2, stream)
    progress.begin("pairs")
    progress.step("round", 1, 3)
    progress.end()
    progress.begin("leases")
    progress.end("Broken: lost")
    assert stream.getvalue() == "[1/2] pairs ... 0 s\n[2/2] leases ... 0 s: Broken: lost\n"


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step replaces the one before; colours are left out where NO_COLOR is set."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    progress = Progress(1, stream)
    progress.begin("pairs")
    progress.step("round", 2, 3)
    assert "\r\x1b[K[1/1] pairs" in stream.getvalue()
    assert "round 2 of 3" in stream.getvalue()
    assert coloured("yes", GREEN, stream) == "\x1b[32myes\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("yes", GREEN, stream) == "yes"
