"""A round of renewals in virtual time: which requests are sent, in which order, and how long each may take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import leasehold
from leasehold import OutcomeUnknown
from leasehold._core.holding import Holding
from leasehold._core.ops import Release, Renew, Renewed, Reply, StoreOp
from leasehold._runtime.renewal_round import LEAST_MS, MANY
from leasehold._runtime.schedule import FEW
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, StillClock

SILENT = OutcomeUnknown("no answer")


class Bulk(Spy):
    """A store that renews hundreds with one request; a test can make it silent, and see what each call may take."""

    def __init__(self, clock: StillClock) -> None:
        super().__init__(MemoryStore(clock))
        self.requests: list[tuple[str, int, int]] = []  # kind, how many leases or batches, budget in ms
        self.sizes: list[int] = []
        self.silent: Callable[[int], bool] = lambda budget_ms: False
        self.meanwhile: Callable[[], object] = lambda: None
        self.advance = clock.advance

    def renew_many(self, batches: Sequence[Sequence[Holding]], budget_ms: int) -> list[list[int] | LeaseholdError]:
        """Each batch is one request."""
        self.requests.append(("many", len(batches), budget_ms))
        self.sizes += [len(batch) for batch in batches]
        if self.silent(budget_ms):
            self.advance(budget_ms / 1000)
            return [SILENT] * len(batches)
        self.meanwhile()
        return [self._not_renewed(batch) for batch in batches]

    def _not_renewed(self, batch: Sequence[Holding]) -> list[int]:
        renews = [Renew(one.name.text, one.owner, one.fence, one.ttl_ms) for one in batch]
        return [at for at, renew in enumerate(renews) if not isinstance(self.inner.execute(renew), Renewed)]

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """What travels alone."""
        budget_ms = min(op.budget_ms for op in ops)
        self.requests.append(("each", len(ops), budget_ms))
        if self.silent(budget_ms):
            self.advance(budget_ms / 1000)
            return [SILENT] * len(ops)
        return super().execute_many(ops)


class Scene:
    """One coordinator whose rounds the test does."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.store = Bulk(self.clock)
        self.hold = leasehold.connect(self.store)
        self.watchdog = self.hold._engine.watchdog
        self.watchdog.pause()  # its thread does no round by itself
        self.leases: list[Any] = []

    def acquire(self, count: int, **options: Any) -> list[Any]:
        """So many leases."""
        start = len(self.leases)
        taken = [self.hold.lock("job", start + number, **options).acquire() for number in range(count)]
        self.leases += taken
        return taken

    def pass_time(self, seconds: float) -> None:
        """Without a round."""
        self.clock.advance(seconds)

    def renew(self) -> list[tuple[str, int, int]]:
        """One round now, and its requests."""
        self.store.requests.clear()
        self.store.sizes.clear()
        self.watchdog._round()
        return list(self.store.requests)

    def states(self) -> set[str]:
        """Of all leases."""
        return {lease.state for lease in self.leases}

    def close(self) -> None:
        """The end."""
        self.store.silent = lambda budget_ms: False
        self.hold.close()


def test_thousands_are_renewed_in_batches_of_some_hundred() -> None:
    """No request is so long that others wait for it, and not all are sent before the first reply is read."""
    scene = Scene()
    scene.acquire(MANY + FEW + 1, ttl=30)
    scene.pass_time(10)
    assert scene.renew() == [("many", MANY // FEW, 500), ("many", 2, 500)]
    assert scene.store.sizes == [FEW] * (MANY // FEW + 1) + [1]
    deadlines = {lease.deadline for lease in scene.leases}
    assert deadlines == {scene.clock.now() + 30 - 0.302}
    assert scene.renew() == []  # nothing is due
    scene.pass_time(10)
    assert len(scene.renew()) == 2 and scene.states() == {"held"}
    scene.close()


def test_what_was_not_renewed_is_renewed_alone_and_tells_why() -> None:
    """The reply names the places; only a Renew has a reason. The others keep their confirmation."""
    scene = Scene()
    leases = scene.acquire(600, ttl=30)
    for place in (0, 299, 599):
        held = leases[place]._held
        scene.store.inner.execute(Release(held.name.text, held.owner, held.fence))
    scene.pass_time(10)
    assert scene.renew() == [("many", 3, 500), ("each", 3, 500)]
    assert [leases[place].state for place in (0, 299, 599)] == ["lost"] * 3
    assert [leases[place]._held.reason for place in (0, 299, 599)] == ["deleted"] * 3
    assert sum(lease.state == "held" for lease in leases) == 597
    scene.close()


def test_what_is_not_plain_travels_alone() -> None:
    """Permits, readers, and what was extended."""
    scene = Scene()
    plain = scene.acquire(2, ttl=30)
    extended = scene.acquire(1, ttl=20)[0]
    extended.extend(30)
    permit = scene.hold.semaphore("pool", limit=3, ttl=30).acquire()
    reader = scene.hold.rwlock("book").read(ttl=30).acquire()
    scene.pass_time(10)
    assert scene.renew() == [("many", 1, 500), ("each", 3, 500)]
    assert [one.state for one in (*plain, extended, permit, reader)] == ["held"] * 5
    scene.close()


def test_a_silent_store_is_asked_once_in_a_round() -> None:
    """With thousands of leases every request would take its whole budget; all are tried again soon."""
    scene = Scene()
    scene.acquire(2 * MANY, ttl=30)
    scene.pass_time(10)
    before = {lease.deadline for lease in scene.leases}
    scene.store.silent = lambda budget_ms: True
    assert scene.renew() == [("many", MANY // FEW, 500)]
    assert scene.states() == {"unsure"} and {lease.deadline for lease in scene.leases} == before
    scene.pass_time(1)
    scene.store.silent = lambda budget_ms: False
    assert scene.renew() == [("many", MANY // FEW, 500)] * 2  # together, as if nothing had happened
    assert scene.states() == {"held"}
    scene.close()


def test_short_leases_neither_wait_for_long_ones_nor_hurry_them() -> None:
    """Each class of budgets has requests of its own, the shortest first; one that is in vain costs no other class its
    try."""
    scene = Scene()
    scene.acquire(1, ttl=60)
    scene.pass_time(20 - 0.2)
    scene.acquire(1, ttl=0.6)
    scene.pass_time(0.2)
    assert scene.renew() == [("many", 1, 100), ("many", 1, 500)]
    assert scene.states() == {"held"}
    scene.pass_time(0.2)
    scene.store.silent = lambda budget_ms: budget_ms <= 100
    assert scene.renew() == [("many", 1, 100)]
    scene.close()


def test_no_request_takes_longer_than_another_lease_can_wait() -> None:
    """The thread that waits for a long lease also declares the loss of a short one, in time. The short one is not due
    yet: what it needs is its last try."""
    scene = Scene()
    scene.acquire(1, ttl=60)
    scene.pass_time(20)
    (short,) = scene.acquire(1, ttl=0.5)
    held, told = short._held, []
    held.listen(lambda: told.append(scene.clock.now()))
    scene.store.silent = lambda budget_ms: True
    ((kind, count, budget_ms),) = scene.renew()
    assert (kind, count) == ("many", 1) and LEAST_MS <= budget_ms < 500
    assert scene.clock.now() <= held.stop_at - 83 / 1000 + 0.001
    while not told:
        scene.clock.advance(max(scene.watchdog.next_at() - scene.clock.now(), 0) + 1e-6)
        scene.watchdog._round()
    assert told[0] <= held.stop_at + 2 * LEAST_MS / 1000 and told[0] < held.deadline
    assert held.reason == "renewal_failed"
    scene.close()


def test_what_is_pressing_goes_first_with_the_time_it_has_left() -> None:
    """Its last try is not delayed by renewals that have time, and theirs is not cut short by it."""
    scene = Scene()
    (late,) = scene.acquire(1, ttl=30)
    scene.pass_time(24.0)  # stop is at 24.698
    scene.acquire(1, ttl=30)
    scene.leases[1]._held.renew_at = scene.clock.now()
    scene.watchdog.check_again(scene.leases[1]._held)
    assert scene.renew() == [("each", 1, 500), ("many", 1, 500)]
    assert scene.states() == {"held"} and late.deadline > scene.clock.now() + 29
    scene.close()


def test_a_shortage_of_replicas_fails_only_what_needs_as_many() -> None:
    """The store has answered. What needs fewer replicas, or none, is sent in the same round and renewed; what needs as
    many is not sent."""
    scene = Scene()
    scene.store.capabilities = scene.store.capabilities._replace(durability=True)
    pressing = scene.acquire(1, ttl=30, durability="replicas:2")
    scene.pass_time(24.0)
    as_many = scene.acquire(1, ttl=30, durability="replicas:2")
    fewer = scene.acquire(1, ttl=0.6, durability="replicas:1")
    none = scene.acquire(1, ttl=30)
    for lease in (*as_many, *fewer, *none):
        lease._held.renew_at = scene.clock.now()
        scene.watchdog.check_again(lease._held)

    def missing(op: StoreOp) -> None:
        if isinstance(op, Renew) and op.durability == "replicas:2":
            raise StoreUnavailable("1 replica is missing")

    scene.store.before = missing
    assert [request[:2] for request in scene.renew()] == [("each", 1), ("each", 1), ("many", 1)]
    assert [lease.state for lease in (*pressing, *as_many, *fewer, *none)] == ["unsure", "unsure", "held", "held"]
    scene.store.heal()
    scene.close()


def test_a_lease_that_is_given_back_during_its_renewal_stays_given_back() -> None:
    """Its confirmation comes after its release (trap 43), and it is not filed again."""
    scene = Scene()
    leases = scene.acquire(3, ttl=30)
    scene.pass_time(10)

    def release() -> None:
        other = threading.Thread(target=leases[1].release)
        other.start()
        other.join()

    scene.store.meanwhile = release
    scene.renew()
    assert [lease.state for lease in leases] == ["held", "released", "held"]
    assert len(scene.watchdog.leases()) == 2
    scene.close()


def test_a_lease_that_is_extended_during_its_renewal_goes_by_the_extension() -> None:
    """The renewal was sent before, and speaks of an end that no longer holds (trap 44)."""
    scene = Scene()
    (lease,) = scene.acquire(1, ttl=30)
    scene.pass_time(10)
    scene.store.meanwhile = lambda: lease.extend(2)
    scene.renew()
    assert lease.state == "held" and lease.deadline < scene.clock.now() + 2
    scene.pass_time(2)
    scene.watchdog._round()
    assert lease.state == "lost"
    scene.close()


def test_an_error_in_a_round_loses_no_lease() -> None:
    """What was due stays due."""
    scene = Scene()
    scene.acquire(3, ttl=30)
    scene.pass_time(10)

    def fail() -> None:
        raise ZeroDivisionError

    scene.store.meanwhile = fail
    try:
        scene.watchdog._round()
    except ZeroDivisionError:
        pass
    scene.store.meanwhile = lambda: None
    assert scene.renew() == [("many", 1, 500)] and scene.states() == {"held"}
    scene.close()
