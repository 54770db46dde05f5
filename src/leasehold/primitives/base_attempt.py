"""What ``hold.all`` and ``hold.acquire_many`` share in both flavours: one acquire of several locks that is under way,
from what it enters again to the clean-up after an exception."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from leasehold._core.claims import AcquireRequest
from leasehold._core.holding import ALIVE
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._runtime import shutdown
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.registry import Attempt
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.base_lock import BaseLock

if TYPE_CHECKING:
    from leasehold._core.ports import Connection


class BaseAttempt(ABC):
    """One acquire of several locks of one coordinator: what it has entered again, claimed and been granted. ``anchor``
    is a thread or a task, ``parts`` are in the order in which they are claimed. Its flow knows only the rest, those
    that must be claimed, and counts their places from 0."""

    def __init__(self, engine: Engine, parts: Sequence[BaseLock], anchor: object, wait: float | None) -> None:
        self._engine = engine
        self._parts = parts
        self._anchor = anchor
        self._wait = wait
        self._entered: dict[int, BaseLease | None] = {}  # by the place in ``parts``
        self._rest: list[int] = []  # the places in ``parts`` of what must be claimed
        self._requests: list[AcquireRequest] = []
        self._kept: list[HeldLease] = []  # all that was granted, also what has been released since
        self._borrowed: list[Connection] = []
        self._flow: Any = None
        self.attempt: Any = None  # as the engine knows it, once there is something to claim

    # ------------------------------------------------------------ beginning

    def enter_again(self) -> bool:
        """Enter what this thread or task already holds and may re-enter: that costs no round trip. True when something
        is left to claim."""
        for place, part in enumerate(self._parts):
            if not self._at_hand(place, part):
                self._rest.append(place)
        return bool(self._rest)

    def _at_hand(self, place: int, part: BaseLock) -> bool:
        """Is it had without a claim?"""
        return part._may_reenter() and self._enter(place, part)

    def _enter(self, place: int, part: BaseLock) -> bool:
        """False: it must be claimed."""
        self._entered[place] = lease = part._reenter(self._anchor)
        return lease is not None

    def borrow(self) -> Connection:
        """A connection of the calling thread, until ``finish``."""
        self._borrowed.append(self._engine.connections.borrow())
        return self._borrowed[0]

    def flow(self, address: str, pushes: dict[str, Any] | None = None) -> Any:
        """The flow that claims the rest. From here on ``close()`` of the coordinator withdraws it."""
        engine, parts, wait = self._engine, self._parts, self._wait
        if engine.observers.active():
            self._observe_acquire()
        self._requests = [parts[place]._request(wait, address, self._events_of(place)) for place in self._rest]
        self.attempt = Attempt(self._requests[0], engine.epoch, None, pushes)
        engine.pending.add(self.attempt)
        self._flow = self._new_flow(engine.clock.now())
        return self._flow

    @abstractmethod
    def _new_flow(self, now: float) -> Any:
        """The flow of the core for these requests, which calls ``new_owner`` and ``keep``."""

    # ------------------------------------------------------------ the end
    #
    # The same steps in the same order as at the end of Lock._acquire; see BaseLock.

    def clean_up(self, error: BaseException, expected: tuple[type[BaseException], ...]) -> None:
        """After an exception: leave nothing claimed. A flow that ended with an expected one has cleaned up what was not
        granted; one that was interrupted may not have."""
        for lease in self._entered.values():
            if lease is not None and not lease._held.step_out():
                self._release_in_background(lease._held)
        flow = self._flow
        interrupted = flow is not None and (flow.cr_frame is not None or not isinstance(error, expected))
        for held in {*self._kept, *(self._granted() if interrupted else ())}:
            if held.phase in ALIVE:
                self._release_in_background(held)
            else:
                self._report_end(held)
        if interrupted:
            self._engine.withdraw(self.attempt)
            flow.close()
        self._report_failure(error)
        if self._engine.closed:
            shutdown.wait_for_exit()

    def finish(self) -> None:
        """The last steps, as in BaseLock._finish. Safe to repeat after an interrupt."""
        if self.attempt is not None:
            self._engine.pending.discard(self.attempt)
            self.attempt.forget_pushes()
        while self._borrowed:
            self._engine.connections.give_back(self._borrowed.pop())

    def _granted(self) -> list[HeldLease]:
        """All that was granted, by the registry and the watchdog: an interrupt may have kept it out of ``_kept``."""
        engine, owners = self._engine, {owner for _, owner in self.attempt.claims}
        of_caller = [engine.find_held(self._parts[place]._name.text, self._anchor) for place in self._rest]
        known = [*engine.watchdog.leases(), *(held for held in of_caller if held is not None)]
        return [held for held in known if held.owner in owners]

    def _release_in_background(self, held: HeldLease) -> None:
        """Any part will do: all are of one coordinator."""
        self._parts[0]._release_in_background(held, self._engine.watchdog.release_reporter(held))

    # ------------------------------------------------------------ for observers

    @abstractmethod
    def _observe_acquire(self) -> None:
        """There are observers: the acquire of the rest begins."""

    @abstractmethod
    def _events_of(self, place: int) -> Any:
        """What reports the acquire of that part, by its place in ``parts``; None where nobody observes."""

    @abstractmethod
    def _report_end(self, held: HeldLease) -> None:
        """It was granted, and has ended before the acquire did."""

    @abstractmethod
    def _report_failure(self, error: BaseException) -> None:
        """The acquire has failed."""
