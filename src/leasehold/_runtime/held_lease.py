"""A held lease: a holding, the objects that can still use it, and the listeners for its loss."""

from __future__ import annotations

import os
import threading

from leasehold._core.claims import OwnLease
from leasehold._core.holding import LOST, Holding, LocalGrant, Rare
from leasehold._core.light_typing import TYPE_CHECKING, Any, Callable, TypeVar
from leasehold._core.names import Name
from leasehold.observe import log

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from weakref import ref

    from leasehold._core.tickets import Transfer
    from leasehold._runtime.cohorts import LocalCohort
    from leasehold._runtime.options import Options
    from leasehold._runtime.wakeups import DroppedLeases
else:
    from _weakref import ref  # ``weakref`` itself has more in it, which takes time to load

T = TypeVar("T")
Listener = Callable[[], None]
UNFILED: set[Any] = set()  # stays empty


class LeaseReference(ref[Any]):
    """A weak reference to the Lease object of a holding."""

    __slots__ = ("dropped_leases", "held")

    held: HeldLease
    dropped_leases: DroppedLeases


def _lease_dropped(reference: LeaseReference) -> None:
    """May run at any bytecode of any thread, inside any lock: it only puts the holding into a queue."""
    reference.dropped_leases.put(reference.held)


class LockReference(ref[Any]):
    """A weak reference to a lock object through which a holding was acquired. Most locks are dropped at once, and this
    goes with them. A lock that entered the holding again stands before those that did so earlier: each can release."""

    __slots__ = ("earlier", "held")

    earlier: LockReference | None
    held: HeldLease


def _lock_dropped(reference: LockReference) -> None:
    """May run at any bytecode, too: it only removes itself."""
    if reference.held.lock_reference is reference:
        reference.held.lock_reference = _first_alive(reference.earlier)


def _first_alive(reference: LockReference | None) -> LockReference | None:
    """This one, or the first earlier one whose lock object still exists."""
    while reference is not None and reference() is None:
        reference = reference.earlier
    return reference


class RareUnlocked(Rare[T]):
    """The same for a field that is also set outside the lock, which a thread can enter again."""

    def __set__(self, held: Holding, value: T) -> None:
        with held.lock:
            Rare.__set__(self, held, value)


class HeldLease(Holding):
    """One lease of this process: a holding, with references to the objects that can use it and with listeners.

    The program can use it while its ``Lease`` object is referenced, or while the lock object that it was acquired
    through is, in the thread or task that acquired it. When neither is so, it is not renewed."""

    __slots__ = (
        "anchor",
        "bodies",
        "bucket",
        "cohort",
        "exported",
        "guarded",
        "interrupt",
        "lease_reference",
        "lock_reference",
        "options",
    )

    _loss_listeners = Rare[tuple[Listener, ...] | None](())  # None: they were called
    _revocation_listeners = Rare[tuple[Listener, ...] | None](())  # the same
    acquired_at = RareUnlocked(0.0)  # the same as ``at`` on the wall clock, once the program has asked for it
    lost_event = RareUnlocked[Any](None)  # once the program has used it
    revoked_event = RareUnlocked[Any](None)  # likewise
    doubted_deadline = RareUnlocked(0.0)  # the deadline at the last reported failure: a confirmation moves it
    end_reported = RareUnlocked(False)  # observers know of its end
    entered = RareUnlocked(0)  # the id of the thread or task inside a with of the Lease itself
    nonce = Rare("")  # of its ticket, once it is to be transferred
    number = RareUnlocked(0)  # of its acquire, where it is observed
    outer: Rare[HeldLease | None] = RareUnlocked(None)  # held by the same thread or task before, and lost
    warned = RareUnlocked(False)  # it was neither exported nor guarded, and that was reported
    left_behind: bool = False  # the loop that used it was left; see ``HeldTerm``

    def __init__(
        self,
        name: Name,
        grant: LocalGrant | HeldLease,
        lock: AbstractContextManager[Any],
        options: Options,
        anchor: object,
        at: float | None = None,
    ) -> None:
        Holding.__init__(self, name, grant, lock, options.renews, options.max_hold, options.max_idle, at)
        self.options = options
        self.exported = False  # its fence was read, or sent along
        self.guarded = False  # it was shown to a guard
        self.anchor = ref(anchor)  # the thread or task that acquired it
        self.bodies = 0  # with statements of its lock that it is inside of
        self.bucket = UNFILED  # of the watchdog's schedule
        self.cohort: LocalCohort | None = None  # those of this process to whom it may be passed on
        self.lease_reference: LeaseReference | None = None
        self.lock_reference: LockReference | None = None
        self.interrupt: Any = None  # the listener of the asyncio body that runs now

    # ------------------------------------------------------------ what can still use it

    def track_lease(self, lease: object, dropped_leases: DroppedLeases) -> None:
        """Notice when the Lease object goes away."""
        self.lease_reference = reference = LeaseReference(lease, _lease_dropped)
        reference.held = self
        reference.dropped_leases = dropped_leases

    def track_lock(self, lock: object) -> None:
        """It was acquired through this lock object, which can release it."""
        reference = LockReference(lock, _lock_dropped)
        reference.held = self
        reference.earlier = earlier = _first_alive(self.lock_reference)
        if earlier is not None:
            if earlier() is lock:
                return
            earlier.earlier = _first_alive(earlier.earlier)  # the chain must not grow
        self.lock_reference = reference

    def lease(self) -> Any:
        """The Lease object, while it is referenced."""
        reference = self.lease_reference
        return None if reference is None else reference()

    def usable(self) -> bool:
        """Can the program still use this lease? One that was entered is used by its body, and ends with its thread. The
        body keeps the Lease object: when that is gone, an interrupt hit the very beginning of ``__exit__``."""
        reference = self.lease_reference
        if reference is None:  # the watchdog may see it before its Lease is made
            return not self.caller_ended()
        if reference() is not None:
            return not self.bodies or not self.caller_ended()
        return not self.bodies and _first_alive(self.lock_reference) is not None and not self.caller_ended()

    def caller_ended(self) -> bool:
        """Has the thread or task that acquired it ended (trap 3)?"""
        anchor: Any = self.anchor()
        if anchor is None:
            return True
        done = getattr(anchor, "done", None)
        return bool(done()) if done is not None else not anchor.is_alive()

    def as_own_lease(self, anchor: object) -> OwnLease:
        """How it counts when the thread or task that acquired it has to wait for the same resource."""
        options = self.options
        ends = not options.renews or options.max_hold is not None or options.max_idle is not None
        return OwnLease(rule=self.rule, slots=self.slots, lasting=not ends and self.in_body(anchor))

    def in_body(self, anchor: object) -> bool:
        """Is this thread or task, which acquired it, in a body of it?"""
        return self.bodies > 0 or self.entered == id(anchor)

    def drop_references(self) -> None:
        """Drop references to the lease and lock objects."""
        self.lease_reference = self.lock_reference = None
        if self._rare is not None:
            self.outer = None

    def unguarded(self) -> bool:
        """Was correctness to be protected, and has no guard ever seen the fence? True until that was reported."""
        return self.options.protects == "correctness" and not (self.exported or self.guarded or self.warned)

    def new_transfer(self) -> Transfer:
        """A call of ``transfer`` begins. A lease has one ticket, however often and by however many threads a transfer
        is tried: whichever Renew arrives last in the store, the ticket that a caller got is good."""
        from leasehold._core.tickets import NONCE_BYTES, Transfer  # most leases stay in their process

        with self.lock:
            self._require_single()
            self.nonce = self.nonce or os.urandom(NONCE_BYTES).hex()
            return Transfer(self.nonce)

    # ------------------------------------------------------------ listeners

    def listen(self, listener: Listener) -> None:
        """Call this, quickly and from any thread, when the lease is lost; at once when it is already."""
        with self.lock:
            listeners = self._loss_listeners
            if listeners is not None:
                self._loss_listeners = (*listeners, listener)
                return
        listener()

    def notify_loss(self) -> bool:
        """Call the listeners of a lost lease, once and outside the lock. True for the caller that did."""
        with self.lock:
            listeners = self._loss_listeners
            if self.phase != LOST or listeners is None:
                return False
            self._loss_listeners = None
        if self.interrupt is not None:
            listeners = (self.interrupt, *listeners)
        for listener in listeners:
            _call(listener, "a loss")
        return True

    def listen_for_revocation(self, listener: Listener) -> None:
        """Call this, quickly and from any thread, when an operator asks for the lease; at once when one has."""
        with self.lock:
            listeners = self._revocation_listeners
            if listeners is not None:
                self._revocation_listeners = (*listeners, listener)
                return
        listener()

    def revocation_requested(self) -> bool:
        """Has an operator asked for it?"""
        return self._rare is not None and self._revocation_listeners is None

    def revoke(self) -> None:
        """An operator asks for it back. It stays ours until it is given back."""
        with self.lock:
            listeners, self._revocation_listeners = self._revocation_listeners, None
        for listener in listeners or ():
            _call(listener, "a revocation")

    def forked(self, lock: AbstractContextManager[Any]) -> None:
        """In a forked child the lease is lost. Callbacks are the parent's; events are set, for code that waits in the
        child. Their locks may have been held at the fork by a thread that does not exist here."""
        self.lock = lock
        lost, revoked = _events(self._loss_listeners), _events(self._revocation_listeners)
        self._loss_listeners, self._revocation_listeners = None, ()
        self.lose("forked")
        for event in (*lost, *revoked):
            event._at_fork_reinit()  # type: ignore[attr-defined]  # as threading does with its own
        for event in lost:
            event.set()


def _events(listeners: tuple[Listener, ...] | None) -> list[threading.Event]:
    """The events among them: listeners that only set an event."""
    found = [getattr(listener, "__self__", None) for listener in listeners or ()]
    return [one for one in found if isinstance(one, threading.Event)]


def _call(listener: Listener, what: str) -> None:
    try:
        listener()
    except Exception as error:  # the other listeners must be called, too
        log.warn("a listener for %s raised %r", what, error, error=error)
