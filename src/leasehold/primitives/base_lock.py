"""What every lock-like primitive shares in both flavours: the request it sends, the attempt that is under way, the
``with`` bodies that are open, the leases of the calling thread or task, and the clean-up after an exception."""

from __future__ import annotations

from abc import ABC, abstractmethod

from leasehold._core import flows
from leasehold._core.claims import ClaimTemplate
from leasehold._core.durations import wait_seconds
from leasehold._core.flows import AcquireRequest
from leasehold._core.holding import ALIVE, LOST, LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, Any, Callable, TypeAlias, make_tuple
from leasehold._core.names import Name
from leasehold._core.ops import Defer
from leasehold._core.rules import EXCLUSIVE, MUTEX, READ, RULES, SEMAPHORE
from leasehold._runtime import shutdown
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.options import Options
from leasehold._runtime.registry import Attempt
from leasehold.errors import LeaseholdError, NotHeld
from leasehold.primitives.base_lease import BaseLease

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._core.flows import FirstClaim
    from leasehold._core.ports import Connection
    from leasehold._core.tickets import Ticket
    from leasehold._runtime.background import OnReply
    from leasehold._runtime.cohorts import LocalWaiter
    from leasehold._runtime.events import AcquireEvents


class Unset:
    """The default of a parameter whose None means something."""

    def __repr__(self) -> str:
        return "<the coordinator's>"


UNSET = Unset()
MOST_TEMPLATES = 1024
_templates: dict[tuple[Any, ...], ClaimTemplate] = {}  # of locks that were used lately
RULE_NAMES = tuple(RULES)

# ---------------------------------------------------------------- with bodies
#
# The innermost body of each thread or task. A body is what was entered, a lease or several, and the body around it.


Bodies: TypeAlias = "dict[object, tuple[Any, Any]]"


def innermost_body(bodies: Bodies, caller: object) -> Any:
    """What the body that ends now has entered: the innermost of the caller. A body that moved to another thread or
    task, as a generator's does, is found when it is the only one."""
    body = bodies.get(caller)
    if body is None:
        known = list(bodies.values())
        body = known[0] if len(known) == 1 else None
    return None if body is None else body[0]


def leave_body(bodies: Bodies, anchor: object, entered: object) -> bool:
    """The innermost body of this thread or task ends. False: it has entered something else."""
    body = bodies.get(anchor)
    if body is None or body[0] is not entered:
        return False
    if body[1] is None:
        del bodies[anchor]
    else:
        bodies[anchor] = body[1]
    return True


# ---------------------------------------------------------------- lock


class BaseLock(ABC):
    """The part of a lock that never waits. ``anchor`` is the calling thread, or the calling task in asyncio."""

    __slots__ = ("__weakref__", "_bodies", "_engine", "_name", "_options")

    _expected: tuple[type[BaseException], ...] = (LeaseholdError,)  # what a flow raises after it has cleaned up
    _rule = MUTEX
    _kinds: tuple[str, ...] = EXCLUSIVE  # the rules whose leases release() of this lock gives back
    _permits = 1
    _limit = 1
    _passes = False  # its leases may pass from one thread or task of this process to the next

    def __init__(self, engine: Engine, name: Name, options: Options) -> None:
        if options.durability:
            engine.require("durability", "durability=")
        if options.linger:
            engine.require("lingering", "linger=")
        self._bodies: Bodies = {}
        self._engine = engine
        self._name = name
        self._options = options

    @property
    def resource(self) -> str:
        """The text form of the resource's name."""
        return self._name.text

    # ------------------------------------------------------------ acquiring

    def _wait(self, wait: Duration | Unset | None) -> float | None:
        return self._options.wait if isinstance(wait, Unset) else wait_seconds(wait)

    def _acquire_events(self, wait: float | None) -> AcquireEvents:
        """What reports this acquire to observers."""
        from leasehold._runtime.events import AcquireEvents

        return AcquireEvents(self._engine, self._name, self._options.ttl_ms, wait)

    def _request(self, wait: float | None, address: str, events: AcquireEvents | None) -> AcquireRequest:
        options = self._options
        meta = options.meta_text
        if events is not None:
            meta = events.carried_meta(options.meta) or meta
        pushes = self._engine.watchdog.holder_pushes
        return make_tuple(  # in the order of its fields: every acquire makes one, and keywords are slow
            AcquireRequest,
            (
                self._name, options.ttl_ms, wait, options.renews, options.at_least_ms, self._rule, self._permits,
                self._limit, address, "" if pushes is None else pushes.address, meta, options.delay_ms,
                options.durability or self._engine.durability,
            ),
        )  # fmt: skip

    def _template(self, wait: float | None, address: str) -> ClaimTemplate:
        """What is the same in all claims of this lock over one connection. A lock that is made anew for each use finds
        it again."""
        pushes = self._engine.watchdog.holder_pushes
        holder = "" if pushes is None else pushes.address
        key = (self._name, self._options, wait, address, holder, self._rule, self._permits, self._limit)
        template = _templates.get(key)
        if template is None:
            if len(_templates) >= MOST_TEMPLATES:
                _templates.clear()
            template = _templates[key] = ClaimTemplate(self._request(wait, address, None))
        return template

    def _flow(self, attempt: Attempt, now: float, first: FirstClaim | None, ticket: Ticket | None) -> Any:
        """The flow of an attempt: it queues for the resource, or adopts the lease of a ticket."""
        engine, request = self._engine, attempt.request
        if ticket is None:
            own = self._leadership(attempt) if self._passes else engine
            attempt.flow = flows.acquire(request, attempt.new_owner, engine.floor, now, first, own)
        else:
            attempt.flow = flows.adopt(request, ticket, attempt.new_owner(), engine.floor, now)
        return attempt.flow

    def _leadership(self, attempt: Attempt) -> Any:
        """Others of this process will wait behind this attempt, if it has to wait."""
        from leasehold._runtime.cohorts import Leadership

        return Leadership(self._engine, attempt)

    def _keep(self, grant: LocalGrant, anchor: object, events: AcquireEvents | None, epoch: int) -> HeldLease:
        """Register what was granted with this thread or task, and with the watchdog."""
        engine = self._engine
        held = HeldLease(self._name, grant, engine.watchdog.transitions, self._options, anchor)
        if events is not None:
            events.granted(held)  # first: its loss, however soon, must be reported after it
        engine.register(held, anchor, epoch)
        return held

    @abstractmethod
    def _lease(self, held: HeldLease, anchor: Any) -> Any:
        """The lease object for what this thread or task holds: the existing one, or a new one."""

    # ------------------------------------------------------------ what needs no claim

    def _at_hand(self, anchor: object, ticket: Ticket | None) -> Any:
        """A lease of this thread or task, entered once more, or one that lingers in this process; None: it must claim.
        Where somebody observes, ``_join`` finds what lingers."""
        if self._options.reentrant and (known := self._reenter(anchor)) is not None:
            return known
        return None if ticket is not None or self._engine.observers.active() else self._take_kept(anchor)

    def _take_kept(self, anchor: object) -> Any:
        """The lease that lingers, registered with this thread or task."""
        engine, options, held = self._engine, self._options, None
        if not self._passes or not options.passes:
            return None
        epoch = engine.epoch  # first: a signal handler may fork at any line, and the child must not have it
        try:
            with engine.watchdog.transitions:
                cohort = engine.cohorts.get((self._name.text, options.ttl_ms, options.meta_text, self._rule))
                if cohort is None or cohort.kept is None or engine.closed:
                    return None
                held = cohort.take_kept(engine, self._name, options, anchor)
            if held is None:
                return None
            engine.register(held, anchor, epoch)
            return self._lease(held, anchor)
        except BaseException:
            if held is not None:
                self._release_in_background(held)
            raise

    # ------------------------------------------------------------ waiting behind others of this process

    def _join(self, wait: float | None, anchor: Any, events: AcquireEvents | None) -> Any:
        """A place behind those of this process who wait for the same already, or the lease that lingers here. None
        where there is neither, or where what they have cannot be passed to this lock. A single try never waits."""
        engine, options = self._engine, self._options
        if not self._passes or self._rule not in EXCLUSIVE or not options.passes or engine.durability:
            return None
        meta = options.meta_text
        if events is not None:
            meta = events.carried_meta(options.meta) or meta
        cohort = engine.cohorts.get((self._name.text, options.ttl_ms, meta, self._rule))
        return None if cohort is None else cohort.join(engine, self._name, wait, options, anchor, events)

    def _take_up(self, held: HeldLease, place: LocalWaiter, anchor: object, events: AcquireEvents | None) -> HeldLease:
        """Register what was passed on with this thread or task, and with the watchdog."""
        if events is not None:
            events.granted(held)
        self._engine.register(held, anchor, place.epoch)
        return held

    def _leave_cohort(self, place: LocalWaiter, error: BaseException, events: AcquireEvents | None) -> None:
        """After an exception: nobody waits for this place, and what was passed to it is given back."""
        from leasehold._runtime import cohorts

        held = cohorts.leave(self._engine, place)
        if held is not None:
            self._release_in_background(held)
        if events is not None:
            events.failed(error)
        if self._engine.closed:
            shutdown.wait_for_exit()

    def _hold_in_cohort(self, attempt: Attempt, held: HeldLease, grant: LocalGrant) -> None:
        """Others of this process wait behind this attempt: the lease may pass to them."""
        from leasehold._runtime import cohorts

        cohorts.granted(self._engine, attempt, held, grant)

    # ------------------------------------------------------------ the end of an acquire
    #
    # Lock._acquire and AsyncLock._acquire end in the same four steps, in this order: clean up the claim (only after an
    # exception), discard the attempt, forget its pushes, give the connection back. They discard the attempt themselves:
    # an interrupt at the entry of a method would leave it pending for ever.

    def _clean_up(self, attempt: Attempt, grant: LocalGrant | None, anchor: object, error: BaseException) -> None:
        """After an exception: leave nothing claimed. A flow that raised it has cleaned up itself. One whose driver was
        interrupted may not have, nor has one whose grant could not be kept, nor one that had not begun."""
        flow = attempt.flow
        if grant is not None:
            for held in self._leases_of(attempt, anchor):
                self._release_in_background(held)
        if grant is not None or flow is None or flow.cr_frame is not None or not isinstance(error, self._expected):
            self._engine.withdraw(attempt)
            if flow is not None:
                flow.close()
        if attempt.acquire_events is not None:
            attempt.acquire_events.failed(error)
        if self._engine.closed:
            shutdown.wait_for_exit()

    def _finish(self, attempt: Attempt, borrowed: list[Connection] | None = None) -> None:
        """The last steps of every acquire. Safe to repeat after an interrupt: a connection that it caught between the
        two lists is closed with its last reference, and none is ever given back twice."""
        self._engine.pending.discard(attempt)
        attempt.forget_pushes()
        if attempt.cohort is not None:
            from leasehold._runtime import cohorts

            cohorts.step_down(self._engine, attempt.cohort, attempt)
        while borrowed:
            self._engine.connections.give_back(borrowed.pop())

    def _leases_of(self, attempt: Attempt, anchor: object) -> set[HeldLease]:
        """What this attempt was granted. The registry knows it, or only the watchdog when that has already noticed
        that no lease object refers to it."""
        known = {self._engine.find_held(self._name.text, anchor), *self._engine.watchdog.leases()}
        return {held for held in known if held is not None and attempt.has_owner(held.owner)}

    # ------------------------------------------------------------ entering again

    def _may_reenter(self) -> bool:
        return self._options.reentrant

    def _reenter(self, anchor: object) -> Any:
        """The lease that this thread or task holds already, entered once more. None: it must claim as any other
        caller, because it holds nothing, has given it back, or holds a lease of another kind. A lost one is raised."""
        held = self._engine.find_held(self._name.text, anchor)
        if held is None or held.rule == SEMAPHORE:
            return None
        depth, now = held.depth, self._engine.clock.now()
        try:
            if not self._can_reenter(held):
                if held.settle(now) == LOST:
                    raise held.loss()
                return None
            if not held.enter_again(self._options.ttl_ms, now):
                return None
            if self._can_reenter(held):
                return self._lease(held, anchor)
            held.step_out()  # another thread downgraded it in between
            return None
        except BaseException:
            held.depth = min(held.depth, depth)  # after an interrupt here no body will step out again
            raise

    def _can_reenter(self, held: HeldLease) -> bool:
        """A reader cannot write."""
        return not held.shared or self._rule == READ

    # ------------------------------------------------------------ with bodies

    def _enter(self, lease: BaseLease, anchor: object) -> None:
        """A body begins. Its exit must find this very lease: the same thread may lose it and acquire anew."""
        self._bodies[anchor] = (lease, self._bodies.get(anchor))
        lease._held.bodies += 1

    def _innermost(self, caller: Callable[[], object]) -> Any:
        """The lease of the body that ends now. ``caller`` gives the thread or task that leaves it."""
        if len(self._bodies) == 1:
            try:
                ((lease, _),) = self._bodies.values()
                return lease
            except ValueError:  # another thread has come or gone just now
                pass
        lease = innermost_body(self._bodies, caller())
        if lease is None:
            raise self._not_held()
        return lease

    def _leave(self, lease: BaseLease) -> None:
        """A body ends. Its anchor is the thread or task that entered, which the body keeps alive."""
        held, bodies = lease._held, self._bodies
        anchor = held.anchor()
        body = bodies.get(anchor)
        if body is not None and body[0] is lease and body[1] is None:  # the usual case of leave_body
            del bodies[anchor]
            held.bodies -= 1
        elif leave_body(bodies, anchor, lease):
            held.bodies -= 1

    def _abandon(self, lease: BaseLease, depth: int | None = None) -> None:
        """An interrupt hit the beginning or the end of a body: release in the background, however far it came. An
        inner body, known by the depth at which its end began, only steps out: the outer one may survive the
        interrupt."""
        held = lease._held
        self._leave(lease)
        depth = held.depth if depth is None else depth
        if depth > 1:
            held.depth = depth - 1
        else:
            self._release_in_background(held, self._engine.watchdog.release_reporter(held))

    def _release_in_background(self, held: HeldLease, done: OnReply | None = None) -> None:
        """Release it, however far an earlier release came; ``done`` is called with the outcome."""
        release = held.begin_release(self._engine.clock.now())
        self._engine.forget(held)
        if release is not None:
            self._engine.watchdog.run_later(Defer(release, held.ttl_ms / 1000), done)

    # ------------------------------------------------------------ what the caller holds

    def _last_held(self, anchor: object) -> HeldLease | None:
        """The last lease of this lock's kind that this thread or task has acquired: a permit of the same resource, for
        instance, is not released through a lock (trap 8)."""
        held = self._engine.find_held(self._name.text, anchor)
        while held is not None and held.rule not in self._kinds:
            held = held.outer
        return held

    def _held_by(self, anchor: object) -> HeldLease:
        held = self._last_held(anchor)
        if held is None:
            raise self._not_held()
        return held

    def _not_held(self) -> NotHeld:
        return NotHeld(
            f"{self._name.label} is not held by this thread or task; a lease that moves between threads or "
            "tasks is released with lease.release()",
            resource=self._name.text,
        )

    def _owned_by(self, anchor: object) -> bool:
        return self._alive(self._last_held(anchor), self._kinds)

    def _alive(self, held: HeldLease | None, kinds: tuple[str, ...] = RULE_NAMES) -> bool:
        """Is this lease alive, or one that the same thread or task acquired before it? A reader may read twice."""
        now = self._engine.clock.now()
        while held is not None:
            if held.rule in kinds and held.settle(now) in ALIVE:
                return True
            held = held.outer
        return False

    def __reduce__(self) -> str:
        """A lock belongs to the coordinator of this process, and knows which bodies are open here."""
        raise TypeError("a lock stays in its process: send its kind and ids, and make it there from connect()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name.shown} ttl={self._options.ttl_ms / 1000:g}s>"
