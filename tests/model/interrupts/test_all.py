"""Interrupts of an all at the worst of places: whatever an exception from nowhere hits, nothing stays held."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold._core import driver, group
from leasehold._core.claims import claim
from leasehold._core.holding import ALIVE, Holding
from leasehold._runtime.connections import ConnectionPool
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.registry import LeaseRegistry
from leasehold._runtime.watchdog import Watchdog
from leasehold.primitives.base_lock import BaseLock
from leasehold.primitives.lease import Lease
from leasehold.primitives.leases import BaseLeases, Leases
from leasehold.primitives.multi import All, BaseAll, GroupAttempt
from tests.model.interrupts.test_lock import KINDS, at_entry, at_line, interrupt, interrupted
from tests.support.lock import elsewhere, in_thread, look
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow  # every function of the way, on each store: seconds

PLACES: list[tuple[Callable[..., Any], int]] = [
    (GroupAttempt.enter_again, 1),
    (GroupAttempt.flow, 1),
    (group.GroupAcquisition.apply_replies, 1),
    (claim, 2),
    (GroupAttempt.new_owner, 2),
    (GroupAttempt.keep, 1),
    (GroupAttempt.keep, 2),
    (HeldLease.__init__, 2),
    (Engine.register, 2),
    (LeaseRegistry.add, 2),
    (Watchdog.add, 2),
    (HeldLease.check_at, 2),
    (group.GroupAcquisition.all_held, 2),
    (ConnectionPool.give_back, 1),
    (GroupAttempt.leases, 1),
    (Lease.__init__, 2),
    (BaseLeases.__init__, 1),
    (GroupAttempt.finish, 1),
    (BaseAll._enter, 1),
    (BaseAll._innermost, 1),
    (BaseAll._leave, 1),
    (Leases.release, 1),
    (HeldLease.step_out, 2),
    (group.release_all, 1),
    (Holding.begin_release, 2),
    (Holding.end_release, 2),
    (Lease._finish_release, 2),
    (Engine.forget, 2),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("function", "nth"), PLACES, ids=lambda part: getattr(part, "__qualname__", str(part)))
@pytest.mark.filterwarnings("ignore:coroutine 'release_all' was never awaited")  # its very beginning is interrupted
def test_an_interrupt_leaves_nothing_held(function: Callable[..., Any], nth: int, url: str) -> None:
    """Wherever a with statement is interrupted, its locks are free long before their ttl, and can be had again."""
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        both = hold.all(hold.lock("b", ttl=300), hold.lock("a", ttl=300))

        def body() -> None:
            with both:
                pass

        body()
        assert interrupted(body, at_entry(function.__code__, nth, interrupt))
        gc.collect()
        assert not any(held.phase in ALIVE for held in hold._engine.watchdog.leases()), "nobody believes in it"
        assert not both.owned()
        theirs = in_thread(lambda: other.all(other.lock("a"), other.lock("b")).acquire(wait=PATIENCE))
        assert theirs is not None and theirs.release()
        again = both.acquire(wait=PATIENCE)
        assert again is not None and again.release()
        assert not hold._engine.pending


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "function",
    [HeldLease.step_out, group.release_all, Holding.begin_release, Holding.end_release, BaseLeases._finish_releases],
)
@pytest.mark.filterwarnings("ignore:coroutine 'release_all' was never awaited")  # its very beginning is interrupted
def test_an_interrupted_release_can_be_repeated(function: Callable[..., Any], url: str) -> None:
    """Explicit leases whose release was interrupted: by the second release at the latest all are free."""
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        leases = hold.all(hold.lock("b", ttl=300), hold.lock("a", ttl=300)).acquire(wait=0)
        assert leases is not None
        assert interrupted(leases.release, at_entry(function.__code__, 1, interrupt))
        leases.release()
        theirs = in_thread(lambda: other.all(other.lock("a"), other.lock("b")).acquire(wait=PATIENCE))
        assert theirs is not None and theirs.release()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "which"),
    [("try:", 1), ("result = perform(request)", 0), ("request = flow.send(result)", 0)],
    ids=["head", "op", "answer"],
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_interrupted_wait_leaves_nothing(text: str, which: int, nth: int, url: str) -> None:
    """Between two ops of a wait as well: what it holds is given back, and it stands in no queue."""
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        theirs = other.lock("b", ttl=300).acquire(wait=0)
        assert theirs is not None
        both = hold.all(hold.lock("c", ttl=300), hold.lock("b", ttl=300), hold.lock("a", ttl=300))
        assert interrupted(lambda: both.acquire(wait=0.1), at_line(driver.drive, text, which, nth, interrupt))
        until(lambda: not look(hold._engine.store, "a").holders, "the first is given back")
        until(lambda: not look(hold._engine.store, "b").queue, "nobody waits")
        assert not hold._engine.pending
        assert theirs.release() and other.all(other.lock("b"), other.lock("c")).try_acquire() is not None


@pytest.mark.parametrize("function", [GroupAttempt.clean_up, GroupAttempt.finish])
def test_an_interrupt_at_the_end_of_a_refusal(function: Callable[..., Any]) -> None:
    """Nothing of the acquire is kept, neither it nor its connection, though the refusal came first."""
    with leasehold.connect("memory://") as hold:
        theirs = hold.lock("b", ttl=300).acquire(wait=0)
        assert theirs is not None
        both = hold.all(hold.lock("a", ttl=300), hold.lock("b", ttl=300))
        assert interrupted(lambda: both.acquire(wait=0), at_entry(function.__code__, 1, interrupt))
        assert not hold._engine.pending and len(hold._engine.connections._idle) == 1
        assert theirs.release()


@pytest.mark.parametrize("function", [GroupAttempt.keep, BaseLock._keep, group.GroupAcquisition.all_held])
def test_an_interrupt_of_the_last_grant(function: Callable[..., Any]) -> None:
    """What a wait was granted in the end, and could not be kept, is given back with all the rest."""
    with leasehold.connect("memory://last") as hold, leasehold.connect("memory://last") as other:
        theirs = other.lock("b", ttl=300).acquire(wait=0)
        assert theirs is not None
        both = hold.all(hold.lock("a", ttl=300), hold.lock("b", ttl=300))
        nth = 3 if function is group.GroupAcquisition.all_held else 2
        with elsewhere(lambda: interrupted(both.acquire, at_entry(function.__code__, nth, interrupt))) as result:
            until(lambda: look(hold._engine.store, "b").queue, "it waits")
            assert theirs.release()
            assert result()
        assert other.all(other.lock("a"), other.lock("b")).acquire(wait=PATIENCE) is not None


@pytest.mark.parametrize(
    "function", [GroupAttempt.keep, GroupAttempt.leases, BaseAll._enter, BaseAll._leave, Leases.release]
)
def test_an_interrupt_of_an_inner_body_is_no_loss(function: Callable[..., Any]) -> None:
    """Whoever holds a part already, and bears the interrupt, works on under it; the rest is free."""
    with leasehold.connect("memory://inner") as hold, leasehold.connect("memory://inner") as other:
        with hold.rlock("a", ttl=300) as lease:

            def step() -> None:
                with hold.all(hold.lock("b", ttl=300), hold.rlock("a", ttl=300)):
                    pass

            assert interrupted(step, at_entry(function.__code__, 1, interrupt))
            assert lease.state == "held" and lease._held.depth == 1 and other.lock("a").try_acquire() is None
            assert in_thread(lambda: other.lock("b").acquire(wait=PATIENCE)) is not None
        assert other.lock("a").try_acquire() is not None


def test_the_body_of_an_all_can_be_interrupted() -> None:
    """Ctrl-C in the body comes out of it, and gives back."""
    with leasehold.connect("memory://") as hold:
        both: All = hold.all(hold.lock("a"), hold.lock("b"))

        def body() -> None:
            with both as (first, second):
                assert first.state == second.state == "held"
                interrupt()

        with pytest.raises(KeyboardInterrupt):
            body()
        assert not both.locked()
