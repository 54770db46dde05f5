"""What every lock-like primitive shares in both flavours: what to ask for, which bodies are open, what the calling
thread or task holds, and what is left to clean up when an exception ends an acquire or a body."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from leasehold._core import flows
from leasehold._core.durations import wait_seconds
from leasehold._core.flows import AcquireRequest
from leasehold._core.holding import ALIVE, LOST, LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from leasehold._core.names import Name
from leasehold._core.ops import Defer, Op
from leasehold._core.rules import EXCLUSIVE, MUTEX, READ, RULES, SEMAPHORE
from leasehold._runtime import shutdown
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.options import Options
from leasehold._runtime.registry import Attempt
from leasehold.errors import NotHeld
from leasehold.primitives.base_lease import BaseLease

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._core.tickets import Ticket
    from leasehold._runtime.background import OnReply
    from leasehold._runtime.events import AcquireEvents


class Unset:
    """The default of a parameter whose None means something."""

    def __repr__(self) -> str:
        return "<the coordinator's>"


UNSET = Unset()
RULE_NAMES = tuple(RULES)


B = TypeVar("B", bound=BaseLease)
Body: TypeAlias = "tuple[BaseLease, Body | None]"  # its lease, and the body around it


class BaseLock:
    """What both flavours share: what to ask for, and what the calling thread or task holds."""

    __slots__ = ("__weakref__", "_bodies", "_engine", "_name", "_options")

    _rule = MUTEX
    _kinds: tuple[str, ...] = EXCLUSIVE  # what of its resource can be given back through it
    _permits = 1
    _limit = 1

    def __init__(self, engine: Engine, name: Name, options: Options) -> None:
        self._bodies: dict[object, Body] = {}  # the innermost body of each thread or task
        self._engine = engine
        self._name = name
        self._options = options

    @property
    def resource(self) -> str:
        """The text form of the resource's name."""
        return self._name.text

    def _ask(self, wait: float | None, address: str, acquire_events: AcquireEvents | None) -> AcquireRequest:
        options = self._options
        holder_address, meta = self._engine.holder_address(), options.meta_text
        if acquire_events is not None:
            meta = acquire_events.carried_meta(options.meta) or meta
        return AcquireRequest(
            self._name,
            options.ttl_ms,
            wait,
            options.renews,
            options.at_least_ms,
            self._rule,
            self._permits,
            self._limit,
            address,
            holder_address,
            meta,
            options.delay_ms,
        )

    def _flow(self, ask: AcquireRequest, attempt: Attempt, ticket: Ticket | None) -> Coroutine[Op, Any, LocalGrant]:
        """How to get there: from the queue, or with somebody's ticket."""
        engine = self._engine
        if ticket is None:
            return flows.acquire(ask, attempt.new_owner, engine.floor, engine.clock.now(), None, engine)
        return flows.adopt(ask, ticket, attempt.new_owner(), engine.floor, engine.clock.now())

    def _looks_back(self) -> bool:
        """May it enter what this thread or task holds already?"""
        return self._options.reentrant

    def _wait(self, wait: Duration | Unset | None) -> float | None:
        return self._options.wait if isinstance(wait, Unset) else wait_seconds(wait)

    def _acquire_events(self, wait: float | None) -> AcquireEvents | None:
        """For those who listen, if anybody does."""
        if not self._engine.observers.listens():
            return None
        from leasehold._runtime.events import AcquireEvents

        return AcquireEvents(self._engine, self._name, self._options.ttl_ms, wait)

    def _keep(self, taken: LocalGrant, anchor: object, acquire_events: AcquireEvents | None) -> HeldLease:
        """The grant is ours: have it looked after."""
        engine = self._engine
        held = HeldLease(self._name, taken, engine.watchdog.transitions, self._options, anchor)
        if acquire_events is not None:
            acquire_events.granted(held)  # first: its loss, however soon, must come after it
        engine.register(held, anchor)
        return held

    def _reenter(self, anchor: object, lease: Callable[[HeldLease], B]) -> B | None:
        """What this thread or task holds already. What it lost is an error, what it has given back is past, and what is
        of another kind is in the way: then it claims, as anybody does."""
        held = self._engine.find_held(self._name.text, anchor)
        if held is None or held.rule == SEMAPHORE:
            return None
        depth, now = held.depth, self._engine.clock.now()
        try:
            if not self._enters(held):
                if held.settle(now) == LOST:
                    raise held.loss()
                return None
            if not held.enter_again(self._options.ttl_ms, now):
                return None
            if self._enters(held):
                return lease(held)
            held.step_out()  # another thread was just quicker to downgrade it
            return None
        except BaseException:
            held.depth = min(held.depth, depth)  # nobody will step out of where an interrupt came in between
            raise

    def _enters(self, held: HeldLease) -> bool:
        """Is it of a kind that can be entered again through this lock? Who reads cannot write."""
        return not held.shared or self._rule == READ

    def _clean_up(
        self, flow: Any, attempt: Attempt, taken: LocalGrant | None, anchor: object, error: BaseException
    ) -> None:
        """An acquire ended by an exception. A flow that ended with it has left nothing behind; one whose driver was
        interrupted has, and so has one that was granted what could not be kept."""
        if taken is not None:
            for held in self._granted(attempt, anchor):
                self._give_back(held)
        if taken is not None or flow.cr_frame is not None:
            self._engine.withdraw(attempt)
            flow.close()
        if attempt.acquire_events is not None:
            attempt.acquire_events.failed(error)
        if self._engine.closed:
            shutdown.wait_for_exit()

    def _granted(self, attempt: Attempt, anchor: object) -> set[HeldLease]:
        """What it was granted: known to its thread or task, or to the watchdog alone when that was quicker to hear
        that nobody refers to it."""
        known = {self._engine.find_held(self._name.text, anchor), *self._engine.watchdog.leases()}
        return {held for held in known if held is not None and attempt.has_owner(held.owner)}

    def _enter(self, lease: BaseLease, anchor: object) -> None:
        """A with body begins. Its exit must find this very lease: the same thread may lose it and acquire anew."""
        self._bodies[anchor] = (lease, self._bodies.get(anchor))
        lease._held.bodies += 1

    def _innermost(self, whoever: Callable[[], object]) -> Any:
        """The lease of the body that ends now: the innermost of the calling thread or task. A body that moved, such as
        a generator's that is closed elsewhere, is certain when it is the only one of this lock object."""
        bodies = list(self._bodies.values())
        body = bodies[0] if len(bodies) == 1 else self._bodies.get(whoever())
        if body is None:
            raise self._not_held()
        return body[0]

    def _leave(self, lease: BaseLease) -> None:
        """Its body is over."""
        held, bodies = lease._held, self._bodies
        anchor = held.anchor()  # whoever entered, and the body keeps him alive
        body = bodies.get(anchor)
        if body is None or body[0] is not lease:
            return
        if body[1] is None:
            del bodies[anchor]
        else:
            bodies[anchor] = body[1]
        held.bodies -= 1

    def _give_up(self, lease: BaseLease, depth: int | None = None) -> None:
        """An interrupt hit the beginning or the end of a body: whatever was done already, it ends in the background.
        An inner one, by its depth when its end began, only steps out: the outer one may bear the interrupt."""
        held = lease._held
        self._leave(lease)
        depth = held.depth if depth is None else depth
        if depth > 1:
            held.depth = depth - 1
        else:
            self._give_back(held, self._engine.watchdog.release_reporter(held))

    def _give_back(self, held: HeldLease, done: OnReply | None = None) -> None:
        """In the background, whatever was done already; ``done`` hears what came of it."""
        release = held.begin_release(self._engine.clock.now())
        self._engine.forget(held)
        if release is not None:
            self._engine.watchdog.run_later(Defer(release, held.ttl_ms / 1000), done)

    def _mine(self, anchor: object) -> HeldLease | None:
        """The last that this thread or task has acquired of what this lock is for: a permit of the same resource, say,
        is not given back through a lock (trap 8)."""
        held = self._engine.find_held(self._name.text, anchor)
        while held is not None and held.rule not in self._kinds:
            held = held.outer
        return held

    def _held_by(self, anchor: object) -> HeldLease:
        held = self._mine(anchor)
        if held is None:
            raise self._not_held()
        return held

    def _not_held(self) -> NotHeld:
        return NotHeld(
            f"{self._name.kind} is not held by this thread or task; a lease that moves between threads or "
            "tasks is released with lease.release()",
            resource=self._name.text,
        )

    def _owned_by(self, anchor: object) -> bool:
        return self._alive(self._mine(anchor), self._kinds)

    def _alive(self, held: HeldLease | None, kinds: tuple[str, ...] = RULE_NAMES) -> bool:
        """This one, or one that the same thread or task had before it: who reads may read twice."""
        now = self._engine.clock.now()
        while held is not None:
            if held.rule in kinds and held.settle(now) in ALIVE:
                return True
            held = held.outer
        return False

    def __reduce__(self) -> str:
        """It leads to the coordinator of this process, and knows whose bodies are open here."""
        raise TypeError("a lock stays in its process: send its kind and ids, and make it there from connect()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name.shown} ttl={self._options.ttl_ms / 1000:g}s>"
