"""Traps that no other file names: 30, 34, 36, 45, and owner tokens."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import leasehold
from leasehold._core.ops import Claim, Inspect, Release, View
from leasehold._runtime.identity import new_owner
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy
from tests.support.waiting import PATIENCE


def test_owner_tokens_are_unique() -> None:
    """Eight threads draw 8,000 tokens, and no two are alike; all begin with this instance and process."""
    tokens: list[str] = []
    threads = [threading.Thread(target=lambda: tokens.extend(new_owner() for _ in range(1_000))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tokens)) == len(tokens) == 8_000
    assert {token.split(":")[1] for token in tokens} == {str(os.getpid())}


def test_trap_30_no_grant_without_an_end() -> None:
    """There is no moment between taking a lock and giving it a ttl: one op does both."""
    spy = Spy(MemoryStore())
    with leasehold.connect(spy) as hold, hold.lock("job", ttl=7):
        view = spy.inner.execute(Inspect("job"))
        assert isinstance(view, View)
        assert 0 < view.holders[0].expires_ms - view.now_ms <= 7_000
        assert [op.ttl_ms for op in spy.of(Claim)] == [7_000]


def test_trap_34_a_lost_lease_is_not_given_back_before_its_body_ends() -> None:
    """max_hold ends the lease while the work still runs: others wait for the ttl or for the end of the body."""
    clock = ManualClock()
    spy = Spy(MemoryStore(clock))
    hold = leasehold.connect(spy)

    def body() -> None:
        with hold.lock("job", ttl=10, max_hold=1) as lease:
            clock.advance(2)
            assert lease.lost.wait(PATIENCE) and lease.state == "lost"
            assert not spy.of(Release), "the work has not stopped yet"
            assert hold.lock("job").locked()

    with pytest.raises(leasehold.LeaseLost):
        body()
    assert len(spy.of(Release)) == 1 and not hold.lock("job").locked()
    hold.close()


STALE = """
import sqlite3, sys, leasehold
from leasehold.guards.sql import FenceGuard

assert False, "this is gone under -O"
db = sqlite3.connect(sys.argv[1])
guard = FenceGuard()
guard.create(db)
guard.check(db, 2, resource="job", owner="b")
db.commit()
try:
    guard.check(db, 1, resource="job", owner="a")
except leasehold.StaleOwner:
    print("refused")
try:
    leasehold.connect("memory://").lock("job", ttl=0)
except leasehold.InvalidRequest:
    print("refused")
"""


def test_trap_36_nothing_is_guarded_by_assert(tmp_path: Path) -> None:
    """With ``python -O`` a stale fence and a bad ttl are refused as ever."""
    done = subprocess.run(
        [sys.executable, "-O", "-c", STALE, str(tmp_path / "data.db")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["refused", "refused"]


def test_trap_45_no_identity_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that finds its parent's token in the environment is somebody else: the lock is busy for it."""
    url = f"sqlite:///{tmp_path}/leases.db"
    with leasehold.connect(url) as hold, hold.lock("job") as lease:
        monkeypatch.setenv("LEASEHOLD_OWNER", lease.owner)
        monkeypatch.setenv("LEASEHOLD_FENCE", str(lease.fence))
        code = "import sys, leasehold; print(leasehold.connect(sys.argv[1]).rlock('job').try_acquire())"
        done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "None"
