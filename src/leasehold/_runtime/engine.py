"""The engine of one coordinator: its store, its watchdog, its connections, and the leases of this process."""

from __future__ import annotations

import atexit
import os
import threading

from leasehold._core.claims import OwnLease
from leasehold._core.holding import ALIVE
from leasehold._core.light_typing import TYPE_CHECKING, Any, Callable
from leasehold._core.names import Name
from leasehold._core.ops import Defer
from leasehold._core.policy import BUDGET_MS, MAX_FENCE, MAX_FLOOR_AHEAD_US
from leasehold._runtime import shutdown
from leasehold._runtime.connections import ConnectionPool
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.identity import new_owner
from leasehold._runtime.registry import Attempt, LeaseRegistry
from leasehold._runtime.watchdog import Watchdog
from leasehold.errors import InvalidRequest, StoreUnavailable, Unsupported
from leasehold.observe import log
from leasehold.observe.observers import Observers

if TYPE_CHECKING:
    from weakref import WeakSet, ref

    from leasehold._core.ports import Clock, Store
    from leasehold._runtime.cohorts import LocalCohort
else:
    # ``weakref`` itself has more in it, which takes time to load.
    from _weakref import ref
    from _weakrefset import WeakSet


class CoordinatorClosed(Exception):
    """Thrown into a flow whose coordinator was closed meanwhile, before its next op: it must end at once and not
    wait for the store to come back. Drivers turn it into StoreUnavailable."""


FORKED = "this process was forked in the middle of the call: the call is its parent's"
CLOSED = "this coordinator is closed: make a new one with connect()"
WHY_NOT = {  # by the capability that is missing
    "shared": "a majority of nodes can agree on one holder, and not on which of several hold together",
    "groups": "the nodes cannot take several resources in one step. Take one lock after the other, in a fixed order",
    "handover": "a ticket could be good on some nodes and not on others. Release the lease, and acquire it anew",
    "durability": "it cannot wait for replicas or for a disk, or always does, as etcd and ZooKeeper do. One Redis or "
    "Valkey can, also one that Sentinels watch, and a Cluster, when connect() has connections of its own to it",
    "lingering": "a process that keeps a lease unused would not learn that a claim of another waits. Leave it out",
    "evictions": "it could succeed on some nodes and not on others. Stop the holder, or let its lease expire",
}
_engines: WeakSet[Engine] = WeakSet()
_watchdogs: WeakSet[Watchdog] = WeakSet()  # a watchdog's thread may outlive its coordinator
_stores: WeakSet[Store] = WeakSet()  # a store may outlive its coordinator
_droppable: set[ref[Engine]] = set()  # with a callback each, for when the program drops it


class Engine:
    """What sync and asyncio coordinators share."""

    caller: Callable[[], object] = staticmethod(threading.current_thread)  # or the calling task
    new_owner: Callable[[], str] = staticmethod(new_owner)

    def __init__(
        self, store: Store, observers: Observers | None = None, durability: str = "", namespace: str = ""
    ) -> None:
        self.store = store
        self.connecting = _announcement(store, namespace)
        if durability:
            self.require("durability", "durability=")
        self.durability = durability  # of all its leases that ask for no other
        self.observers = Observers() if observers is None else observers
        self.clock: Clock = store.clock
        self.watchdog = Watchdog(store, self.observers)
        self.connections = ConnectionPool(store, self.connecting)
        self._floor = 0
        self.refused_for = 0  # the latest fence that a guard has seen when it refused one of ours
        self.registry = LeaseRegistry()
        self.pending: set[Attempt] = set()  # acquires that are under way
        self.cohorts: dict[object, LocalCohort] = {}  # those who wait together; see ``cohorts``
        self.warned_places: set[tuple[str, int]] = set()  # in the program, where a thread waits inside a loop
        self.closed = self._ended = False
        self.epoch = 0  # another one in each forked child
        self.watchdog.on_unusable = _unregister_weakly(self)
        self.watchdog.on_cohort_ended = _cohort_ended_weakly(self)
        self.watchdog.on_kept = _kept_weakly(self)
        self.watchdog.on_dismissed = _closing(self.connections, store)
        _engines.add(self)
        _watchdogs.add(self.watchdog)
        _stores.add(store)
        _droppable.add(ref(self, _dismissing(self.watchdog)))

    # ------------------------------------------------------------ fences

    def floor(self) -> int:
        """The highest fence that this coordinator has seen anywhere; every claim carries it (trap 14)."""
        return self._floor

    def raise_floor(self, fence: int) -> None:
        """A guard has seen this fence. One that no clock can have minted is ignored: all claims would be refused."""
        if fence <= MAX_FENCE and fence <= self.clock.instant().wall_us + MAX_FLOOR_AHEAD_US:
            with self.watchdog.transitions:
                self._floor = max(self._floor, fence)
                self.refused_for = max(self.refused_for, fence)

    def passed(self, fence: int) -> None:
        """A lease was passed on with this fence. The caller has the lock ``transitions``."""
        self._floor = max(self._floor, fence)

    def holder_address(self) -> str:
        """Where the store can push what happened to the leases of this process; empty where it cannot."""
        pushes = self.watchdog.holder_pushes
        return "" if pushes is None else pushes.address

    # ------------------------------------------------------------ what the store can do

    def require(self, capability: str, what: str) -> None:
        """Unsupported unless the store has this capability: nothing is silently weakened."""
        if not getattr(self.store.capabilities, capability):
            raise Unsupported(f"a store on {self.store.name} cannot do {what}: {WHY_NOT[capability]}")

    def check_ttl(self, ttl_ms: int) -> int:
        """The same ttl; InvalidRequest if it is longer than the store allows."""
        longest_ms = self.store.capabilities.longest_ttl_ms
        if ttl_ms > longest_ms:
            raise InvalidRequest(
                f"the ttl is longer than a store on {self.store.name} allows, which is {longest_ms / 1000:g} s here "
                "(max_ttl)"
            )
        return ttl_ms

    # ------------------------------------------------------------ leases

    def register(self, held: HeldLease, anchor: object, epoch: int) -> None:
        """This thread or task holds this lease, which was claimed in that epoch. In one step with the check that the
        coordinator is open: a lease that close() does not see would never be given back. Only then is the epoch
        checked: after a fork before this step the child finds another one here, after a later fork it finds the lease
        lost."""
        watchdog = self.watchdog
        with watchdog.transitions:
            if self.closed:
                raise StoreUnavailable(CLOSED)
            self._floor = max(self._floor, held.fence)
            if self.durability or held.options.durability:
                held.keep_durable(held.options.durability or self.durability)
            self.registry.add(held, anchor)
            watchdog.add(held)
        if self.epoch != epoch:
            held.forked(watchdog.transitions)  # a thread that does not exist here may hold the lock that it has
            raise StoreUnavailable(FORKED)
        if not shutdown.armed:
            shutdown.arm(_at_exit)

    def find_held(self, resource: str, anchor: object) -> HeldLease | None:
        """The lease of this thread or task on this resource."""
        return self.registry.find(resource, anchor)

    def own(self, name: Name) -> list[OwnLease]:
        """What the calling thread or task, which has to wait for this resource, holds of it now."""
        anchor, now = self.caller(), self.clock.now()
        found, held = [], self.find_held(name.text, anchor)
        while held is not None:
            if held.settle(now) in ALIVE:
                found.append(held.as_own_lease(anchor))
            held = held.outer
        return found

    def forget(self, held: HeldLease) -> None:
        """It is over, and every listener knows."""
        watchdog = self.watchdog
        with watchdog.transitions:
            watchdog.remove(held)
            self.registry.remove(held)
        held.drop_references()
        if held.cohort is not None:
            self.cohort_ended(held)

    def unlist(self, held: HeldLease) -> None:
        """Neither the watchdog nor the thread or task has it any more. The caller has the lock ``transitions``."""
        self.watchdog.remove(held)
        self.registry.remove(held)

    def cohort_ended(self, held: HeldLease) -> None:
        """The lease of a cohort is over: the next one of it claims."""
        from leasehold._runtime import cohorts  # loaded once somebody waits

        cohorts.ended(self, held)

    def local_waiters(self) -> list[tuple[Any, bool]]:
        """The threads and tasks that wait behind others of this process, and whether each has been woken: for tests
        that turn the clock."""
        with self.watchdog.transitions:
            cohorts = list(self.cohorts.values())
            found: list[tuple[Any, bool]] = [(held.anchor(), True) for held in self.watchdog.passing]
            for cohort in cohorts:
                found += [(getattr(member, "anchor", None), False) for member in cohort.waiting]
                found.append((getattr(cohort.leader, "anchor", None), True))
        return found

    def unregister(self, held: HeldLease) -> None:
        with self.watchdog.transitions:
            self.registry.remove(held)

    # ------------------------------------------------------------ beginning and end

    def withdraw(self, attempt: Attempt) -> None:
        """Withdraw the claims of an attempt that was interrupted at an unknown point."""
        if attempt in self.pending:
            for withdrawal in attempt.withdrawals():
                self.watchdog.run_later(Defer(withdrawal, BUDGET_MS / 1000))

    def ensure_open(self) -> None:
        if self.closed:
            shutdown.wait_for_exit()
            raise StoreUnavailable(CLOSED)

    def shut(self) -> None:
        """Grant nothing from here on: acquires that are under way are withdrawn."""
        with self.watchdog.transitions:
            if self.closed:
                return
            self.closed = True
        self.connections.close()
        for attempt in list(self.pending):
            for withdrawal in attempt.withdrawals():
                self.watchdog.postpone(Defer(withdrawal, 0))
        for cohort in list(self.cohorts.values()):
            for member in list(cohort.waiting):
                member.wake()

    def close(self) -> None:
        """Give back what is held, stop the watchdog, close the store. Safe to call twice. Shut first: a lease that is
        given back must not be granted to a waiter of this coordinator."""
        if self._ended:
            return
        self.shut()
        with self.watchdog.transitions:
            for cohort in list(self.watchdog.lingering):
                self.watchdog.give_back_kept(cohort)
        # A thread that releases one just now finds its connection closed and leaves the rest to us.
        self.watchdog.give_back({*self.watchdog.leases(), *self.registry.releasing()}, "closed")
        self.watchdog.stop()
        self.watchdog.give_up()
        self.registry.clear()
        self.store.close()
        self._ended = True  # last: a close() that was interrupted can be repeated

    def forked(self) -> None:
        """In a forked child: start anew with nothing (trap 32)."""
        self.epoch += 1
        self.cohorts.clear()
        self.registry.clear()
        self.pending.clear()
        self.watchdog.forked()
        self.connections.forked()


def engines_on(clock: Clock) -> list[Engine]:
    """The engines of this process whose store uses this clock: for tests that turn it."""
    return [engine for engine in list(_engines) if engine.store.clock is clock]


def raise_floors(fence: int, seen: int) -> None:
    """A guard has refused this bare fence for the other one: the coordinator whose lease has it learns that."""
    for engine in list(_engines):
        if engine.registry.has(fence):
            engine.raise_floor(seen)


def _unregister_weakly(engine: Engine) -> Callable[[HeldLease], None]:
    """The watchdog's thread must not keep alive a coordinator that the program has dropped."""
    reference = ref(engine)

    def unregister(held: HeldLease) -> None:
        alive = reference()
        if alive is not None:
            alive.unregister(held)

    return unregister


def _cohort_ended_weakly(engine: Engine) -> Callable[[HeldLease], None]:
    """The same for a lease that others of this process wait for."""
    reference = ref(engine)

    def ended(held: HeldLease) -> None:
        alive = reference()
        if alive is not None:
            alive.cohort_ended(held)

    return ended


def _kept_weakly(engine: Engine) -> Callable[[LocalCohort, bool], None]:
    """The same for a cohort that keeps a lease, whose moment is over or which somebody else wants."""
    reference = ref(engine)

    def kept(cohort: LocalCohort, wanted: bool) -> None:
        alive = reference()
        if alive is not None:
            from leasehold._runtime import cohorts

            (cohorts.wanted_elsewhere if wanted else cohorts.moment_over)(alive, cohort)

    return kept


def _dismissing(watchdog: Watchdog) -> Callable[[ref[Engine]], None]:
    """To be called when the program has dropped the coordinator. At the end of the process its work is done already."""

    def dismiss(reference: ref[Engine]) -> None:
        _droppable.discard(reference)
        if not shutdown.begun:
            watchdog.dismiss()

    return dismiss


def _announcement(store: Store, namespace: str) -> Callable[[], None]:
    """To be called before each connection: the first call is logged."""
    said: list[None] = []

    def announce() -> None:
        if not said:
            said.append(None)
            log.connecting(store, namespace)

    return announce


def _closing(connections: ConnectionPool, store: Store) -> Callable[[], None]:
    """What the watchdog's thread does last for a coordinator that the program has dropped."""

    def close() -> None:
        connections.close()
        store.close()

    return close


_paused: dict[int, list[Store]] = {}  # by the thread that forks: exactly these stores go on afterwards


def _before_fork() -> None:
    _paused[threading.get_ident()] = stores = list(_stores)
    for store in stores:
        store.before_fork()


def _after_fork_in_parent() -> None:
    for store in _paused.pop(threading.get_ident(), []):
        store.after_fork()


def _after_fork_in_child() -> None:
    _paused.clear()
    _watchdogs.clear()  # the unfinished work of a dropped coordinator is the parent's
    for store in list(_stores):
        store.forked()
    for engine in list(_engines):
        engine.forked()
        _watchdogs.add(engine.watchdog)


def _at_exit() -> None:
    """The interpreter ends: what is held is given back now, not at the end of its ttl. All are shut before any gives
    back, else a waiter of another one would be granted it."""
    shutdown.begin()
    engines = list(_engines)
    steps: list[Callable[[], None]] = [engine.shut for engine in engines]
    steps += [engine.close for engine in engines]
    steps += [watchdog.finish for watchdog in list(_watchdogs)]
    for step in steps:
        try:
            step()
        except Exception as error:  # the others must be closed, too
            log.warn("a coordinator could not be closed at exit: %r", error, error=error)


def chain(error: BaseException, loss: BaseException) -> None:
    """Attach a loss to the error that the body raised, which stays the one that is seen (trap 29)."""
    last: Any = error
    while last.__context__ is not None and last.__context__ is not loss:
        last = last.__context__
    if last is not loss:
        last.__context__ = loss
    error.add_note(f"besides, {loss}")


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
