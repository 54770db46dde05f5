"""A term: the lease of a leader. Its number is the fence, and it carries a value that everybody can see."""

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

# ---------------------------------------------------------------- held_term
#
# A holding of an election, and everybody who must hear that its term has ended, however it did.


RESIGNED, UNHEALTHY = "resigned", "unhealthy"  # why a term was given up; see LeaseLost.reason
UNFIT = (UNHEALTHY, "max_idle")  # whoever stepped down for this had better not lead again at once


class HeldTerm(HeldLease):
    """One term of this process. Its end is told once: before its release is sent, and with its loss."""

    __slots__ = ("_end_callbacks", "carried", "left_behind", "loop", "looping", "value")

    def __init__(self, *known: Any) -> None:
        HeldLease.__init__(self, *known)
        self._end_callbacks: tuple[Callable[[], object], ...] | None = ()  # None: it has ended
        self.carried: dict[str, Any] = {}  # what observers want to travel with it
        self.value: Any = (self.options.meta or {}).get("value")  # the value, as the store last confirmed it
        self.loop: Any = None  # the event loop that leads, if one does
        self.looping = False  # it is a term of a loop, which goes on to campaign when this one is lost
        self.left_behind = False  # that loop was left: nobody uses it any more, whoever still refers to it

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call this, quickly and from any thread, when the term has ended; at once when it has."""
        with self.lock:
            if self._end_callbacks is not None:
                self._end_callbacks += (callback,)
                return
        callback()

    def end(self) -> None:
        """It is over: tell everybody, once. Whoever is interrupted here leaves the rest to the next who ends it."""
        while (callback := self._next_callback()) is not None:
            try:
                callback()
            except Exception as error:  # the others must hear of it too
                log.warn("the end of a term could not be told: %r", error, error=error)

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
        """Lost."""
        told = HeldLease.notify_loss(self)
        if self.phase == LOST:
            self.end()
        return told

    def begin_release(self, now: float) -> ops.Release | None:
        """Given back: whoever acted as the leader hears of it before anybody else can lead."""
        release = HeldLease.begin_release(self, now)
        self.end()
        return release

    def end_transfer(
        self, giving: Transfer, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float
    ) -> None:
        """Given away."""
        HeldLease.end_transfer(self, giving, renew, sent, reply, now)
        self.end()

    def forked(self, lock: AbstractContextManager[Any]) -> None:
        """In a forked child: the term is the parent's, and so are those who hear of its end."""
        self._end_callbacks = None
        HeldLease.forked(self, lock)

    # ------------------------------------------------------------ who can use it

    def usable(self) -> bool:
        """Nobody, once its loop was left."""
        return not self.left_behind and HeldLease.usable(self)

    def as_own_lease(self, anchor: object) -> OwnLease:
        """The same, and it leads."""
        return HeldLease.as_own_lease(self, anchor)._replace(leads=True)

    def in_body(self, anchor: object) -> bool:
        """A loop of terms is a body, too."""
        return HeldLease.in_body(self, anchor) or (self.looping and not self.left_behind)

    def caller_ended(self) -> bool:
        """Has whoever led come to an end?"""
        return self.left_behind or HeldLease.caller_ended(self)


# ---------------------------------------------------------------- term


class BaseTerm(BaseLease):
    """What both flavours share."""

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
        """What the leader has published, as the store last confirmed it. None: nothing."""
        return self._held.value

    @property
    def meta(self) -> dict[str, Any]:
        """What the holder says about itself; the value is in it."""
        return meta_with_value(self._held.options.meta, self._held.value)

    def _meta_text(self, value: Any) -> str:
        """What the grant is to say from now on, with what observers want to travel in it."""
        import json

        own = meta_with_value(self._held.options.meta, value)
        json_text(own, "value")
        return json.dumps({**self._held.carried, **own}, ensure_ascii=False, separators=(",", ":"))

    def _confirm_value(self, value: Any) -> None:
        import json

        self._held.value = json.loads(json.dumps(value))  # what others see; and nobody can change it behind our back

    def _publish_failed(self, error: BaseException) -> None:
        """Not confirmed, or not ours any more."""
        held, watchdog = self._held, self._engine.watchdog
        if isinstance(error, (StoreUnavailable, OutcomeUnknown)):
            watchdog.lease_events().not_renewed(held, error)

    def _released_late(self) -> bool:
        """Whoever stepped down gives the term back when the body has ended, and has until its deadline for that."""
        held = self._held
        stepped_down = held.reason in (RESIGNED, UNHEALTHY) and self._engine.clock.now() < held.deadline
        return BaseLease._released_late(self) and not stepped_down

    def _is_own_loss(self, error: BaseException | None) -> bool:
        """Is this error how the body of this very term heard that it was lost?"""
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
        self._publishing = threading.RLock()  # what is published last is what counts

    def publish(self, value: Any) -> None:
        """Let everybody see this, as ``election.leader().value`` and with ``observe()``. It is some JSON of at most
        4096 bytes; None takes it back. LeaseLost when this is no longer the leader."""
        text = self._meta_text(value)
        self.check()  # in a forked child nobody may be left who gives the latch back
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
    """The lease of a leader, for asyncio: the same, awaited. The task inside ``async with`` is cancelled on loss."""

    __slots__ = ("_publishing",)

    def __init__(self, engine: Engine, held: HeldTerm, driver: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        AsyncLease.__init__(self, engine, held, driver, loop)
        self._publishing = driver.latch()

    async def publish(self, value: Any) -> None:
        """Let everybody see this; see :meth:`leasehold.Term.publish`."""
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
    """What a leader says of itself, with this value."""
    own = {key: one for key, one in (meta or {}).items() if key != "value"}
    return own if value is None else {**own, "value": value}
