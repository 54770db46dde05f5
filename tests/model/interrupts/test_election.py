"""Interrupts and forks at the worst of places: nobody leads who does not know it, and nothing goes on asking."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold import LeaseLost
from leasehold._core.holding import ALIVE
from leasehold._runtime.held_lease import HeldLease
from leasehold.primitives.campaign import BaseCampaign, BaseElectionLock
from leasehold.primitives.election import BaseElection
from leasehold.primitives.health import HealthMonitor
from leasehold.primitives.term import HeldTerm
from tests.model.interrupts.test_lock import at_entry, interrupt, interrupted
from tests.support.lock import elsewhere, in_thread
from tests.support.waiting import PATIENCE, until

PLACES: list[tuple[Callable[..., Any], int]] = [
    (BaseElectionLock._keep, 1),
    (BaseElection._begin, 1),
    (HeldTerm.at_end, 1),
    (HeldTerm.at_end, 3),
    (HealthMonitor.start, 1),
    (HeldTerm.begin_release, 1),
    (HeldTerm.end, 1),
    (HeldLease.begin_release, 1),
    (HeldTerm._next_callback, 1),
    (HeldTerm._next_callback, 2),
    (HeldTerm._next_callback, 3),
]


def in_child(step: Callable[[], None]) -> int:
    """Its exit status; killed after a while."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))
        status = 1
        try:
            step()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def asking() -> list[threading.Thread]:
    """Those who ask for somebody's health."""
    return [thread for thread in threading.enumerate() if thread.name == "leasehold-health"]


def free(hold: leasehold.Leasehold, other: leasehold.Leasehold) -> None:
    """Nobody leads, and somebody else can."""
    gc.collect()
    until(lambda: not any(held.phase in ALIVE for held in hold._engine.watchdog.leases()), "nobody believes in it")
    theirs = in_thread(lambda: other.lock("job").acquire(wait=PATIENCE))
    assert theirs is not None and theirs.release()


@pytest.mark.slow
@pytest.mark.parametrize(("function", "nth"), PLACES, ids=lambda part: getattr(part, "__qualname__", str(part)))
def test_an_interrupted_term_is_over(function: Callable[..., Any], nth: int) -> None:
    """Wherever a with statement is interrupted, the next one can lead long before the ttl, and nobody is asked for the
    health of who led."""
    with leasehold.connect("memory://term") as hold, leasehold.connect("memory://term") as other:
        election = hold.election("job", ttl=300, health=lambda: True)

        def body() -> None:
            with election.campaign():
                pass

        body()
        assert interrupted(body, at_entry(function.__code__, nth, interrupt))
        free(hold, other)
        until(lambda: not asking(), "nobody asks any more")


@pytest.mark.parametrize("function", [BaseCampaign._begin_term, HeldLease.track_lock], ids=lambda one: one.__qualname__)
@pytest.mark.parametrize("nth", [1, 2])
def test_an_interrupted_loop_is_over(function: Callable[..., Any], nth: int) -> None:
    """Between being elected and the first line of the body as well."""
    with leasehold.connect("memory://loop") as hold, leasehold.connect("memory://loop") as other:

        def body() -> None:
            for number, _ in enumerate(hold.election("job", ttl=300).campaign()):
                if number == 2:
                    break

        assert interrupted(body, at_entry(function.__code__, nth, interrupt))
        free(hold, other)


@pytest.mark.slow
def test_a_child_reads_what_a_thread_of_its_parent_reads() -> None:
    """The thread that was reading at the fork does not exist in the child."""
    with leasehold.connect("memory://") as hold:
        watched = hold.election("job").observe()
        assert next(watched) is None
        with elsewhere(lambda: next(watched, None)) as result:
            until(lambda: watched._reading, "it waits for the next change")

            def child() -> None:
                watched._known = None  # it wants to see who leads now
                assert next(watched) is None

            assert in_child(child) == 0
            watched.close()
            assert result() is None


def test_a_child_cannot_publish_while_its_parent_does() -> None:
    """It is told that the term is its parent's, and does not wait for a thread that is not there."""
    with leasehold.connect("memory://") as hold, hold.election("job").campaign() as term:
        began, go_on = threading.Event(), threading.Event()

        def publishing() -> None:
            with term._publishing:
                began.set()
                go_on.wait(PATIENCE)

        with elsewhere(publishing) as result:
            began.wait(PATIENCE)

            def child() -> None:
                with pytest.raises(LeaseLost):
                    term.publish("mine")

            assert in_child(child) == 0
            go_on.set()
            result()


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_leads_or_watches_is_not_copied(take: Callable[[Any], Any]) -> None:
    """A copy that is dropped would end what its original goes on with."""
    with leasehold.connect("memory://") as hold:
        election = hold.election("job")
        for thing in (election, election.campaign(), election.observe()):
            with pytest.raises(TypeError, match="in its process"):
                take(thing)
