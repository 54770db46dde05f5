"""``leasehold ttl``: from numbers, from recorded durations, and from a scrape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cli.desk import Desk
from tests.unit.advice.test_samples import scrape

pytestmark = pytest.mark.slow
SAID = ["--p999", "8s", "--pause", "5s", "--network", "1s"]


def document(desk: Desk, *arguments: str, **more: Any) -> Any:
    """What it says to programs."""
    done = desk.run("ttl", *arguments, "--json", **more)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_the_example(desk: Desk) -> None:
    """12 s with renewal, every 4 s, stop at 2 s; 14 s without, stop at the deadline."""
    shown = desk.run("ttl", *SAID).stdout.splitlines()
    assert shown[:3] == [
        "ttl         12s",
        "renewed     every 4s; renewals may fail for 6s",
        "work stops  2s before the deadline, when renewal does not succeed",
    ]
    shown = desk.run("ttl", *SAID, "--no-renew").stdout.splitlines()
    assert shown[:3] == ["ttl         14s", "renewed     never", "work stops  at the deadline"]


def test_documents_for_programs(desk: Desk) -> None:
    """Keys that stay, lengths in seconds."""
    found = document(desk, *SAID)
    assert set(found) == {
        "ttl", "renew", "renew_every", "stop_at", "room", "tool", "reasons", "warnings", "p999", "pause", "network",
        "samples",
    }  # fmt: skip
    assert (found["ttl"], found["renew_every"], found["stop_at"], found["warnings"]) == (12.0, 4.0, 2.0, [])
    assert document(desk, "--p999", "8", "--no-renew", "--pause", "5", "--network", "1")["ttl"] == 14.0


def test_what_was_not_said_is_told(desk: Desk) -> None:
    """The margins that are assumed are named as such."""
    shown = desk.run("ttl").stdout
    assert "note        --pause was not given, and counts as 5s\n" in shown
    assert "note        --network was not given, and counts as 1s\n" in shown
    assert "note" not in desk.run("ttl", *SAID).stdout


def test_recorded_durations(desk: Desk) -> None:
    """Their p99.9, from a file or from standard input; few of them are said to be few."""
    durations = "# of last week\n" + "100ms\n" * 1998 + "8s\n" * 2
    desk.path("durations").write_text(durations)
    found = document(desk, "--from", "durations", "--no-renew")
    assert (found["p999"], found["samples"], found["ttl"]) == (0.1, 2000, 6.1)
    found = document(desk, "--from", "-", "--no-renew", stdin="1s\n8s\n")
    assert found["ttl"] == 14.0
    assert any("2 samples are few" in one for one in found["warnings"])


def test_a_scrape(desk: Desk) -> None:
    """The bound of the bucket, which is said; ``--kind`` where there are several."""
    kinds = {"job": {"1.0": 1000, "+Inf": 1000}, "mail": {"1.0": 0, "10.0": 1000, "+Inf": 1000}}
    desk.path("metrics").write_text(scrape(**kinds))
    done = desk.run("ttl", "--from", "metrics", "--no-renew")
    assert (done.returncode, "job, mail" in done.stderr) == (2, True)
    done = desk.run("ttl", "--from", "metrics", "--no-renew", "--kind", "mail")
    assert done.stdout.startswith("ttl         16s\n") and "upper bound of its bucket" in done.stdout


def test_beyond_the_last_bucket(desk: Desk) -> None:
    """Without renewal nobody can know, and it ends with 2; with it the work does not matter."""
    desk.path("metrics").write_text(scrape(job={"60.0": 10, "+Inf": 2000}))
    done = desk.run("ttl", "--from", "metrics", "--no-renew")
    assert (done.returncode, done.stdout) == (2, "")
    assert "p99.9 is over 1m" in done.stderr and "the ttl cannot be known" in done.stderr
    found = document(desk, "--from", "metrics")
    assert (found["ttl"], found["p999"], found["tool"]) == (12.0, None, "lock")
    desk.path("metrics").write_text(scrape(job={"3600.0": 10, "+Inf": 2000}))
    assert document(desk, "--from", "metrics")["tool"] == "jobs"


def test_over_an_hour(desk: Desk) -> None:
    """It says jobs."""
    done = desk.run("ttl", "--p999", "3h")
    assert "warning     the work is over 1h: use durable ownership with a heartbeat (jobs)" in done.stdout
    assert document(desk, "--p999", "3h", "--no-renew")["tool"] == "jobs"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--no-renew"], "--p999 8s, or --from FILE"),
        (["--p999", "soon"], "--p999 'soon' is not a duration"),
        (["--pause=-1"], "--pause must not be negative"),
        (["--network", "nan"], "--network must be a finite"),
        (["--from", "nowhere"], "nowhere: No such file"),
        (["--from", "-"], "-: there are no durations in it"),
        (["--from", "-", "--p999", "8s"], "leave out --p999"),
        (["--kind", "job"], "--kind chooses among the metrics of --from FILE"),
        (["--levitate"], "No such option"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_mistakes(desk: Desk, arguments: list[str], why: str) -> None:
    """2, and what is wrong."""
    done = desk.run("ttl", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr and "Traceback" not in done.stderr
