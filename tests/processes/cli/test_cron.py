"""``leasehold cron``: a command at each tick, how it ends, its history, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import datetime

import pytest

from leasehold.cli.arguments import Usage
from leasehold.cli.cron import cron
from leasehold.cli.service_arguments import parse_cron
from tests.processes.cli.test_run_lost import evict
from tests.support.cli.desk import SOURCE, Desk, alive, pids

slow = pytest.mark.slow
EACH_SECOND = "* * * * * *"


def lines(desk: Desk, name: str = "ticks") -> list[str]:
    """What commands have noted."""
    path = desk.path(name)
    return path.read_text().split() if path.exists() else []


def history(desk: Desk) -> list[dict[str, str]]:
    """As programs read it, the oldest first."""
    done = desk.run("cron", "--history", "job", "--json")
    assert done.returncode == (1 if done.stdout == "[]\n" else 0), done.stderr
    return list(reversed(json.loads(done.stdout)))


FORGETFUL = """
import sys

from leasehold.cli.service_arguments import parse_cron
from leasehold.cli.cron import cron
from leasehold.patterns.cron.history import RunHistory


async def forget(self, claimed, outcome, error=""):
    self.results.write(claimed.lease, None, "1d")
    return True


RunHistory.settle = forget
sys.exit(cron(parse_cron(sys.argv[1:], {})))
"""


@slow
def test_a_store_that_forgets_all_at_the_end_of_a_run(desk: Desk) -> None:
    """The process that ran a tick does not run it again."""
    script = 'echo "$LEASEHOLD_TICK" >> ticks'
    words = [EACH_SECOND, "job", "--missed", "all", "--runs", "2", "--", "sh", "-c", script]
    code, _, err = desk.ended(desk.program(FORGETFUL, *words))
    assert (code, err) == (0, "")
    one, other = lines(desk)
    assert one < other


@slow
def test_a_command_at_each_tick(desk: Desk) -> None:
    """It knows its tick and its fence; the last exit code is ours; the history has both runs."""
    script = 'echo "$LEASEHOLD_TICK" >> ticks; echo "$LEASEHOLD_FENCE $LEASEHOLD_RESOURCE"; exit 3'
    zone = ["--timezone", "Europe/Amsterdam"]
    done = desk.run("cron", EACH_SECOND, "job", "--runs", "2", *zone, "--", "sh", "-c", script)
    assert done.returncode == 3
    one, other = [datetime.fromisoformat(line) for line in lines(desk)]
    assert (other - one).total_seconds() >= 1 and one.microsecond == 0
    fences = [line.split() for line in done.stdout.splitlines()]
    assert [name for _, name in fences] == ["job", "job"] and int(fences[0][0]) < int(fences[1][0])
    runs = [run for run in history(desk) if run["outcome"] not in ("missed", "skipped")]  # a busy machine is late
    assert [(run["outcome"], run["error"]) for run in runs] == [("error", "exit code 3")] * 2
    assert [datetime.fromisoformat(run["tick"]) for run in runs] == [one, other]
    assert done.stderr.count("ended with exit code 3") == 2
    head, row = desk.run("cron", "--history", "job", "--limit", "1").stdout.splitlines()
    assert head.split() == ["TICK", "OUTCOME", "STARTED", "LASTED", "BY", "WHAT"]
    assert row.split()[2] in ("CET", "CEST") and row.split()[3] == "error"
    unknown = desk.run("cron", "--history", "other")
    assert unknown.returncode == 1 and unknown.stdout.startswith("Nothing is known of a cron other in ")


@slow
def test_each_tick_on_one_host(desk: Desk) -> None:
    """Two that do the same: no tick is run twice."""
    command = ["cron", EACH_SECOND, "job", "--runs", "1", "--", "sh", "-c", "echo $LEASEHOLD_TICK >> ticks"]
    hosts = [desk.start(*command) for _ in range(2)]
    assert [desk.ended(host)[::2] for host in hosts] == [(0, "")] * 2
    assert len(lines(desk)) == 2 == len(set(lines(desk)))


@slow
def test_a_signal_while_it_waits(desk: Desk) -> None:
    """It ends at once; no command ran."""
    process = desk.start("cron", "0 0 1 1 *", "job", "--", "touch", "up")
    desk.until(lambda: desk.hold._results.read("job"), process)
    process.send_signal(signal.SIGTERM)
    assert desk.ended(process) == (128 + signal.SIGTERM, "", "")
    assert not desk.path("up").exists()


@slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_run(desk: Desk, number: signal.Signals) -> None:
    """It is passed on; when the command has tidied up, we end with its code, and the lease is free."""
    script = f"trap 'touch tidied; exit 7' {number.value}; touch up; while :; do sleep 0.02; done"
    process = desk.start("cron", EACH_SECOND, "job", "--", "sh", "-c", script)
    desk.until(desk.path("up").exists, process)
    process.send_signal(number)
    assert desk.ended(process)[0] == 7
    assert desk.path("tidied").exists() and not desk.hold.lock("job").locked()
    assert history(desk)[-1]["error"] == "exit code 7"


@slow
def test_a_run_that_takes_too_long(desk: Desk) -> None:
    """After ``--at-most`` it is stopped, with all that it started, and the next tick comes."""
    script = "echo $$ >> pids; exec sleep 60"
    process = desk.start("cron", EACH_SECOND, "job", "--at-most", "0.3s", "--ttl", "1s", "--", "sh", "-c", script)
    desk.until(lambda: len(lines(desk, "pids")) == 2, process)
    process.send_signal(signal.SIGTERM)
    _, _, err = desk.ended(process)
    assert "is lost (max_hold)" in err
    assert next(run["outcome"] for run in history(desk) if run["outcome"] not in ("skipped", "missed")) == "lost"
    assert not any(alive(pid) for pid in pids(desk.path("pids")))


@slow
def test_a_lease_that_is_taken_away(desk: Desk) -> None:
    """The command is stopped; when that was the last run, the exit code says so."""
    script = "touch up; exec sleep 60"
    process = desk.start("cron", EACH_SECOND, "job", "--ttl", "1.5s", "--runs", "1", "--", "sh", "-c", script)
    desk.until(desk.path("up").exists, process)
    evict(desk)
    assert desk.ended(process)[0] == 76


@slow
def test_a_lease_that_is_lost_before_the_command_begins(desk: Desk) -> None:
    """Others may be at work by then: it is not started, not for a moment, and the history says so."""
    process = desk.start("cron", EACH_SECOND, "job", "--at-most", "0.00001s", "--", "touch", "up")
    desk.until(lambda: [run for run in history(desk) if run["outcome"] == "lost"], process)
    process.send_signal(signal.SIGTERM)
    _, _, err = desk.ended(process)
    assert "the command was not started" in err and not desk.path("up").exists()


@slow
def test_a_command_that_is_not_there(desk: Desk) -> None:
    """127: it would not be there at the next tick either."""
    done = desk.run("cron", EACH_SECOND, "job", "--", "no-such-command")
    assert (done.returncode, "no-such-command: command not found" in done.stderr) == (127, True)
    assert history(desk)[-1]["outcome"] == "error"


@slow
def test_events_for_programs(desk: Desk) -> None:
    """One JSON object in a line."""
    done = desk.run("cron", EACH_SECOND, "job", "--runs", "1", "--json", "--", "true")
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [event["event"] for event in events] == ["started", "exited"]
    assert events[0]["tick"] == events[1]["tick"] and events[1]["code"] == 0


@slow
def test_the_next_ticks(desk: Desk) -> None:
    """Of an expression, without a store."""
    done = desk.run("cron", "--next", "3", "0 3 * * *", "--timezone", "Europe/Amsterdam")
    assert len(done.stdout.splitlines()) == 3 and all(" 03:00:00 CE" in line for line in done.stdout.splitlines())
    ticks = json.loads(desk.run("cron", "--next", "2", "@daily", "--json").stdout)
    assert [datetime.fromisoformat(tick).hour for tick in ticks] == [0, 0]
    assert not desk.path("leases.db-results").exists()


MISTYPED = [
    ([], "it needs the EXPRESSION"),
    (["0", "3", "*", "--", "true"], "quote it"),
    ([EACH_SECOND], "it needs the NAME of the cron"),
    ([EACH_SECOND, "job"], "it needs -- and the command to run"),
    ([EACH_SECOND, "job", "--"], "there is no command behind --"),
    ([EACH_SECOND, "job", "--missed", "often", "--", "true"], "--missed is one of skip, once, all"),
    ([EACH_SECOND, "job", "--overlap", "allow", "--", "true"], "--overlap is one of skip, wait"),
    ([EACH_SECOND, "job", "--runs", "some", "--", "true"], "--runs takes a number"),
    (["--history", "job", "--", "true"], "--history NAME runs nothing"),
    ([EACH_SECOND, "--history", "job"], "--history NAME runs nothing"),
    (["--next", "3", "@daily", "job", "--", "true"], "runs nothing"),
    (["--history"], "--history needs a value"),
]


@pytest.mark.parametrize(("words", "match"), MISTYPED, ids=[" ".join(one[0]) or "nothing" for one in MISTYPED])
def test_what_is_mistyped(words: list[str], match: str) -> None:
    """It is said what is wrong."""
    with pytest.raises(Usage, match=match):
        parse_cron(words, {})


SENSELESS = [
    (["0 0 30 2 *", "job", "--", "true"], "never fires"),
    (["x y z", "job", "--", "true"], "no cron expression"),
    ([EACH_SECOND, "job", "--timezone", "Mars", "--", "true"], "no time zone"),
    ([EACH_SECOND, "job", "--ttl", "0", "--", "true"], "ttl must be"),
    ([EACH_SECOND, "a:", "--", "true"], "id must not be empty"),
    (["--history", "job", "--limit", "0"], "--limit is a number from 1 to 100"),
    (["--history", "job", "--limit", "101"], "--limit is a number from 1 to 100"),
    (["--next", "0", "@daily"], "--next is a number from 1 to 1000"),
    (["--next", "3", "0 0 30 2 *"], "never fires"),
]


@pytest.mark.parametrize(("words", "match"), SENSELESS, ids=[" ".join(one[0]) for one in SENSELESS])
def test_what_makes_no_sense(
    words: list[str], match: str, leasehold_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """2, and what is wrong."""
    assert cron(parse_cron(words, {})) == 2
    out, err = capsys.readouterr()
    assert out == "" and match in err


@slow
def test_a_wrong_grace(desk: Desk) -> None:
    """2, and nothing is half done."""
    done = desk.run("cron", EACH_SECOND, "job", "--grace", "late", "--", "touch", "up")
    assert (done.returncode, "grace 'late' is not a duration" in done.stderr) == (2, True)
    assert not list(desk.hold.scan("*")) and not desk.path("up").exists()


@slow
def test_a_store_that_is_away(desk: Desk) -> None:
    """At the start it is 69; a bad URL is 78, and so is a store that keeps no history."""
    command = ["cron", EACH_SECOND, "job", "--", "true"]
    assert desk.run("--url", "redis://127.0.0.1:1", *command).returncode == 69
    assert desk.run("--url", "nowhere://", *command).returncode == 78
    done = desk.run("--url", "etcd://127.0.0.1:1", *command)
    assert (done.returncode, "leasehold cron needs another store, such as redis://" in done.stderr) == (78, True)


@slow
def test_a_name_that_is_used_twice(desk: Desk) -> None:
    """2: something else is kept there."""
    with desk.hold.lock("job") as lease:
        desk.hold._results.write(lease, "a page", keep="1h")
    done = desk.run("cron", EACH_SECOND, "job", "--", "true")
    assert (done.returncode, "used twice" in done.stderr) == (2, True)
    assert desk.run("cron", "--history", "job").returncode == 2


@slow
def test_without_cronsim(desk: Desk) -> None:
    """78, and what to install."""
    desk.path("cronsim.py").write_text("raise ModuleNotFoundError('no cronsim', name='cronsim')")
    process = desk.start(
        "cron", EACH_SECOND, "job", "--", "true",
        env={"PYTHONPATH": f"{desk.folder}{os.pathsep}{SOURCE}"}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    code, _, err = desk.ended(process)
    assert (code, "pip install 'leasehold[cron]'" in err) == (78, True)
