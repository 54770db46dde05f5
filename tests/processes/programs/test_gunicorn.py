"""gunicorn with a preloaded app: a coordinator made in the master at import, used by every worker that it forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import leasehold
from tests.support.programs import environment
from tests.support.servers.process import reserve
from tests.support.waiting import until

pytestmark = pytest.mark.slow

PATIENCE = 60.0
TTL = 2.0
REQUESTS = 24

APP = """
import json, os, time
import leasehold

hold = leasehold.connect(os.environ["STORE"])
master = hold.lock("master", ttl=2).acquire()
kept = []

def count():
    with hold.lock("counter", ttl=30) as lease, open("counter", "r+") as file:
        number = int(file.read())
        time.sleep(0.005)
        file.seek(0)
        file.write(str(number + 1))
    return {"fence": lease.fence}

def keep():
    kept.append(hold.lock("kept", os.getpid(), ttl=600).acquire(wait=0))
    return {"kept": kept[-1] is not None}

def look():
    return {"state": master.state, "again": hold.lock("master").try_acquire() is not None}

def app(environ, start):
    answer = {"pid": os.getpid(), **{"/count": count, "/keep": keep, "/look": look}[environ["PATH_INFO"]]()}
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
"""


class Site:
    """A master, its workers, and who asks them."""

    def __init__(self, folder: Path, store: str, *options: str) -> None:
        (folder / "app.py").write_text(APP)
        (folder / "counter").write_text("0")
        self.place = reserve()
        self.port = self.place.getsockname()[1]
        self.log = folder / "log"
        command = ["-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{self.port}", *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command, "app:app"],
                cwd=folder,
                env=environment(STORE=store),
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that its workers can be ended with it
            )

    def ask(self, what: str) -> dict[str, Any]:
        """One request."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{what}", timeout=PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def up(self) -> bool:
        """Does it answer?"""
        try:
            return bool(self.ask("look"))
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            return False

    def ask_all(self, what: str) -> dict[int, dict[str, Any]]:
        """An answer of each of its two workers."""
        answers: dict[int, dict[str, Any]] = {}

        def both() -> bool:
            with ThreadPoolExecutor(4) as pool:
                answers.update((answer["pid"], answer) for answer in pool.map(self.ask, [what] * 4))
            return len(answers) >= 2

        until(both, "both workers answer", PATIENCE)
        return answers

    def counted(self) -> set[int]:
        """Many at once count up. Their fences."""
        with ThreadPoolExecutor(6) as pool:
            return {answer["fence"] for answer in pool.map(self.ask, ["count"] * REQUESTS)}

    def close(self) -> None:
        """Gone, with its workers."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self.place.close()


def remaining(hold: leasehold.Leasehold) -> float:
    """What remains of the master's lease."""
    holder = hold.inspect("master").holder
    assert holder is not None, "it is not renewed"
    return holder.expires_in


@contextmanager
def serving(folder: Path, store: str, *options: str) -> Iterator[Site]:
    """A site that is up."""
    site = Site(folder, store, *options)
    try:
        until(site.up, "it is up", PATIENCE)
        yield site
    finally:
        site.close()


@pytest.mark.parametrize(
    ("shared_url", "options"),
    [
        ("sqlite", ["--worker-class", "sync"]),
        ("redis", ["--worker-class", "gthread", "--threads", "4"]),
        ("sqlite", ["--worker-class", "gevent"]),
    ],
    indirect=["shared_url"],
    ids=["sync-sqlite", "gthread-redis", "gevent-sqlite"],
)
def test_a_preloaded_app(shared_url: str, options: list[str], tmp_path: Path) -> None:
    """One at a time in all workers, before and after a reload; what the master took stays the master's until TERM."""
    with serving(tmp_path, shared_url, *options) as site, leasehold.connect(shared_url) as hold:
        looks = site.ask_all("look")
        assert all((look["state"], look["again"]) == ("lost", False) for look in looks.values())
        assert site.process.pid not in looks
        fences = site.counted()
        until(lambda: remaining(hold) < 0.8 * TTL, "some of its time is over")
        until(lambda: remaining(hold) > 0.9 * TTL, "it is renewed")

        site.process.send_signal(signal.SIGHUP)
        until(lambda: site.ask("look")["pid"] not in looks, "there are new workers", PATIENCE)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in looks), "the old ones are gone", PATIENCE)
        fences |= site.counted()
        assert len(fences) == 2 * REQUESTS
        assert (tmp_path / "counter").read_text() == str(2 * REQUESTS)
        assert hold.lock("master").try_acquire() is None

        kept = site.ask_all("keep")
        assert all(hold.lock("kept", pid).locked() for pid in kept)
        site.process.send_signal(signal.SIGTERM)
        assert site.process.wait(PATIENCE) == 0, site.log.read_text()
        left = [pid for pid in kept if hold.lock("kept", pid).locked()]
        assert not left and not hold.lock("master").locked(), "the end of each gives back what is its own"
        assert "Traceback" not in site.log.read_text(), site.log.read_text()
