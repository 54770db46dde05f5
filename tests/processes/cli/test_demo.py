"""``leasehold demo``, for real: processes, signals, databases, and nothing left behind."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.desk import SOON
from tests.support.cli.stage import left_behind, run, start

pytestmark = pytest.mark.slow


def test_for_people(tmp_path: Path) -> None:
    """Both acts are told, the stale write is called what it is, a summary ends it; through a pipe it is plain."""
    done = run(tmp_path, "demo")
    assert (done.returncode, done.stderr, left_behind(tmp_path)) == (0, "", [])
    first, _, second = done.stdout.partition("Act 2")
    assert "Act 1  No guard" in first
    assert first.count("stale write ACCEPTED: B's result is gone") == 1
    assert second.count("stale write REFUSED (StaleOwner)") == 1
    assert done.stdout.count("ACCEPTED") == done.stdout.count("REFUSED") == 1
    assert done.stdout.count("LeaseLost") == 2
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("Stale writes accepted: 1 of 1 without a guard, 0 of 1 with one.")
    assert max(len(line) for line in lines) <= 100
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout


def test_for_programs(tmp_path: Path) -> None:
    """JSON lines and nothing else: one story, played twice in the same order, to its two ends."""
    done = run(tmp_path, "demo", "--json")
    assert (done.returncode, done.stderr, left_behind(tmp_path)) == (0, "", [])
    *events, summary = [json.loads(line) for line in done.stdout.splitlines()]
    check_story([event for event in events if event["act"] == 1], "stale_write_accepted", author="A")
    check_story([event for event in events if event["act"] == 2], "stale_write_refused", author="B")
    assert (summary["event"], summary["ok"]) == ("summary", True)


def check_story(events: list[dict[str, Any]], end: str, author: str) -> None:
    """B waited in the queue and got a higher fence; what A wrote then was accepted, or refused with B's fence."""
    told = ["act", "acquired", "queued", "frozen", "expired", "acquired", "wrote", "woke", end, "lease_lost", "report"]
    assert [event["event"] for event in events] == told
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    of_a, of_b, stale, report = events[1], events[5], events[8], events[10]
    assert (of_a["who"], of_b["who"]) == ("A", "B")
    assert of_a["fence"] == stale["fence"] < of_b["fence"]
    assert of_b["waited"] > 0.5
    assert stale.get("seen", of_b["fence"]) == of_b["fence"]
    assert report["written_by"] == author
    assert report["fence"] == (of_a if author == "A" else of_b)["fence"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_ended_in_the_middle(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C, or a polite kill, while a worker is frozen: nobody is left, frozen or not, and no file."""
    with start(tmp_path, "demo", "--json") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "frozen":
                break
        process.send_signal(number)
        assert process.wait(SOON) == code
    assert left_behind(tmp_path) == []


def test_a_killed_director_takes_the_frozen_worker_along(tmp_path: Path) -> None:
    """Nothing can be tidied after kill -9, but no frozen process stays for ever."""
    with start(tmp_path, "demo", "--json") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "frozen":
                break
        process.kill()
        process.wait(SOON)
    give_up = time.monotonic() + SOON
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
    path = f"{library}:{Path(__file__).parents[3] / 'src'}"
    done = run(folder, "demo", PYTHONPATH=path)
    assert done.returncode == code
    assert "did not go as it should" in done.stderr
    assert why in done.stderr
    assert "Stale writes accepted" not in done.stdout
    assert left_behind(folder) == []
