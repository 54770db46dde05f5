"""One acquire of several locks, under way: what it has entered again, claimed and been granted, and what is left to
clean up when it comes to nothing. The same in both flavours."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from leasehold._core.claims import AcquireRequest
from leasehold._core.group import acquire_all
from leasehold._core.holding import ALIVE, LOST, RELEASED, Holding, LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Op
from leasehold._runtime import shutdown
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.registry import Attempt
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.base_lock import BaseLock

if TYPE_CHECKING:
    from leasehold._runtime.events import GroupAcquireEvents


class GroupAttempt:
    """For one thread or task. ``parts`` stand in the order in which they are claimed. It is the Party of the flow."""

    def __init__(self, engine: Engine, parts: Sequence[BaseLock], anchor: object, wait: float | None) -> None:
        self._engine = engine
        self._parts = parts
        self._anchor = anchor
        self._wait = wait
        self._entered: dict[BaseLock, BaseLease | None] = {}
        self._rest: list[BaseLock] = []
        self._asks: list[AcquireRequest] = []
        self._kept: list[HeldLease] = []  # whatever was granted, also what is given back by now
        self._flow: Any = None
        self.held: list[Any] = []  # in the end: of the rest
        self.attempt: Any = None  # once there is something to claim
        self.group_events: GroupAcquireEvents | None = None

    # ------------------------------------------------------------ beginning

    def enter_again(self, lease: Callable[[BaseLock, HeldLease], BaseLease]) -> bool:
        """What this thread or task holds already, and may enter again, costs nothing. True when something is left."""
        for part in self._parts:
            if part._looks_back():
                self._entered[part] = part._reenter(self._anchor, partial(lease, part))
        self._rest = [part for part in self._parts if self._entered.get(part) is None]
        return bool(self._rest)

    def flow(self, address: str, pushes: dict[str, Any] | None = None) -> Coroutine[Op, Any, list[Holding]]:
        """Claims of the rest: they are known from here on to whoever closes the coordinator."""
        engine = self._engine
        if engine.observers.listens():
            from leasehold._runtime.events import GroupAcquireEvents

            self.group_events = GroupAcquireEvents(engine, self._wait)
        self._asks = [part._ask(self._wait, address, self._acquire_events(part)) for part in self._rest]
        self.attempt = Attempt(self._asks[0], None, pushes)
        engine.pending.add(self.attempt)
        self._flow = acquire_all(self._asks, self, engine.floor, engine.clock.now(), engine)
        flow: Coroutine[Op, Any, list[Holding]] = self._flow
        return flow

    def _acquire_events(self, part: BaseLock) -> Any:
        return None if self.group_events is None else self.group_events.of(part._name, part._options.ttl_ms)

    # ------------------------------------------------------------ what the flow asks for

    def new_owner(self, place: int) -> str:
        self._acquire_events(self._rest[place])
        owner: str = self.attempt.new_owner(self._asks[place])
        return owner

    def keep(self, place: int, taken: LocalGrant) -> HeldLease:
        part = self._rest[place]
        held = part._keep(taken, self._anchor, self._acquire_events(part))
        held.warned = True  # nobody can show it to a guard before the rest is there
        self._kept.append(held)
        if self.group_events is not None:
            self.group_events.kept(part._name)
        return held

    # ------------------------------------------------------------ the end

    def leases(self, lease: Callable[[BaseLock, HeldLease], BaseLease]) -> dict[BaseLock, BaseLease]:
        """All are here: the lease of each part. What was entered again may be lost by now."""
        for entered in self._entered.values():
            if entered is not None:
                entered.check()
        found = {part: one for part, one in self._entered.items() if one is not None}
        for part, held in zip(self._rest, self.held, strict=True):
            held.warned = False
            found[part] = lease(part, held)
        for held in [one for one in self._kept if one not in self.held]:
            self._over(held)
        return found

    def clean_up(self, error: BaseException, expected: tuple[type[BaseException], ...]) -> None:
        """It ended with an exception. A flow that ended with one that it expected has left nothing behind; one that was
        interrupted may have."""
        for one in self._entered.values():
            if one is not None and not one._held.step_out():
                self._give_back(one._held)
        cut_off = self._flow is not None and (self._flow.cr_frame is not None or not isinstance(error, expected))
        for held in {*self._kept, *(self._granted() if cut_off else ())}:
            self._end(held)
        if cut_off:
            self._engine.withdraw(self.attempt)
            self._flow.close()
        if self.group_events is not None:
            self.group_events.failed(error)
        if self._engine.closed:
            shutdown.wait_for_exit()

    def finish(self) -> None:
        """Nothing more is claimed."""
        if self.attempt is not None:
            self._engine.pending.discard(self.attempt)
            self.attempt.forget_pushes()

    def _granted(self) -> list[HeldLease]:
        """What it was granted, known to its thread or task or to the watchdog: an interrupt may have hidden it from
        us."""
        engine = self._engine
        mine = [engine.find_held(part._name.text, self._anchor) for part in self._rest]
        known = [*engine.watchdog.leases(), *(held for held in mine if held is not None)]
        return [held for held in known if self.attempt.has_owner(held.owner)]

    def _end(self, held: HeldLease) -> None:
        """What was granted is given back, by the flow or else now."""
        if held.phase in ALIVE:
            self._give_back(held)
        else:
            self._over(held)

    def _give_back(self, held: HeldLease) -> None:
        part = next(part for part in self._parts if part._name.text == held.name.text)
        part._give_back(held, self._engine.watchdog.release_reporter(held))

    def _over(self, held: HeldLease) -> None:
        """The flow gave it back, and knows what came of it; or does so in the background."""
        if held.phase == LOST:
            self._engine.watchdog.report_loss(held)
        elif held.number and not held.end_reported:
            self._engine.watchdog.lease_events().released(held, True if held.phase == RELEASED else None)
        self._engine.forget(held)
