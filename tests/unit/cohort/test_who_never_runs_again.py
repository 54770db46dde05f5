"""Nobody waits for ever behind a thread or task of its process that never runs again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import leasehold
from leasehold import Leasehold
from leasehold._runtime.cohorts import WaitingThread
from leasehold._runtime.engine import Engine
from tests.support.waiting import until, until_async

pytestmark = pytest.mark.slow


def start(work: Callable[[], object]) -> threading.Thread:
    """A thread that does not keep the tests from ending."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def waiting(hold: Leasehold) -> int:
    """How many wait behind others."""
    return sum(len(cohort.waiting) for cohort in hold._engine.cohorts.values())


def test_a_lease_that_nobody_takes_up_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one to whom it was passed hangs; the next one gets its turn when the lease is over."""
    url = f"sqlite:///{tmp_path}/leases.db"
    hangs, let_go, goes_on, got = threading.Event(), threading.Event(), threading.Event(), threading.Event()
    sleep = WaitingThread.sleep

    def sleep_or_hang(member: WaitingThread, engine: Engine, until: float) -> None:
        if member.anchor is stuck:
            hangs.set()
            let_go.wait()
        sleep(member, engine, until)

    monkeypatch.setattr(WaitingThread, "sleep", sleep_or_hang)
    with leasehold.connect(url) as other, leasehold.connect(url) as hold:
        first = other.lock("r", ttl=30).acquire(wait=0)
        assert first is not None

        def leader() -> None:
            with hold.lock("r", ttl=1.5):
                goes_on.wait()

        def last() -> None:
            with hold.lock("r", ttl=1.5):
                got.set()

        stuck = threading.Thread(target=lambda: hold.lock("r", ttl=1.5).acquire(wait=60), daemon=True)
        leads = start(leader)
        until(lambda: bool(hold._engine.cohorts))
        stuck.start()
        assert hangs.wait(30)
        start(last)
        until(lambda: waiting(hold) == 2)
        first.release()
        goes_on.set()
        leads.join(30)
        try:
            assert got.wait(30)
        finally:
            let_go.set()
            stuck.join(30)


def test_a_leader_whose_loop_was_closed_leads_no_longer(tmp_path: Path) -> None:
    """The next one claims in its place."""
    url = f"memory://{tmp_path}"
    with leasehold.connect(url) as other:
        first = other.lock("r", ttl=30).acquire(wait=0)
        assert first is not None
        hold = leasehold.aio.connect(url)

        async def lead() -> None:
            await hold.lock("r", ttl=1.5).acquire()

        async def until_it_leads() -> asyncio.Task[None]:
            task = asyncio.ensure_future(lead())
            await until_async(lambda: bool(hold._engine.cohorts))
            return task

        async def follow() -> None:
            async with hold.lock("r", ttl=1.5):
                pass

        loop = asyncio.new_event_loop()
        left_behind = loop.run_until_complete(until_it_leads())
        loop.close()
        first.release()
        asyncio.run(asyncio.wait_for(follow(), 30))
        asyncio.run(hold.close())
        assert not left_behind.done()
        left_behind._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio would complain, and is right
        left_behind.get_coro().close()  # else the collector would, in the middle of another test
