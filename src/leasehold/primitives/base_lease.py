"""The part of a lease that never waits, the same in both flavours.

``state``, ``check()`` and ``remaining()`` are computed from the clock on each call: a process that was frozen past its
deadline sees that at the next call, before any message arrives.
"""

from __future__ import annotations

import time

from leasehold._core.holding import ALIVE, LOST, RELEASED, RELEASING
from leasehold._core.light_typing import TYPE_CHECKING, Any, Iterable
from leasehold._core.ops import Defer, NotYours
from leasehold._core.types import public_owner
from leasehold._runtime import shutdown
from leasehold._runtime.engine import Engine, chain
from leasehold._runtime.held_lease import HeldLease
from leasehold.errors import LeaseholdError, LeaseLost, OutcomeUnknown, StoreUnavailable

if TYPE_CHECKING:
    from datetime import datetime

    from leasehold._core.tickets import Transfer
    from leasehold.observe.events import Observer


class BaseLease:
    """A lease of either flavour. Nothing here contacts the store."""

    __slots__ = ("__weakref__", "_engine", "_held")

    def __init__(self, engine: Engine, held: HeldLease) -> None:
        self._engine = engine
        self._held = held
        held.track_lease(self, engine.watchdog.dropped)

    @property
    def resource(self) -> str:
        """The text form of the resource's name, as in keys, guards and ``inspect``."""
        return self._held.name.text

    @property
    def owner(self) -> str:
        """The owner token, unique for this acquisition. It is a secret: a process that has it can release the lease."""
        return self._held.owner

    @property
    def fence(self) -> int:
        """The fencing token: grows with every grant of this resource."""
        held = self._held
        held.exported = True
        return held.fence

    @property
    def ttl(self) -> float:
        """The length of the lease in seconds, as last confirmed by the store."""
        return self._held.ttl_ms / 1000

    @property
    def meta(self) -> dict[str, Any]:
        """The ``meta`` that the lock was made with."""
        return dict(self._held.options.meta or {})

    @property
    def acquired_at(self) -> datetime:
        """When the lease was granted, by the wall clock, for display."""
        from datetime import UTC, datetime

        held = self._held
        if not held.acquired_at:
            held.acquired_at = time.time() - (self._engine.clock.now() - held.at)
        return datetime.fromtimestamp(held.acquired_at, UTC)

    @property
    def deadline(self) -> float:
        """When the lease ends, on a local clock that goes on while the machine is suspended; never later than the store
        confirmed."""
        return self._held.deadline

    @property
    def state(self) -> str:
        """``held``, ``unsure`` (the last renewal went unanswered), ``lost`` or ``released``."""
        phase = self._settle()
        return "released" if phase == RELEASING else phase

    def remaining(self) -> float:
        """Seconds until work must stop, unless a renewal succeeds before."""
        alive = self._settle() in ALIVE
        return max(self._held.stop_at - self._engine.clock.now(), 0.0) if alive else 0.0

    def check(self) -> None:
        """Raise LeaseLost (or NotHeld after release) unless the lease is still ours. Costs no round trip.

        A check is not a fence: the process may be paused right after it. Guard the write itself."""
        if self._settle() not in ALIVE:
            shutdown.wait_for_exit()
            self._held.require(self._engine.clock.now())

    def beat(self) -> None:
        """Report that the work is alive: with ``max_idle`` a lease ends when its work is silent for longer."""
        self.check()
        self._held.beat(self._engine.clock.now())
        self._engine.watchdog.check_again(self._held)

    @property
    def guarded(self) -> bool:
        """Has a guard seen this lease?"""
        return self._held.guarded

    @property
    def exported(self) -> bool:
        """Was its fence read, or sent with ``headers()``? Then another system may refuse a stale one."""
        return self._held.exported

    def headers(self) -> dict[str, str]:
        """Fence, resource and owner (not its secret) as HTTP headers, for a service that refuses a stale one."""
        return self._headers(self.resource)

    def _headers(self, resource: str) -> dict[str, str]:
        from leasehold._core import headers

        return headers.encode(self.fence, resource, self.owner, shared=self._held.shared)

    def log_context(self) -> dict[str, Any]:
        """Fields for a log record: no owner secret, and no full id unless ``connect(show_ids=True)`` shows them."""
        held = self._held
        return {
            "kind": held.name.kind,
            "id_hash": held.name.id_hash,
            "owner_prefix": public_owner(held.owner),
            "fence": held.fence,
            "ttl_ms": held.ttl_ms,
            **({"resource": held.name.text} if held.name.open else {}),
        }

    def _begin_transfer(self) -> Transfer:
        self._engine.require("handover", "transfer()")
        self._settle()
        return self._held.new_transfer()

    def _finish_transfer(self, transfer: Transfer) -> str:
        """The ticket, once the store has confirmed the transfer."""
        from leasehold._core.tickets import Ticket

        held = self._held
        self._finish_release(ours=True)
        return Ticket(held.name.text, held.in_store()[1], held.ttl_ms, transfer.nonce).text()

    def _transfer_failed(self, transfer: Transfer, error: BaseException) -> None:
        """transfer() returns no ticket. Usually the lease is still ours and goes on to be renewed. After an interrupt
        that came when the transfer was already confirmed it is released, because no other process has the ticket."""
        held, watchdog = self._held, self._engine.watchdog
        if isinstance(error, (StoreUnavailable, OutcomeUnknown)):
            watchdog.lease_events().not_renewed(held, error)
        watchdog.report_loss(held)
        watchdog.check_again(held)
        release = held.recall(transfer)
        if release is not None:
            self._engine.forget(held)
            watchdog.run_later(Defer(release, held.ttl_ms / 1000), watchdog.release_reporter(held))

    def _show_to_guard(self) -> int:
        """The fence, for a guard."""
        held = self._held
        held.guarded = True
        return held.fence

    def _fenced_off(self, seen: int | None, downstream: str, observers: Iterable[Observer] = ()) -> None:
        """A guard, with its own observers, refused this lease. Later claims ask for a fence above the one it has seen
        (trap 14)."""
        from leasehold.observe.events import FencedOff, subject

        held = self._held
        if seen is not None:
            self._engine.raise_floor(seen)
        lease = subject(held, self._engine.store.name, held.number)
        self._engine.observers.notify(FencedOff(lease, downstream, seen), observers)

    def _settle(self) -> str:
        held = self._held
        phase = held.phase
        if phase in ALIVE:
            phase = held.settle(self._engine.clock.now())
        if phase == LOST:
            self._engine.watchdog.report_loss(held)
        return phase

    def _report_renewal(self, stop_at: float) -> None:
        """An extension was confirmed; before it, work would have had to stop at ``stop_at``."""
        if self._engine.observers.active():
            self._engine.watchdog.lease_events().renewed(self._held, stop_at - self._engine.clock.now())

    def _report_failed_renewal(self, error: LeaseholdError, alive: bool) -> None:
        """An extension was not confirmed. When a lease that was alive is lost before its time, the store refused it."""
        held, engine = self._held, self._engine
        if not isinstance(error, LeaseLost):
            engine.watchdog.lease_events().not_renewed(held, error)
        elif alive and engine.clock.now() < held.stop_at and engine.observers.active():
            engine.watchdog.lease_events().not_renewed(held, NotYours(held.reason))

    def _finish_release(self, ours: bool) -> None:
        """A release was answered; ``ours`` says whether the lease was held until then."""
        held, watchdog = self._held, self._engine.watchdog
        if not ours:
            watchdog.report_loss(held)
        if held.lease_reference is not None:  # else it was passed on, and is forgotten already
            self._engine.forget(held)
        if held.phase == RELEASING:  # the coordinator was closed in between
            self._release_unconfirmed()
        elif held._rare is None and held.options.protects is None:
            return  # nobody observes it: the usual end
        elif ours or self._released_late():
            watchdog.report_release(held, ours)

    def _released_late(self) -> bool:
        """Was it released by a holder that should have stopped before?"""
        return self._held.phase == LOST and self._held.reason not in ("closed", "forked")

    def _release_unconfirmed(self) -> None:
        """The release goes on in the background, or was confirmed just before an interrupt. Nothing is reported when it
        had not begun."""
        phase = self._held.phase
        if phase not in ALIVE and not self._held.end_reported:
            self._engine.watchdog.lease_events().released(self._held, True if phase == RELEASED else None)

    def _after_body(self, error: BaseException | None, ours: bool = False) -> None:
        """Leaving a body whose lease was lost raises LeaseLost (trap 28), unless the body raised on its own."""
        if self._settle() != LOST:
            return
        shutdown.wait_for_exit()
        loss = self._held.loss()
        if error is None or ours:
            raise loss from loss.__cause__ or error
        chain(error, loss)

    def __reduce__(self) -> str:
        """Two processes with one lease would be two owners."""
        raise TypeError(
            "a lease stays in its process: to hand it over, send ticket = lease.transfer(), and call "
            "hold.adopt(ticket) there; for a guard, send lease.fence"
        )

    def __repr__(self) -> str:
        held = self._held
        shown = f"fence={held.fence} state={self.state} remaining={self.remaining():.3f}s"
        return f"<{type(self).__name__} {held.name.shown} owner={public_owner(held.owner)} {shown}>"
