"""A term: the lease of a leader. Its number is the fence, and it carries a value that every process can read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from leasehold._core import flows, ops
from leasehold._core.claims import OwnLease
from leasehold._core.holding import LOST
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.tickets import Transfer
from leasehold._core.types import json_text
from leasehold._runtime import sync
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold.errors import LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold.observe import log
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.lease import AsyncLease, Lease

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractContextManager

    from leasehold._runtime.aio import AsyncDriver

# ---------------------------------------------------------------- held term


RESIGNED, UNHEALTHY = "resigned", "unhealthy"  # why a term was given up; see LeaseLost.reason
UNFIT = (UNHEALTHY, "max_idle")  # after these a candidate should not lead again at once


class HeldTerm(HeldLease):
    """One term of this process. Its end is reported once: before its release is sent, or with its loss."""

    __slots__ = ("_end_callbacks", "carried", "left_behind", "loop", "looping", "value")

    def __init__(self, *known: Any) -> None:
        HeldLease.__init__(self, *known)
        self._end_callbacks: tuple[Callable[[], object], ...] | None = ()  # None: the term has ended
        self.carried: dict[str, Any] = {}  # what observers add to its meta
        self.value: Any = (self.options.meta or {}).get("value")  # the value, as the store last confirmed it
        self.loop: Any = None  # the event loop that leads, if one does
        self.looping = False  # a term of a loop, which goes on to campaign when this one is lost
        self.left_behind = False  # that loop was left: the term is unused, even if the program still refers to it

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call this, quickly and from any thread, when the term has ended; at once when it has."""
        with self.lock:
            if self._end_callbacks is not None:
                self._end_callbacks += (callback,)
                return
        callback()

    def end(self) -> None:
        """The term is over: call each callback once. After an interrupt here, the next call goes on with the rest."""
        while (callback := self._next_callback()) is not None:
            try:
                callback()
            except Exception as error:  # the others must be called too
                log.warn("a callback for the end of a term raised %r", error, error=error)

    def _next_callback(self) -> Callable[[], object] | None:
        with self.lock:
            if not self._end_callbacks:
                self._end_callbacks = None
                return None
            callback, *rest = self._end_callbacks
            self._end_callbacks = tuple(rest)
            return callback

    # ------------------------------------------------------------ how it ends

    def notify_loss(self) -> bool:
        """The lease was lost: report it."""
        reported = HeldLease.notify_loss(self)
        if self.phase == LOST:
            self.end()
        return reported

    def begin_release(self, now: float) -> ops.Release | None:
        """The term is released: its end is reported before another candidate can lead."""
        release = HeldLease.begin_release(self, now)
        self.end()
        return release

    def end_transfer(
        self, transfer: Transfer, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float
    ) -> None:
        """The term was transferred."""
        HeldLease.end_transfer(self, transfer, renew, sent, reply, now)
        self.end()

    def forked(self, lock: AbstractContextManager[Any]) -> None:
        """In a forked child: the term and its callbacks belong to the parent."""
        self._end_callbacks = None
        HeldLease.forked(self, lock)

    # ------------------------------------------------------------ whether it is in use

    def usable(self) -> bool:
        """A term is not in use once its loop was left."""
        return not self.left_behind and HeldLease.usable(self)

    def as_own_lease(self, anchor: object) -> OwnLease:
        """What a waiter of the same thread or task must know of this term."""
        return HeldLease.as_own_lease(self, anchor)._replace(leads=True)

    def in_body(self, anchor: object) -> bool:
        """Is it in a body? A loop of terms is one, too."""
        return HeldLease.in_body(self, anchor) or (self.looping and not self.left_behind)

    def caller_ended(self) -> bool:
        """Has the thread, task or loop that leads ended?"""
        return self.left_behind or HeldLease.caller_ended(self)


# ---------------------------------------------------------------- term


class BaseTerm(BaseLease):
    """A term of either flavour."""

    __slots__ = ()

    _held: HeldTerm

    @property
    def term(self) -> int:
        """The number of the term, which is its fence: it grows with every election of this resource."""
        held = self._held
        held.exported = True
        return held.fence

    @property
    def value(self) -> Any:
        """The value that the leader has published, as the store last confirmed it. None: there is none."""
        return self._held.value

    @property
    def meta(self) -> dict[str, Any]:
        """The ``meta`` of the leader, with the value in it."""
        return meta_with_value(self._held.options.meta, self._held.value)

    def _meta_text(self, value: Any) -> str:
        """The meta that the grant is to carry from now on, with what observers add to it."""
        import json

        own = meta_with_value(self._held.options.meta, value)
        json_text(own, "value")
        return json.dumps({**self._held.carried, **own}, ensure_ascii=False, separators=(",", ":"))

    def _confirm_value(self, value: Any) -> None:
        import json

        self._held.value = json.loads(json.dumps(value))  # as others read it, and a copy that the caller cannot change

    def _publish_failed(self, error: BaseException) -> None:
        """A value was not confirmed, or the term is lost."""
        held, watchdog = self._held, self._engine.watchdog
        if isinstance(error, (StoreUnavailable, OutcomeUnknown)):
            watchdog.lease_events().not_renewed(held, error)

    def _released_late(self) -> bool:
        """A leader that stepped down releases the term when its body has ended, and has until the deadline for that."""
        held = self._held
        stepped_down = held.reason in (RESIGNED, UNHEALTHY) and self._engine.clock.now() < held.deadline
        return BaseLease._released_late(self) and not stepped_down

    def _is_own_loss(self, error: BaseException | None) -> bool:
        """Is this the LeaseLost of this very term, raised in its body?"""
        held = self._held
        return isinstance(error, LeaseLost) and (error.resource, error.fence) == (held.name.text, held.fence)


class Term(BaseTerm, Lease):
    """The lease of a leader, for threads. It is a :class:`leasehold.Lease`: ``lost``, ``check()``, ``remaining()``,
    ``extend()`` and all the rest are the same.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold:
    ...     with hold.election("scheduler", value={"host": "a"}).campaign() as term:
    ...         term.publish({"host": "a", "shards": 8})
    ...         hold.election("scheduler").leader().value
    {'host': 'a', 'shards': 8}
    """

    __slots__ = ("_publishing",)

    def __init__(self, engine: Engine, held: HeldTerm) -> None:
        Lease.__init__(self, engine, held)
        self._publishing = threading.RLock()  # so that the last value that is published is the one that stays

    def publish(self, value: Any) -> None:
        """Publish a value that every process can read, as ``election.leader().value`` and with ``observe()``. It is
        some JSON of at most 4096 bytes; None removes it. LeaseLost when this is no longer the leader."""
        text = self._meta_text(value)
        self.check()  # in a forked child no thread may be left that releases this lock
        with self._publishing:
            try:
                self.check()
                sync.run(self._engine, flows.change_meta(self._held, text, self._engine.clock.now()))
                self._confirm_value(value)
            except BaseException as error:
                self._publish_failed(error)
                raise
            finally:
                self._engine.watchdog.report_loss(self._held)
                self._engine.watchdog.check_again(self._held)

    def __enter__(self) -> Term:
        Lease.__enter__(self)
        return self

    def __exit__(  # type: ignore[override]  # in a loop of terms the loss of one is no error
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            Lease.__exit__(self, kind, error, trace)
        except LeaseLost:
            if not self._held.looping:
                raise
            return error is None
        return self._held.looping and self._is_own_loss(error)


class AsyncTerm(BaseTerm, AsyncLease):
    """The lease of a leader, for asyncio: as :class:`Term`, awaited. The task inside ``async with`` is cancelled when
    it is lost."""

    __slots__ = ("_publishing",)

    def __init__(self, engine: Engine, held: HeldTerm, driver: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        AsyncLease.__init__(self, engine, held, driver, loop)
        self._publishing = driver.latch()

    async def publish(self, value: Any) -> None:
        """Publish a value; see :meth:`leasehold.Term.publish`."""
        text = self._meta_text(value)
        async with self._publishing:
            try:
                self.check()
                await self._driver.drive(flows.change_meta(self._held, text, self._engine.clock.now()))
                self._confirm_value(value)
            except BaseException as error:
                self._publish_failed(error)
                raise
            finally:
                self._engine.watchdog.report_loss(self._held)
                self._engine.watchdog.check_again(self._held)

    async def __aenter__(self) -> AsyncTerm:
        await AsyncLease.__aenter__(self)
        return self

    async def __aexit__(  # type: ignore[override]  # in a loop of terms the loss of one is no error
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            await AsyncLease.__aexit__(self, kind, error, trace)
        except LeaseLost:
            if not self._held.looping:
                raise
            return True  # the cancellation, if there was one, was ours alone
        return self._held.looping and self._is_own_loss(error)


def meta_with_value(meta: dict[str, Any] | None, value: Any) -> dict[str, Any]:
    """The meta of a leader, with this value."""
    own = {key: one for key, one in (meta or {}).items() if key != "value"}
    return own if value is None else {**own, "value": value}
