"""A holding and the people around it: who can still use the lease, and who must hear of its loss."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable

from leasehold._core import ops
from leasehold._core.claims import OwnLease
from leasehold._core.holding import LOST, RELEASED, RELEASING, Changeable, LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.names import Name
from leasehold._core.tickets import NONCE_BYTES, Transfer
from leasehold.errors import InvalidRequest
from leasehold.observe import log

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from leasehold._runtime.options import Options
    from leasehold._runtime.wakeups import DroppedLeases

Listener = Callable[[], None]


class LeaseReference(weakref.ref[Any]):
    """The Lease object of a holding, for as long as somebody refers to it."""

    __slots__ = ("dropped_leases", "held")

    held: HeldLease
    dropped_leases: DroppedLeases


def _gone(shell: LeaseReference) -> None:
    """May run at any bytecode of any thread, inside any lock: it only puts into the inbox."""
    shell.dropped_leases.put(shell.held)


class LockReference(weakref.ref[Any]):
    """A lock object that a holding was acquired through. Most are dropped at once, and this goes with them. One that
    entered it again stands before those that did so earlier: each of them can release it."""

    __slots__ = ("earlier", "held")

    earlier: LockReference | None
    held: HeldLease


def _dropped(keeper: LockReference) -> None:
    """Wherever this runs: it only makes itself forgotten."""
    if keeper.held.keeper is keeper:
        keeper.held.keeper = _there(keeper.earlier)


def _there(keeper: LockReference | None) -> LockReference | None:
    """This one, or the first before it that is still there."""
    while keeper is not None and keeper() is None:
        keeper = keeper.earlier
    return keeper


class HeldLease(Changeable):
    """One lease of this process.

    Somebody can use it while its ``Lease`` object is referenced, or while the lock object that it was acquired
    through is, in the thread or task that acquired it. When neither is so, nobody can: it is not renewed."""

    __slots__ = (
        "_listeners",
        "_revocation",
        "acquired_at",
        "anchor",
        "bodies",
        "depth",
        "doubted_deadline",
        "entered",
        "exported",
        "guarded",
        "interrupt",
        "keeper",
        "nonce",
        "number",
        "options",
        "outer",
        "shell",
        "since",
        "end_reported",
        "warned",
    )

    entered: int  # the id of the thread or task inside a with of the Lease itself; not set while there is none
    left_behind: bool = False  # whoever used it has gone on, and left it behind; see ``Reign``

    def __init__(
        self, name: Name, taken: LocalGrant, lock: AbstractContextManager[Any], options: Options, anchor: object
    ) -> None:
        Changeable.__init__(self, name, taken, lock, options.renews, options.max_hold, options.max_idle)
        self.options = options
        self.acquired_at = time.time()
        self.since = taken.at  # the same, on the local clock
        self.number = 0  # of its acquire, where somebody observes
        self.end_reported = False  # observers have heard of its end
        self.doubted_deadline = 0.0  # the deadline when they last heard of a failed renewal: a confirmation moves it
        self.nonce = ""  # of its ticket, once somebody wants to give it away
        self.exported = False  # its fence was read, or sent along
        self.guarded = False  # it was shown to a guard
        self.warned = False  # it was neither, and that was told
        self.anchor = weakref.ref(anchor)  # the thread or task that acquired it
        self.depth = 1
        self.bodies = 0  # with statements of its lock that it is inside of
        self.outer: HeldLease | None = None  # held by the same thread or task before, and lost
        self.lease_reference: LeaseReference | None = None
        self.keeper: LockReference | None = None
        self.interrupt: Any = None  # the listener of the asyncio body that runs now
        self._listeners: tuple[Listener, ...] | None = ()  # None: they were told
        self._revocation: tuple[Listener, ...] | None = ()  # the same of those who give back when asked to

    # ------------------------------------------------------------ who can use it

    def track_lease(self, lease: object, abandoned: DroppedLeases) -> None:
        """Notice when the Lease object goes away."""
        self.lease_reference = shell = LeaseReference(lease, _gone)
        shell.held = self
        shell.dropped_leases = abandoned

    def track_lock(self, lock_reference: object) -> None:
        """Acquired through this lock object, which can release it."""
        kept = LockReference(lock_reference, _dropped)
        kept.held = self
        kept.earlier = before = _there(self.keeper)
        if before is not None:
            if before() is lock_reference:
                return
            before.earlier = _there(before.earlier)  # nothing piles up
        self.keeper = kept

    def enter_again(self, ttl_ms: int, now: float) -> bool:
        """One level deeper: same fence, never shortened (traps 6, 13). False when it has been given back; LeaseLost
        when it is lost. One step: nobody can give it back in between."""
        with self.lock:
            if self.depth == 0 or self.phase in (RELEASING, RELEASED):
                return False
            self._require(now)
            self.depth += 1
            self.raise_ttl(ttl_ms)
            return True

    def require_single(self) -> None:
        """What was entered again cannot be handed over or lowered: whoever entered it first believes in it."""
        with self.lock:
            if self.depth > 1:
                raise InvalidRequest(
                    f"the lease on {self.name.kind} was entered {self.depth} times: leave the inner ones first"
                )

    def downgrading(self, now: float) -> ops.Renew:
        """Unless it was entered again: whoever entered it first believes that it may write."""
        with self.lock:
            self._require(now)
            self.require_single()
            return Changeable.begin_downgrade(self, now)

    def giving(self) -> Transfer:
        """A lease has one ticket, however often it is tried and by however many threads: whatever arrives last in the
        store, the ticket that somebody was given is good."""
        with self.lock:
            self.require_single()
            self.nonce = self.nonce or os.urandom(NONCE_BYTES).hex()
            return Transfer(self.nonce)

    def handed_over(
        self, giving: Transfer, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float
    ) -> None:
        """Unless it was entered again meanwhile, by its own thread while another gives it away."""
        with self.lock:
            self.require_single()
            Changeable.end_transfer(self, giving, renew, sent, reply, now)

    def step_out(self) -> bool:
        """One level up; False when it was the last, and the lease is to be given back."""
        with self.lock:
            deeper = self.depth > 1
            self.depth = self.depth - 1 if deeper else 0
            return deeper

    def usable(self) -> bool:
        """Can anybody still use this lease? One that was entered is used by its body, and ends with its thread. The
        body keeps the Lease object: when that is gone, an interrupt hit the very beginning of ``__exit__``."""
        if self.lease_reference is None:  # it is just being handed out: the watchdog may see it before its Lease is made
            return not self.caller_ended()
        if self.bodies:
            return not self.caller_ended() and self.lease() is not None
        if self.lease() is not None:
            return True
        return _there(self.keeper) is not None and not self.caller_ended()

    def as_own_lease(self, anchor: object) -> OwnLease:
        """As the thread or task that acquired it sees it, when it has to wait for the same resource."""
        options = self.options
        ends = not options.renews or options.max_hold is not None or options.max_idle is not None
        return OwnLease(self.rule, self.slots, not ends and self.in_body(anchor))

    def in_body(self, anchor: object) -> bool:
        """Is that one, who acquired it, in a body of it?"""
        return self.bodies > 0 or getattr(self, "entered", 0) == id(anchor)

    def lease(self) -> Any:
        """The Lease object, if somebody refers to it."""
        shell = self.lease_reference
        return None if shell is None else shell()

    def caller_ended(self) -> bool:
        """Has the thread or task that acquired it ended (trap 3)?"""
        anchor: Any = self.anchor()
        if anchor is None:
            return True
        done = getattr(anchor, "done", None)
        return bool(done()) if done is not None else not anchor.is_alive()

    def unguarded(self) -> bool:
        """Was correctness to be protected, and has nobody who could refuse it ever seen the fence? Told once."""
        return self.options.protects == "correctness" and not (self.exported or self.guarded or self.warned)

    def drop_references(self) -> None:
        """It is over: forget the people."""
        self.lease_reference = self.keeper = None
        self.outer = None

    # ------------------------------------------------------------ who must hear of its loss

    def listen(self, listener: Listener) -> None:
        """Call this, quickly and from any thread, when the lease is lost; at once when it is already."""
        with self.lock:
            if self._listeners is not None:
                self._listeners += (listener,)
                return
        listener()

    def listen_for_revocation(self, listener: Listener) -> None:
        """Call this, quickly and from any thread, when somebody asks for the lease; at once when somebody has."""
        with self.lock:
            if self._revocation is not None:
                self._revocation += (listener,)
                return
        listener()

    def revocation_requested(self) -> bool:
        """Has somebody asked for it?"""
        return self._revocation is None

    def revoke(self) -> None:
        """Somebody asks for it back. It stays ours until it is given back."""
        with self.lock:
            listeners, self._revocation = self._revocation, None
        for listener in listeners or ():
            _call(listener, "a revocation")

    def notify_loss(self) -> bool:
        """Tell everybody, once. True for the caller who did. Listeners run outside the lock."""
        with self.lock:
            if self.phase != LOST or self._listeners is None:
                return False
            listeners, self._listeners = self._listeners, None
        if self.interrupt is not None:
            listeners = (self.interrupt, *listeners)
        for listener in listeners:
            _call(listener, "a loss")
        return True

    def forked(self, lock: AbstractContextManager[Any]) -> None:
        """In a forked child: lost. Callbacks are the parent's; events are set, for whoever waits in the child. Their
        locks may have been held at the fork by a thread that does not exist here."""
        self.lock = lock
        lost, asked = _events(self._listeners), _events(self._revocation)
        self._listeners, self._revocation = None, ()
        self.lose("forked")
        for event in (*lost, *asked):
            event._at_fork_reinit()  # type: ignore[attr-defined]  # as threading does with its own
        for event in lost:
            event.set()


def _events(listeners: tuple[Listener, ...] | None) -> list[threading.Event]:
    """Those among them that only set an event."""
    found = [getattr(listener, "__self__", None) for listener in listeners or ()]
    return [one for one in found if isinstance(one, threading.Event)]


def _call(listener: Listener, what: str) -> None:
    try:
        listener()
    except Exception as error:  # the others must hear of it too
        log.warn("%s could not be told: %r", what, error, error=error)
