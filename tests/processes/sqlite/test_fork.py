"""Fork (trap 32): a child holds nothing, disturbs nothing, and can work; the parent goes on."""

from __future__ import annotations

import os
import signal

import pytest

import leasehold
from tests.support.workers.crew import Crew
from tests.support.workers.scenes import fork_many, holding, judge_child, renewed, still_renews


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["sys.exit", "os._exit"])
def test_a_forked_child_holds_nothing(crew: Crew, leave: str) -> None:
    """os.fork: the child's end, with or without clean-up, gives back nothing of its parent's."""
    worker, lease = holding(crew)
    judge_child(worker.ask("fork", other="other", leave=leave))
    still_renews(crew, worker, lease)


@pytest.mark.slow
def test_a_forked_process_holds_nothing(crew: Crew) -> None:
    """multiprocessing, by fork."""
    worker, lease = holding(crew)
    judge_child(worker.ask("child", method="fork", other="other"))
    still_renews(crew, worker, lease)


@pytest.mark.slow
def test_a_spawned_process_works(crew: Crew) -> None:
    """multiprocessing, by spawn: a process like any other."""
    worker, lease = holding(crew)
    assert worker.ask("child", method="spawn", other="other") == {"other": True, "code": 0}
    still_renews(crew, worker, lease)


@pytest.mark.slow
def test_a_child_keeps_its_lease_when_its_parent_ends(crew: Crew) -> None:
    """The child's claims stand in the same file as everybody's, also when its parent has closed that file."""
    worker, _ = holding(crew)
    child = worker.ask("fork_and_stay", other="child's", ttl=2)
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
    """A fork in the middle of another thread's transaction leaves the child able to work, and the parent to renew."""
    worker, lease = holding(crew)
    fork_many(worker)
    renewed(crew, lease)
    assert worker.ask("state") == {"state": "held", "owned": True}
