"""A piece of the benchmark runs in an interpreter of its own, and nothing of it is left afterwards."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import piece
from benchmarks.piece import Failed, run_alone
from benchmarks.report.rows import Result
from benchmarks.rounds import QUICK, TINY, Setup
from tests.support.servers.process import status
from tests.support.waiting import until
from tests.unit.benchmarks import pieces

pytestmark = pytest.mark.slow  # each starts an interpreter


def silent(*_: object) -> None:
    """Shows no step."""


def interrupt(what: str, *_: object) -> None:
    """Ctrl-C while that step is shown."""
    raise KeyboardInterrupt(what)


def ended(pid: int) -> bool:
    """It is gone, or only its exit status is left."""
    return status(pid) in {"", "Z", "X"}


def test_the_result_comes_back() -> None:
    """As it is, with figures that JSON has no word for."""
    assert run_alone(pieces.fine, "tiny", silent) == pieces.fine(Setup(TINY, silent))


def test_steps_are_shown_meanwhile() -> None:
    """In the process that shows the progress."""
    shown: list[tuple[str, int, int]] = []
    run_alone(pieces.steps, "tiny", lambda *step: shown.append(step))
    assert shown == [("round", 1, 2), ("round", 2, 2)]


def test_a_fresh_interpreter() -> None:
    """It has what the piece imports and little else: no other part, no report, no setting of the garbage collector."""
    found = json.loads(run_alone(pieces.state, "quick", silent).notes[0])
    modules = set(found["modules"])
    assert {"benchmarks.race", "tests.unit.benchmarks.pieces"} <= modules
    assert not {name for name in modules if name.startswith(("benchmarks.parts", "benchmarks.goals", "leasehold"))}
    assert found["garbage collection"] == [True, 0, *gc.get_threshold()]
    assert found["threads"] == 1
    assert found["effort"] == json.loads(json.dumps(QUICK))


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (pieces.broken, "Broken: two holders"),
        (pieces.unequipped, "SystemExit: redis-server is not installed"),
        (pieces.killed, "its process ended with status -9"),
    ],
)
def test_a_failure_says_why(run: Callable[[Setup], Result], error: str) -> None:
    """Also when the piece could not say it."""
    with pytest.raises(Failed) as failed:
        run_alone(run, "tiny", silent)
    assert str(failed.value) == error


def test_what_a_piece_leaves_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result counts; its programs and threads would disturb the next piece."""
    monkeypatch.setattr(piece, "LONGEST_END", 0.1)
    left: list[str] = []
    assert run_alone(pieces.messy, "tiny", lambda what, *_: left.append(what)).notes == ["done"]
    until(lambda: ended(int(left[0])), "the program has ended")


@pytest.mark.parametrize(("run", "clean"), [(pieces.waiting, True), (pieces.stubborn, False)])
def test_an_interrupt_ends_the_piece(
    run: Callable[[Setup], Result], clean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it started. It cleans up first, unless that takes too long."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(piece, "LONGEST_END", 60 if clean else 0.1)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        run_alone(run, "tiny", interrupt)
    folder, pid = str(interrupted.value).split()
    until(lambda: ended(int(pid)), "the program has ended")
    assert Path(folder).exists() is not clean
