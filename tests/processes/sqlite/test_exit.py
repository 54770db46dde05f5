"""The interpreter ends: what is held is given back then, not at the end of its ttl."""

from __future__ import annotations

import signal

import pytest

import leasehold
from tests.support.workers.crew import Crew

WAYS = {"return": 0, "sys.exit": 3, "raise": 1}


@pytest.mark.parametrize("flavour", ["sync", pytest.param("asyncio", marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", WAYS)
def test_the_end_of_a_process_gives_back(crew: Crew, how: str, flavour: str) -> None:
    """However it ends, and although a global still refers to the lease."""
    worker = crew.spawn(flavour)
    old = worker.ask("acquire", kind="job", ttl=600)["fence"]
    worker.tell("quit", how=how)
    assert worker.end() == WAYS[how], worker.errors()
    assert "Traceback" not in worker.errors().replace("Traceback", "", how == "raise")
    with leasehold.connect(crew.url) as hold:
        lease = hold.lock("job").try_acquire()
        assert lease is not None and lease.fence > old


def test_an_interrupt_gives_back(crew: Crew) -> None:
    """Ctrl-C in the body of a ``with``."""
    worker = crew.spawn()
    worker.ask("within", kind="job", ttl=600)
    assert worker.interrupt() == -signal.SIGINT
    with leasehold.connect(crew.url) as hold:
        assert hold.lock("job").try_acquire() is not None


@pytest.mark.slow
def test_the_end_of_a_process_wakes_who_waits(crew: Crew) -> None:
    """What is given back at the end goes to the next in the queue at once."""
    holder, waiter = crew.spawn(), crew.spawn()
    holder.ask("acquire", kind="job", ttl=600)
    waiter.tell("acquire", kind="job", ttl=600)
    crew.waiting("job", 1)
    holder.tell("quit", how="return")
    assert waiter.hear()["fence"]


@pytest.mark.slow
def test_a_process_that_ends_while_it_waits_leaves_the_queue(crew: Crew) -> None:
    """Ctrl-C in acquire: its place is gone, and nobody waits for it."""
    holder, waiter = crew.spawn(), crew.spawn()
    holder.ask("acquire", kind="job", ttl=600)
    waiter.tell("acquire", kind="job", ttl=600)
    crew.waiting("job", 1)
    assert waiter.interrupt() == -signal.SIGINT
    assert crew.peek("job").queue == ()
