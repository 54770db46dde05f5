"""Fork (trap 32): a child holds nothing, disturbs nothing, and can work; the parent goes on."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

import leasehold
from tests.processes.crew import Crew, Worker

TTL = 0.5


def parent(crew: Crew) -> tuple[Worker, dict[str, Any]]:
    """A process that holds and renews."""
    worker = crew.spawn()
    return worker, worker.ask("acquire", kind="job", ttl=TTL)


def still_renews(crew: Crew, worker: Worker, lease: dict[str, Any]) -> None:
    """The parent's lease outlives its ttl several times, with the same owner and fence."""
    time.sleep(3 * TTL)
    (grant,) = crew.peek("job").holders
    assert (grant.owner, grant.fence) == (lease["owner"], lease["fence"])
    assert worker.ask("state") == {"state": "held", "owned": True}
    assert worker.ask("write") == {"value": 1}
    assert worker.ask("release")["released"] is True


def judge(facts: dict[str, Any]) -> None:
    """What a child of a holder may believe: nothing."""
    assert facts["state"] == "lost" and facts["owned"] is False
    assert facts["check"]["error"] == "LeaseLost" and facts["check"]["reason"] == "forked"
    assert facts["released"] is False, "it has nothing to give back"
    assert facts["same"] is False, "its parent holds it"
    assert facts["other"] is True, "it can take other locks"
    assert facts["token"] is True, "under a name of its own"
    assert facts["code"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["sys.exit", "os._exit"])
def test_a_forked_child_holds_nothing(crew: Crew, leave: str) -> None:
    """os.fork: the child's end, with or without clean-up, gives back nothing of its parent's."""
    worker, lease = parent(crew)
    judge(worker.ask("fork", other="other", leave=leave))
    still_renews(crew, worker, lease)


@pytest.mark.slow
def test_a_forked_process_holds_nothing(crew: Crew) -> None:
    """multiprocessing, by fork."""
    worker, lease = parent(crew)
    judge(worker.ask("child", method="fork", other="other"))
    still_renews(crew, worker, lease)


@pytest.mark.slow
def test_a_spawned_process_works(crew: Crew) -> None:
    """multiprocessing, by spawn: a process like any other."""
    worker, lease = parent(crew)
    assert worker.ask("child", method="spawn", other="other") == {"other": True, "code": 0}
    still_renews(crew, worker, lease)


@pytest.mark.slow
def test_a_child_keeps_its_lease_when_its_parent_ends(crew: Crew) -> None:
    """The child's claims stand in the same file as everybody's, also when its parent has closed that file."""
    worker, _ = parent(crew)
    child = worker.ask("fork_and_stay", other="child's", ttl=1)
    try:
        worker.tell("quit", how="return")
        worker.end()
        with leasehold.connect(crew.url) as hold:
            assert hold.lock("child's", ttl=1).acquire(wait=3) is None, "the child holds it, and renews"
        assert [grant.owner for grant in crew.peek("child's").holders] == [child["owner"]]
    finally:
        os.kill(child["pid"], signal.SIGKILL)


@pytest.mark.slow
def test_fork_while_other_threads_use_the_store(crew: Crew) -> None:
    """A fork in the middle of another thread's transaction leaves the child able to work."""
    worker, _ = parent(crew)
    worker.ask("hammer", kind="busy")
    assert worker.ask("fork_many", other="other", count=40) == {"failed": 0, "stuck": 0}
    assert worker.ask("state") == {"state": "held", "owned": True}
