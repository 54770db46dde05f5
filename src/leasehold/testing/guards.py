"""The contract of a guard: one suite of cases for every guard, including your own.

    import pytest
    from leasehold.testing.guards import CASES

    @pytest.mark.parametrize("case", CASES)
    def test_my_guard_keeps_the_contract(case):
        CASES[case](MyGuard())

Each case gets a guard that has seen nothing yet. One whose ``check`` is awaited needs a wrapper that awaits it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from leasehold._core.types import owner_digest, owner_id
from leasehold.coordinator import connect
from leasehold.errors import InvalidRequest, StaleOwner
from leasehold.guards.fence import UNKNOWN_OWNER, accept
from leasehold.guards.guard import Guard
from leasehold.observe.events import Event, FencedOff
from leasehold.stores.memory import MemoryStore

__all__ = ["CASES"]

Case = Callable[[Guard], None]
CASES: dict[str, Case] = {}
"""Every case under its name: a function that takes a guard, and raises AssertionError or an error of the guard's."""
E = TypeVar("E", bound=BaseException)

RESOURCE = "acme/report-export:42"
A, B = "host-1:11:5ec2e75ec2e75ec2e75ec2e75ec2e7.1", "host-2:22:5ec2e75ec2e75ec2e75ec2e75ec2e7.2"


def case(function: Case) -> Case:
    """Register a case of the contract under its name."""
    CASES[function.__name__] = function
    return function


def raises(kind: type[E], call: Callable[..., object], *args: Any) -> E:
    """The error that this call raises. A call that raises none fails the case."""
    try:
        call(*args)
    except kind as error:
        return error
    raise AssertionError(f"it was accepted, in place of {kind.__name__}")


# ---------------------------------------------------------------- the rule


@case
def a_newer_fence_is_accepted(guard: Guard) -> None:
    """One holder after another is accepted."""
    for fence, owner in ((10, A), (11, B), (1794768018952706, A)):
        guard.check(fence, resource=RESOURCE, owner=owner)


@case
def one_owner_may_write_many_times(guard: Guard) -> None:
    """The same fence of the same owner is accepted again and again, with and without its token."""
    for _ in range(3):
        guard.check(10, resource=RESOURCE, owner=A)
        guard.check(10, resource=RESOURCE, owner=owner_id(A))


@case
def an_older_fence_is_refused(guard: Guard) -> None:
    """StaleOwner names both fences, the resource and the owner, without the owner's secret."""
    guard.check(10, resource=RESOURCE, owner=A)
    error = raises(StaleOwner, lambda: guard.check(9, resource=RESOURCE, owner=B))
    assert (error.fence, error.seen, error.resource, error.owner) == (9, 10, RESOURCE, "host-2:22")
    assert "5ec2e7" not in f"{error}{error.__dict__}"


@case
def an_equal_fence_of_another_is_refused(guard: Guard) -> None:
    """Two owners with one fence: the second is refused, and so is a check without an owner."""
    guard.check(10, resource=RESOURCE, owner=A)
    for owner in (B, None):
        error = raises(StaleOwner, lambda owner=owner: guard.check(10, resource=RESOURCE, owner=owner))
        assert error.seen == error.fence == 10


@case
def a_fence_without_an_owner(guard: Guard) -> None:
    """Checks without an owner may be repeated; a check with an owner counts as another one."""
    guard.check(10, resource=RESOURCE)
    guard.check(10, resource=RESOURCE)
    raises(StaleOwner, lambda: guard.check(10, resource=RESOURCE, owner=A))
    raises(StaleOwner, lambda: guard.check(9, resource=RESOURCE))


@case
def a_refusal_changes_nothing(guard: Guard) -> None:
    """After a refusal the last owner is still accepted, and so is the next one."""
    guard.check(10, resource=RESOURCE, owner=A)
    raises(StaleOwner, lambda: guard.check(9, resource=RESOURCE, owner=B))
    raises(StaleOwner, lambda: guard.check(10, resource=RESOURCE, owner=B))
    guard.check(10, resource=RESOURCE, owner=A)
    guard.check(11, resource=RESOURCE, owner=B)


@case
def resources_are_apart(guard: Guard) -> None:
    """Names that look alike are different: other case, a space at the end, other forms of one letter, long ones."""
    accent = "job:a\N{COMBINING ACUTE ACCENT}"
    names = ["job:a", "job:A", "job:a ", " job:a", accent, "job:á", "job:%2F", "jöb:ß", "jöb:ss", "x" * 512]
    for fence, name in enumerate(reversed(names), 1):
        guard.check(fence, resource=name, owner=A)
    for fence, name in enumerate(reversed(names), 1):
        guard.check(fence, resource=name, owner=A)


@case
def every_digit_counts(guard: Guard) -> None:
    """Fences above 2**53, where a double begins to round, and the highest that there is (trap 17)."""
    for fence in (2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1):
        guard.check(fence, resource=RESOURCE, owner=A)
        error = raises(StaleOwner, lambda fence=fence: guard.check(fence - 1, resource=RESOURCE, owner=A))
        assert (error.fence, error.seen) == (fence - 1, fence)


@case
def any_history_is_judged_by_the_rule(guard: Guard) -> None:
    """A hundred random attempts: each is accepted or refused as the rule says."""
    chance = random.Random(5)  # the same history for every guard
    last: dict[str, tuple[int | None, str]] = {}
    for step in range(100):
        resource, fence = f"job:{chance.randrange(3)}", chance.randrange(1, 12)
        owner, shared = chance.choice([A, B, None]), chance.random() < 0.2
        mine = owner_digest(owner) if owner else UNKNOWN_OWNER
        before, whose = last.get(resource, (None, UNKNOWN_OWNER))
        expected = accept(before, whose, fence, mine)
        assert accepted(guard, fence, resource=resource, owner=owner, shared=shared) is expected, f"step {step}"
        if expected and not shared:
            last[resource] = (fence, mine)


def accepted(guard: Guard, fence: Any, **more: Any) -> bool:
    """Whether the guard accepts this fence."""
    try:
        guard.check(fence, **more)
    except StaleOwner:
        return False
    return True


@case
def threads_at_once(guard: Guard) -> None:
    """Eight threads present fences in a race: the highest one wins, and no lower one is accepted after it."""

    def present(fences: list[int]) -> None:
        for fence in fences:
            if accepted(guard, fence, resource=RESOURCE, owner=A) and fence > 1:
                assert not accepted(guard, fence - 1, resource=RESOURCE, owner=A), f"{fence - 1} after {fence}"

    race(present, 80)
    assert raises(StaleOwner, lambda: guard.check(79, resource=RESOURCE, owner=A)).seen == 80
    guard.check(80, resource=RESOURCE, owner=A)


def race(call: Callable[[list[int]], None], highest: int) -> None:
    """Calls it in eight threads, each with a share of the fences up to the highest, in random order."""
    fences = list(range(1, highest + 1))
    random.Random(7).shuffle(fences)  # the same order in every run
    failures: list[BaseException] = []

    def run(share: list[int]) -> None:
        try:
            call(share)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(fences[lane::8],)) for lane in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    assert not failures, failures


# ---------------------------------------------------------------- leases


@case
def a_lease_is_presented_as_it_is(guard: Guard) -> None:
    """A lease is all that a guard needs. Afterwards it is marked as guarded, and not as exported."""
    with connect(MemoryStore()) as hold, hold.lock("report-export", 42) as lease:
        guard.check(lease)
        assert lease.guarded and not lease.exported
        raises(InvalidRequest, lambda: guard.check(lease, resource="other"))
        raises(InvalidRequest, lambda: guard.check(lease, owner="other"))


@case
def a_refusal_is_reported_and_raises_the_floor(guard: Guard) -> None:
    """Observers of the coordinator get one event, and its next lease has a higher fence than the one seen."""
    events: list[Event] = []
    with connect(MemoryStore(), observers=[events.append]) as hold:
        stale = hold.lock("report-export", 42).acquire(wait=0)
        assert stale is not None
        newer = stale.fence + 60_000_000
        guard.check(newer, resource=stale.resource, owner=B)
        error = raises(StaleOwner, lambda: guard.check(stale))
        assert (error.fence, error.seen) == (stale.fence, newer)
        (event,) = [one for one in events if isinstance(one, FencedOff)]
        assert (event.lease.kind, event.lease.fence, event.seen) == ("report-export", stale.fence, newer)
        stale.release()
        with hold.lock("report-export", 42) as lease:
            assert lease.fence > newer
            guard.check(lease)


@case
def a_bare_fence_that_is_refused_raises_the_floor(guard: Guard) -> None:
    """The coordinator in this process that holds the lease of that fence claims a higher fence than the one seen."""
    with connect(MemoryStore()) as hold, connect(MemoryStore()) as other:
        stale = hold.lock("report-export", 42).acquire(wait=0)
        assert stale is not None
        older, newer = stale.fence, stale.fence + 60_000_000
        guard.check(newer, resource=stale.resource, owner=B)
        raises(StaleOwner, lambda: guard.check(older, resource=stale.resource, owner=stale.owner))
        stale.release()
        with hold.lock("report-export", 42) as lease, other.lock("report-export", 42) as another:
            assert lease.fence > newer
            assert another.fence < newer  # it held none of that fence
            guard.check(lease.fence, resource=lease.resource, owner=lease.owner)


@case
def an_unfenced_lease_is_a_mistake(guard: Guard) -> None:
    """It cannot be distinguished from a stale one."""
    lease = SimpleNamespace(resource=RESOURCE, fence=None, owner=A)
    raises(InvalidRequest, lambda: guard.check(lease))


# ---------------------------------------------------------------- readers and permits (trap 47)


@case
def a_shared_check_remembers_nothing(guard: Guard) -> None:
    """A reader is refused below the last writer. Its own fence refuses no later holder with a lower one."""
    guard.check(50, resource=RESOURCE, owner=A, shared=True)
    guard.check(10, resource=RESOURCE, owner=A)
    guard.check(30, resource=RESOURCE, owner=B, shared=True)
    guard.check(20, resource=RESOURCE, owner=B)
    guard.check(20, resource=RESOURCE, owner=B, shared=True)
    error = raises(StaleOwner, lambda: guard.check(19, resource=RESOURCE, owner=B, shared=True))
    assert (error.fence, error.seen) == (19, 20)


@case
def a_read_lease_is_checked_as_shared(guard: Guard) -> None:
    """A read lease is checked with shared=True, and an exclusive one without."""
    reading = SimpleNamespace(resource=RESOURCE, fence=10, owner=A, shared=True)
    guard.check(reading, shared=True)
    raises(InvalidRequest, lambda: guard.check(reading))
    writing = SimpleNamespace(resource=RESOURCE, fence=10, owner=A, shared=False)
    guard.check(writing)
    raises(InvalidRequest, lambda: guard.check(writing, shared=True))


@case
def a_permit_names_its_slot(guard: Guard) -> None:
    """Permits are valid side by side: each is checked under the name of its slot, and never without."""
    first = SimpleNamespace(resource="pool", fence=10, owner=A, slot=0, slot_resource="pool:0")
    second = SimpleNamespace(resource="pool", fence=9, owner=B, slot=1, slot_resource="pool:1")
    for permit in (first, second, first, second):
        guard.check(permit, resource=permit.slot_resource)
    raises(InvalidRequest, lambda: guard.check(first))
    raises(InvalidRequest, lambda: guard.check(first, resource="pool:1"))
    later = SimpleNamespace(resource="pool", fence=11, owner=B, slot=0, slot_resource="pool:0")
    guard.check(later, resource="pool:0")
    raises(StaleOwner, lambda: guard.check(first, resource="pool:0"))


@case
def a_permit_of_several_slots_names_one(guard: Guard) -> None:
    """Any slot of its own, and each by itself: it is stale in the slot that has another holder, not in the other."""
    slots = ("pool:0", "pool:1")
    pair = SimpleNamespace(resource="pool", fence=10, owner=A, slot=0, slot_resource=slots[0], slot_resources=slots)
    for slot in slots:
        guard.check(pair, resource=slot)
    raises(InvalidRequest, lambda: guard.check(pair))
    raises(InvalidRequest, lambda: guard.check(pair, resource="pool:2"))
    later = SimpleNamespace(resource="pool", fence=11, owner=B, slot=1, slot_resource=slots[1])
    guard.check(later, resource=slots[1])
    raises(StaleOwner, lambda: guard.check(pair, resource=slots[1]))
    guard.check(pair, resource=slots[0])


# ---------------------------------------------------------------- mistakes


@case
def what_is_no_fence(guard: Guard) -> None:
    """Zero, negative, boolean, textual, fractional, too large: a mistake, and not a stale owner."""
    mistakes: list[Any] = [0, -1, 2**63, True, False, "12", b"12", 12.0, None, [12]]
    for mistake in mistakes:
        raises(InvalidRequest, lambda fence=mistake: guard.check(fence, resource=RESOURCE))


@case
def what_is_no_resource_or_owner(guard: Guard) -> None:
    """Anything but text without NUL and surrogates, of a size that fits; a bare fence needs a resource."""
    mistakes: list[Any] = [None, "", "x" * 513, "a\0b", "\ud800", 42, b"job"]
    for mistake in mistakes:
        raises(InvalidRequest, lambda resource=mistake: guard.check(12, resource=resource))
    owners: list[Any] = ["", 42, b"token", "\ud800", True]
    for mistake in owners:
        raises(InvalidRequest, lambda owner=mistake: guard.check(12, resource=RESOURCE, owner=owner))
