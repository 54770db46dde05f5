"""``leasehold demo``, for real: processes, signals, databases, and nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import left_behind, run, start

# One worker plays them all: the fixtures below are runs that several tests look at.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo")]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A run as a person sees it, through a pipe."""
    folder = tmp_path_factory.mktemp("told")
    began = time.monotonic()
    done = run(folder, "demo")
    assert time.monotonic() - began < 15  # about 3.5 s on an idle machine
    assert left_behind(folder) == []
    return done


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """A run as a program sees it."""
    folder = tmp_path_factory.mktemp("events")
    done = run(folder, "demo", "--json")
    assert (done.returncode, done.stderr, left_behind(folder)) == (0, "", [])
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_timeline(told: subprocess.CompletedProcess[str]) -> None:
    """Both acts are told, the stale write is called what it is, and a summary is the last line."""
    assert (told.returncode, told.stderr) == (0, "")
    first, _, second = told.stdout.partition("Act 2")
    assert "Act 1  No guard" in first
    assert first.count("stale write ACCEPTED: B's result is gone") == 1
    assert second.count("stale write REFUSED (StaleOwner)") == 1
    assert told.stdout.count("ACCEPTED") == told.stdout.count("REFUSED") == 1
    assert told.stdout.count("LeaseLost") == 2
    assert "Why fences jump" in told.stdout
    assert told.stdout.splitlines()[-1].startswith("Stale writes accepted: 1 of 1 without a guard, 0 of 1 with one.")


def test_piped_it_is_plain(told: subprocess.CompletedProcess[str]) -> None:
    """Through a pipe there is no escape sequence, nothing but ASCII, and no line over 100 columns."""
    assert told.stdout.isascii()
    assert "\x1b" not in told.stdout
    assert max(len(line) for line in told.stdout.splitlines()) <= 100


def test_the_order_of_events(events: list[dict[str, Any]]) -> None:
    """Both acts tell the same story, in the same order, to its different end."""
    story = ["act", "acquired", "queued", "frozen", "expired", "acquired", "wrote", "woke"]
    for act, end in ((1, "stale_write_accepted"), (2, "stale_write_refused")):
        mine = [event for event in events if event.get("act") == act]
        assert [event["event"] for event in mine] == [*story, end, "lease_lost", "report"]
        assert [event["at"] for event in mine] == sorted(event["at"] for event in mine)
    assert events[-1]["event"] == "summary"
    assert events[-1]["ok"] is True


def test_what_the_fences_say(events: list[dict[str, Any]]) -> None:
    """B waited in the queue and got a higher fence; the guard had seen B's and refused A's."""
    for act in (1, 2):
        mine = [event for event in events if event.get("act") == act]
        of_a, of_b = [event for event in mine if event["event"] == "acquired"]
        assert (of_a["who"], of_b["who"]) == ("A", "B")
        assert of_a["fence"] < of_b["fence"]
        assert of_b["waited"] > 0.5
        stale = next(event for event in mine if event["event"].startswith("stale_write"))
        assert stale["fence"] == of_a["fence"]
        assert stale.get("seen", of_b["fence"]) == of_b["fence"]
        author = of_a if act == 1 else of_b
        assert (mine[-1]["written_by"], mine[-1]["fence"]) == (author["who"], author["fence"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_ended_in_the_middle(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C, or a polite kill, while a worker is frozen: nobody is left, frozen or not, and no file."""
    with start(tmp_path, "demo", "--json") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "frozen":
                break
        process.send_signal(number)
        assert process.wait(20) == code
    assert left_behind(tmp_path) == []


def test_a_killed_director_takes_the_frozen_worker_along(tmp_path: Path) -> None:
    """Nothing can be tidied after kill -9, but no frozen process stays for ever."""
    with start(tmp_path, "demo", "--json") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "frozen":
                break
        process.kill()
        process.wait(20)
    give_up = time.monotonic() + 10
    while any(one.startswith("process") for one in left_behind(tmp_path)):
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("sabotage", "code", "why"),
    [
        ("from leasehold.guards.sql import FenceGuard as it; it.check = lambda *_: None", 1, "the guard failed"),
        ("import leasehold as it; it.connect = None", 1, "TypeError"),
        (
            "import leasehold as it\ndef no(*_): raise it.StoreUnavailable('the disk is on fire')\nit.connect = no",
            69,
            "the disk is on fire",
        ),
    ],
    ids=["broken guard", "crash", "no store"],
)
def test_when_it_goes_wrong(tmp_path: Path, sabotage: str, code: int, why: str) -> None:
    """A demo that does not go as told says why and does not exit with 0."""
    library, folder = tmp_path / "library", tmp_path / "folder"
    library.mkdir()
    folder.mkdir()
    (library / "sitecustomize.py").write_text(sabotage)
    path = f"{library}:{Path(__file__).parents[2] / 'src'}"
    done = run(folder, "demo", PYTHONPATH=path)
    assert done.returncode == code
    assert "did not go as it should" in done.stderr
    assert why in done.stderr
    assert "Stale writes accepted" not in done.stdout
    assert left_behind(folder) == []
