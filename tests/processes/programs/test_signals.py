"""Signals while waiting: handlers that return cost nothing, those that raise end the wait and leave no place behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import leasehold
from tests.support.programs import WARNINGS, environment, play
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

HANDLERS = """
import os, signal, sys, threading, time
import leasehold
from leasehold._core.ops import Inspect

hold, other = leasehold.connect(sys.argv[1]), leasehold.connect(sys.argv[1])
busy = other.lock("job", ttl=60).acquire()
calls = []

def queue():
    return len(other._engine.store.execute(Inspect("job")).queue)

def every(seconds, number, handler, restart, first=0.0):
    signal.signal(number, handler)
    signal.siginterrupt(number, not restart)
    if number == signal.SIGALRM:
        signal.setitimer(signal.ITIMER_REAL, first or seconds, seconds)

def when_it_waits(number, then=lambda: None):
    def send():
        while not queue():
            time.sleep(0.005)  # the one who waits is in this process, and tells nobody
        os.kill(os.getpid(), number)
        then()
    threading.Thread(target=send, daemon=True).start()

def over():
    signal.setitimer(signal.ITIMER_REAL, 0)

for restart in (False, True):  # handlers that return: the wait lasts as long as it was to
    calls.clear()
    every(0.005, signal.SIGALRM, lambda *_: calls.append(1), restart)
    while len(calls) <= 10:  # once, unless the machine is very busy
        begun = time.monotonic()
        assert hold.lock("job", ttl=60).acquire(wait=0.3) is None
        assert time.monotonic() - begun >= 0.3, time.monotonic() - begun
    over()
    with hold.lock("free", ttl=60):
        assert queue() == 0

every(0.005, signal.SIGALRM, lambda *_: calls.append(1), True)
threading.Timer(0.2, busy.release).start()
with hold.lock("job", ttl=60, wait=30) as mine:  # and who is woken among them gets it
    over()
print("returns", mine.fence > busy.fence)

class Stop(Exception):
    "What a program's handler raises."

def raises(kind):
    def handler(*_):
        over()
        raise kind("by the handler")
    return handler

busy = other.lock("job", ttl=60).acquire()
# Not an error of the store: these must not be taken for one.
for kind in (Stop, TimeoutError, ConnectionResetError, ValueError, KeyboardInterrupt):
    for restart in (False, True):
        try:
            # In here, because it may come before the wait has begun. Python drops what a handler raises inside a weak
            # reference's callback: then the next one comes.
            every(3, signal.SIGALRM, raises(kind), restart, first=0.03)
            with hold.lock("job", ttl=60):
                print("entered without the lock")
        except kind as error:
            assert str(error) == "by the handler", error
        end = time.monotonic() + 30
        while queue():
            assert time.monotonic() < end, kind
            time.sleep(0.005)
print("raises", busy.release())

with hold.lock("job", ttl=60):  # signals that come from elsewhere, to a handler that uses the same coordinator
    seen = []
    def uses(*_):
        with hold.lock("handler", ttl=60):
            seen.append(hold.lock("job").owned())
    signal.signal(signal.SIGUSR1, uses)
    when_it_waits(signal.SIGUSR1)
    while not seen:
        assert hold.lock("job", ttl=60).acquire(wait=0.2) is None
    print("uses", seen)

busy = other.lock("job", ttl=60).acquire()
def forks(*_):
    children.append(os.fork())
children = []
signal.signal(signal.SIGUSR2, forks)
def give():
    while not children:
        time.sleep(0.005)  # until the handler has run, which the one who waits does when it looks up
    busy.release()
when_it_waits(signal.SIGUSR2, give)
try:
    got = hold.lock("job", ttl=60).acquire(wait=30)
except leasehold.StoreUnavailable as error:
    os._exit(0 if children == [0] and "forked in the middle" in str(error) else 1)
print("forks", got.fence > busy.fence, [os.waitpid(child, 0)[1] for child in children])
hold.close(), other.close()
"""


def test_handlers(url: str, tmp_path: Path) -> None:
    """SIGALRM, SIGUSR1 and SIGUSR2 in the middle of a wait, with and without SA_RESTART."""
    assert play(HANDLERS, tmp_path, url) == ["returns True", "raises True", "uses [True]", "forks True [0]"]


ENDED = """
import asyncio, os, signal, sys
import leasehold

url, flavour, what = sys.argv[1:]
if what == "exits":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))

def sync():
    hold = leasehold.connect(url)
    with hold.lock("held", ttl=60):
        print("ready", flush=True)
        with hold.lock("job", ttl=60):
            pass

async def tasks():
    hold = leasehold.aio.connect(url)
    async with hold.lock("held", ttl=60):
        print("ready", flush=True)
        async with hold.lock("job", ttl=60):
            pass

sync() if flavour == "sync" else asyncio.run(tasks())
"""


@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
@pytest.mark.parametrize(
    ("what", "number", "code"), [("exits", signal.SIGTERM, 9), ("interrupted", signal.SIGINT, -signal.SIGINT)]
)
def test_a_signal_that_ends_a_waiter(
    shared_url: str, flavour: str, what: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """A handler of SIGTERM that exits, and Ctrl-C: its place and what it holds are free when it is gone."""
    program = tmp_path / "program.py"
    program.write_text(ENDED)
    with leasehold.connect(shared_url) as hold, hold.lock("job", ttl=60):
        process = subprocess.Popen(
            [sys.executable, *WARNINGS, str(program), shared_url, flavour, what],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            until(lambda: bool(queue(hold)), "it waits", PATIENCE)
            process.send_signal(number)
            _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, errors
        assert ("KeyboardInterrupt" in errors) == (what == "interrupted") and "LeaseholdError" not in errors
        assert not queue(hold) and not hold.lock("held").locked()


def test_a_signal_right_after_the_claim(shared_url: str, tmp_path: Path) -> None:
    """The withdrawal is in the watchdog's hands when the process ends: the end waits for it."""
    program = tmp_path / "program.py"
    program.write_text(ENDED)
    command = [sys.executable, *WARNINGS, str(program), shared_url, "sync", "exits"]
    with leasehold.connect(shared_url) as hold, hold.lock("job", ttl=60):
        for _ in range(5):
            with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
                end = time.monotonic() + PATIENCE
                while not queue(hold):  # no pause: the signal must come in the first moments of the wait
                    assert time.monotonic() < end and process.poll() is None
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=PATIENCE)
            assert process.returncode == 9 and not queue(hold) and not hold.lock("held").locked()


def queue(hold: leasehold.Leasehold) -> tuple[object, ...]:
    """Who waits for the job."""
    view = hold._engine.store.execute(leasehold._core.ops.Inspect("job"))
    assert isinstance(view, leasehold._core.ops.View)
    return view.queue
