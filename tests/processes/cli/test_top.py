"""``leasehold top`` as an operator sees it: in a terminal of 80 × 24, captured from tmux."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import leasehold
from tests.support.cli.desk import Desk
from tests.support.cli.tmux import Terminal
from tests.support.servers.redis import RedisServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow
ME = f"{os.uname().nodename}:{os.getpid()}"


@pytest.fixture
def terminals(desk: Desk) -> Iterator[list[Terminal]]:
    """Those that the test opens."""
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        one.close()


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_a_night(desk: Desk, terminals: list[Terminal], store: str, redis_server: RedisServer) -> None:
    """A frozen holder is seen and cleared from the screen, which fits: the holder is told, and the trail says why."""
    url = desk.url if store == "sqlite" else redis_server.url
    with leasehold.connect(url, namespace="acme") as hold:
        frozen = hold.lock("report-export", 42, ttl="10m", renew=False).acquire()
        top = Terminal(desk, "top", "--url", url, "--namespace", "acme", "--every", "0.2")
        terminals.append(top)
        top.shows("1 held  0 waiting")
        top.shows("acme/report-export:42")
        lines = top.shows("q Quit")
        assert lines[0].split()[:2] == ["leasehold", "top"] and max(map(len, lines)) <= 80 and len(lines) <= 24
        assert any(ME in line and "########" in line for line in lines)
        top.keys("c")
        top.shows("Take acme/report-export:42 away from")
        top.keys("-l", "host on fire")
        top.keys("Enter")
        top.shows("it seems alive, and works")
        top.keys("Enter")
        top.shows("no longer holds acme/report-export:42")
        until(lambda: frozen is not None and frozen.state == "lost", "the holder is told")
        (note,) = hold.inspect("report-export:42").notes
        assert (note.event, note.reason, note.by.partition("@")[2]) == ("evicted", "host on fire", os.uname().nodename)
    top.keys("q")
    desk.until(desk.path("ended").exists)
    until(lambda: desk.path("ended").read_text() == "0\n", "it ends without a complaint")


def test_a_store_that_was_never_reached(desk: Desk, terminals: list[Terminal]) -> None:
    """The reason is whole on a screen of 80 columns, and quitting exits with 69."""
    top = Terminal(desk, "top", "--url", "redis://127.0.0.1:1", "--every", "0.2")
    terminals.append(top)
    lines = top.shows("unavailable")
    assert "Redis at 127.0.0.1:1 cannot be reached: [Errno 111] Connection refused" in " ".join(" ".join(lines).split())
    top.keys("q")
    desk.until(desk.path("ended").exists)
    until(lambda: desk.path("ended").read_text() == "69\n", "its exit code says so")
