"""A forked child: the flights of its parent go on there, and it has its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import run

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys, threading, time
import leasehold

hold = leasehold.connect(sys.argv[1])
inside, go = threading.Event(), threading.Event()
calls = []

@hold.single_flight("page", "{key}", fresh=60)
def page(key):
    calls.append(key)
    inside.set()
    assert go.wait(50)
    return f"{key} by {'the parent' if os.getpid() == parent else 'a child'}"

@hold.single_flight("old", "{key}", fresh=0.001, stale=600)
def old(key):
    calls.append(key)
    if len(calls) > 1:
        inside.set()
        assert go.wait(50)
    return len(calls)

def fork(child):
    pid = os.fork()
    if pid == 0:
        go.set()
        child()
        sys.stdout.flush()
        os._exit(0)
    return pid

def reap(pid):
    print("code", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

parent = os.getpid()
if sys.argv[2] == "flight":
    leading = threading.Thread(target=page, args=("a",))
    leading.start()
    assert inside.wait(50)
    pid = fork(lambda: print(page("a"), len(calls), flush=True))  # waits with a claim of its own
    while not hold.inspect("page:a").waiters:
        pass
    go.set()
    leading.join(50)
    reap(pid)
else:
    old("b")
    while not inside.is_set():
        old("b")  # in the background somebody rebuilds
    def child():
        before, end = len(calls), time.monotonic() + 50
        while len(calls) == before and time.monotonic() < end:
            old("b")
        print("rebuilt" if len(calls) > before else "not rebuilt", flush=True)
    pid = fork(child)
    go.set()
    reap(pid)
hold.close()
"""


def test_a_flight_is_not_inherited(tmp_path: Path) -> None:
    """The child does not wait for a thread that it does not have: it asks the store, and gets its parent's value."""
    done = run(PROGRAM, tmp_path, f"sqlite:///{tmp_path}/leases.db", "flight")
    assert done.stdout.splitlines() == ["a by the parent 1", "code 0"], done.stderr


def test_the_background_is_not_inherited(tmp_path: Path) -> None:
    """A child that was forked while a thread rebuilds can rebuild in the background itself."""
    done = run(PROGRAM, tmp_path, f"sqlite:///{tmp_path}/leases.db", "background")
    assert done.stdout.splitlines() == ["rebuilt", "code 0"], done.stderr
