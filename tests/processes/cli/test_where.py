"""A store that nobody meant is refused by the commands that run others; and ``ls --watch``."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack

import pytest

from tests.support.cli.desk import Desk
from tests.support.cli.tmux import Terminal

pytestmark = pytest.mark.slow
COMMANDS = {"run": ["job"], "elect": ["job"], "cron": ["0 3 * * *", "job"]}
UP = ["--", "touch", "up"]


def test_the_embedded_store_is_refused(desk: Desk) -> None:
    """By an option or a variable: 78 before anything is done, and no file is made. What is named is taken."""
    env = {"XDG_STATE_HOME": str(desk.folder / "state"), "LEASEHOLD_URL": None}
    by_option = [([name, "--shared-store", *more, *UP], env) for name, more in COMMANDS.items()]
    by_variable = [([name, *more, *UP], {**env, "LEASEHOLD_REQUIRE_SHARED": "1"}) for name, more in COMMANDS.items()]
    for done in desk.each([*by_option, *by_variable]):
        assert (done.returncode, done.stdout) == (78, ""), done
        assert done.stderr.startswith("leasehold: no store is named, and the embedded one"), done
    assert not desk.path("state").exists() and not desk.path("up").exists()


def test_a_store_that_is_named_is_taken(desk: Desk) -> None:
    """Whatever it is."""
    assert desk.run("run", "--shared-store", "job", *UP).returncode == 0
    assert desk.path("up").exists()


def test_an_empty_url(desk: Desk) -> None:
    """In the environment or behind ``--url``: a mistake, 78, and never the embedded store."""
    in_environment = [([name, *more, *UP], {"LEASEHOLD_URL": ""}) for name, more in COMMANDS.items()]
    for done in desk.each(in_environment):
        assert (done.returncode, done.stderr[:37]) == (78, "leasehold: LEASEHOLD_URL is empty: se"), done
    for done in desk.each([(["--url", "", name, *more, *UP], {}) for name, more in COMMANDS.items()]):
        assert (done.returncode, done.stderr[:33]) == (78, "leasehold: that is no URL: write "), done
    assert not desk.path("up").exists()


def test_watching(desk: Desk) -> None:
    """Again and again, until it is interrupted; for programs one document in a line."""
    with desk.hold.lock("job"):
        process = desk.start("ls", "--watch", "0.2", "--json")
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        assert [one["resource"] for one in first] == [one["resource"] for one in second] == ["job"]
        process.send_signal(signal.SIGINT)
        assert desk.ended(process)[0] == 130


def test_watching_more_than_a_screen(desk: Desk) -> None:
    """On a terminal the first of the order stay in sight, and the last line says how many there are besides."""
    with ExitStack() as held:
        for number in range(30):
            held.enter_context(desk.hold.lock(f"job-{number:02}", ttl=60))
        with Terminal(desk, "ls", "--watch", "0.5", "--url", desk.url) as screen:
            lines = screen.shows("... and ")
    shown = [line.split()[0] for line in lines if line.startswith("job-")]
    assert lines[0].startswith("In sqlite:///") and f"... and {30 - len(shown)} more" in lines
    assert shown == [f"job-{one:02}" for one in range(len(shown))] and len(shown) > 15


def test_watching_a_store_that_is_away(desk: Desk) -> None:
    """One line says so, and it goes on."""
    process = desk.start("ls", "--watch=0.2", "--url", "redis://127.0.0.1:1")
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline().startswith("The store is unavailable, and is tried again every 0.2s: Redis at")
    process.send_signal(signal.SIGINT)
    assert desk.ended(process)[::2] == (130, "")
