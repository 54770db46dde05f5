"""Elections: one leader at a time, whose term is a lease and whose number is its fence.

An election is a lock, and candidates wait in its queue. It adds what leaders need: a value that every process can read,
a stream of leaders, callbacks, a health check, and a way to step down from anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from leasehold._core.durations import wait_seconds
from leasehold._core.holding import ALIVE, LOST
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.names import Name
from leasehold._core.resource_flows import inspect_resource
from leasehold._core.types import json_text
from leasehold._runtime import sync
from leasehold._runtime.engine import Engine
from leasehold._runtime.options import Options
from leasehold.errors import InvalidRequest
from leasehold.observe import log
from leasehold.primitives.base_lock import UNSET, Unset
from leasehold.primitives.campaign import AsyncCampaign, Campaign
from leasehold.primitives.health import AsyncHealthMonitor, Health, HealthMonitor, check_function
from leasehold.primitives.lease import _in_thread
from leasehold.primitives.term import RESIGNED, AsyncTerm, HeldTerm, Term, meta_with_value

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.held_lease import Listener
    from leasehold.primitives.leader import AsyncObservation, Leader, Observation


class BaseElection(ABC):
    """An election of either flavour: its options, and the terms that are led through this object."""

    def __init__(self, engine: Engine, name: Name, options: Options, value: Any, health: Health | None) -> None:
        if "value" in (options.meta or {}):
            raise InvalidRequest('what a leader publishes is given as value=, and meta has no "value" of its own')
        self._engine = engine
        self._name = name
        self._health = health
        self._options = _with_value(options, value)
        self._elected: list[Callable[..., Any]] = []
        self._demoted: list[Callable[..., Any]] = []
        self._held_terms: dict[int, HeldTerm] = {}  # the terms that are led through this object, by their numbers

    @property
    def resource(self) -> str:
        """The text form of the resource's name."""
        return self._name.text

    def resign(self) -> bool:
        """Step down, from any thread or task, or from a signal handler. False: it did not lead.

        From here on the term is lost (``resigned``): its body is notified as of any loss, and must stop. When the body
        has ended, the lease is released and the next candidate leads; a body that goes on regardless keeps it until
        its deadline. A loop of terms ends. It costs no round trip, so there is nothing to await."""
        led = False
        for held_term in list(self._held_terms.values()):
            if held_term.settle(self._engine.clock.now()) in ALIVE:
                held_term.lose(RESIGNED)
            led = led or (held_term.phase == LOST and held_term.reason == RESIGNED)
            self._engine.watchdog.report_loss(held_term)
        return led

    def _campaign_options(self, wait: Duration | Unset | None, value: Any) -> Options:
        """The checked options of a campaign."""
        options = self._options if isinstance(value, Unset) else _with_value(self._options, value)
        return options if isinstance(wait, Unset) else options.with_wait(wait_seconds(wait))

    def _begin(self, term: Any) -> None:
        """A campaign was elected. What follows the end of its term is set up first, because that may come at once."""
        held_term: HeldTerm = term._held
        held_term.loop = getattr(term, "_loop", None)
        self._held_terms[held_term.fence] = held_term
        held_term.at_end(_remover(self._held_terms, held_term.fence))
        held_term.at_end(self._demotion_reporter(held_term))
        if self._engine.observers.observers:
            held_term.at_end(self._candidacy_reporter(held_term))
        self._call(self._elected, term, "on_elected")
        if self._health is not None:
            self._monitor_health(self._health, term, held_term)

    def _demotion_reporter(self, held_term: HeldTerm) -> Listener:
        """Calls the callbacks of ``on_demoted``. The Term may be collected by then, and another object replaces it."""

        def report() -> None:
            if self._demoted:
                self._call(self._demoted, held_term.lease() or self._term_of(held_term), "on_demoted")

        return report

    def _candidacy_reporter(self, held_term: HeldTerm) -> Listener:
        """Reports to observers that there is no leader, or that this process no longer wants to be one."""
        from leasehold._runtime.events import report_candidacy

        def report() -> None:
            lost = held_term.phase == LOST and held_term.reason not in log.INTENDED
            report_candidacy(self._engine.observers, self._name, "stands" if lost else "left")

        return report

    def _call(self, callbacks: list[Callable[..., Any]], term: Any, what: str) -> None:
        """Call the callbacks. The term goes on, whatever they do."""
        for callback in callbacks:
            try:
                self._listener(callback, term, what)()
            except RuntimeError as error:
                log.warn("a callback of %s could not be called: %r", what, error, error=error)

    @abstractmethod
    def _listener(self, callback: Callable[..., Any], term: Any, what: str) -> Listener: ...

    @abstractmethod
    def _monitor_health(self, health: Health, term: Any, held_term: HeldTerm) -> None: ...

    @abstractmethod
    def _term_of(self, held_term: HeldTerm) -> Any: ...

    def __reduce__(self) -> str:
        """An election belongs to the coordinator of this process, and knows the terms that are led here."""
        raise TypeError("an election stays in its process: send its kind and ids, and make it there from connect()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name.shown} ttl={self._options.ttl_ms / 1000:g}s>"


class Election(BaseElection):
    """An election for threads; made by :meth:`leasehold.Leasehold.election`.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold:
    ...     election = hold.election("scheduler", value="10.0.0.7:8000")
    ...     for term in election.campaign(wait=5):
    ...         election.leader().value, election.leader().term == term.term
    ...         election.resign()
    ('10.0.0.7:8000', True)
    True
    """

    def campaign(self, wait: Duration | Unset | None = UNSET, value: Any = UNSET) -> Campaign:
        """Stand for election. ``wait`` is how long to wait in the queue for each term, ``value`` what to publish.

        ``with election.campaign() as term:`` leads one term. NotAcquired when the wait is over first. As with a lock,
        leaving the body of a lost term raises LeaseLost.

        ``for term in election.campaign():`` leads one term after the other. A term lasts until the body comes back to
        the head of the loop; then it is released, and the candidate queues again at the end. A lost term raises
        nothing: watch ``term.lost`` or call ``term.check()``, and the loop goes on. So does ``with term:`` around the
        work, which ends with the loss of its own term and swallows that error. After ``resign()`` the loop ends.
        Leaving the loop in any other way releases the term in the background.
        """
        return Campaign(self, self._campaign_options(wait, value))

    def leader(self) -> Leader | None:
        """The current leader, or None. Reads the store; the answer may be out of date by the time you read it."""
        from leasehold.primitives.leader import leader_of

        self._engine.ensure_open()
        return leader_of(self._name.text, sync.run(self._engine, inspect_resource(self._name.text, queue=False)))

    def observe(self) -> Observation:
        """A stream of leaders for ``for``: at once the current one, then each change that the store reports: elected,
        published, resigned, expired. None: there is no leader. It ends when it is closed, or the coordinator is.
        Changes that follow each other quickly may be seen as one."""
        from leasehold.primitives.leader import Observation

        self._engine.ensure_open()
        return Observation(self._engine, self._name.text)

    def on_elected(self, callback: Callable[[Term], object]) -> None:
        """Call ``callback(term)`` in a thread of its own when a campaign of this object has won a term."""
        check_function(callback, "on_elected")
        self._elected.append(callback)

    def on_demoted(self, callback: Callable[[Term], object]) -> None:
        """Call ``callback(term)`` in a thread of its own when such a term has ended, for whatever reason: before
        another candidate can lead, unless this process was frozen for too long."""
        check_function(callback, "on_demoted")
        self._demoted.append(callback)

    def _listener(self, callback: Callable[..., Any], term: Any, what: str) -> Listener:
        return _in_thread(callback, lambda: (term,), what)

    def _monitor_health(self, health: Health, term: Any, held_term: HeldTerm) -> None:
        HealthMonitor(health, held_term, self._engine.watchdog, self._engine.clock).start()

    def _term_of(self, held_term: HeldTerm) -> Term:
        return Term(self._engine, held_term)


class AsyncElection(BaseElection):
    """An election for asyncio: as :class:`Election`, awaited. The task inside ``async with`` is cancelled on loss."""

    def __init__(
        self, engine: Engine, name: Name, options: Options, value: Any, health: Health | None, driver: AsyncDriver
    ) -> None:
        BaseElection.__init__(self, engine, name, options, value, health)
        self._driver = driver

    def campaign(self, wait: Duration | Unset | None = UNSET, value: Any = UNSET) -> AsyncCampaign:
        """Stand for election, with ``async with`` or ``async for``; see :meth:`leasehold.Election.campaign`.

        The task inside ``async with`` is cancelled on loss. In a loop of terms that is ``async with term:``."""
        return AsyncCampaign(self, self._campaign_options(wait, value), self._driver)

    async def leader(self) -> Leader | None:
        """The current leader, or None. Reads the store; the answer may be out of date by the time you read it."""
        from leasehold.primitives.leader import leader_of

        self._engine.ensure_open()
        return leader_of(self._name.text, await self._driver.drive(inspect_resource(self._name.text, queue=False)))

    def observe(self) -> AsyncObservation:
        """A stream of leaders for ``async for``; see :meth:`leasehold.Election.observe`."""
        from leasehold.primitives.leader import AsyncObservation

        self._engine.ensure_open()
        return AsyncObservation(self._engine, self._name.text, self._driver)

    def on_elected(self, callback: Callable[[AsyncTerm], object | Awaitable[object]]) -> None:
        """Call ``callback(term)``, a function or a coroutine function, on the loop when a campaign has won a term."""
        check_function(callback, "on_elected", awaited=True)
        self._elected.append(callback)

    def on_demoted(self, callback: Callable[[AsyncTerm], object | Awaitable[object]]) -> None:
        """Call ``callback(term)``, a function or a coroutine function, on the loop when such a term has ended, for
        whatever reason."""
        check_function(callback, "on_demoted", awaited=True)
        self._demoted.append(callback)

    def _listener(self, callback: Callable[..., Any], term: Any, what: str) -> Listener:
        return self._driver.callback(term._loop, callback, lambda: (term,), what)

    def _monitor_health(self, health: Health, term: Any, held_term: HeldTerm) -> None:
        monitor = AsyncHealthMonitor(health, held_term, self._engine.watchdog, self._engine.clock)
        monitor.start_on(self._driver, term._loop)

    def _term_of(self, held_term: HeldTerm) -> AsyncTerm:
        return AsyncTerm(self._engine, held_term, self._driver, held_term.loop)


def _with_value(options: Options, value: Any) -> Options:
    """The same options for a candidate that publishes this value once it leads."""
    meta = meta_with_value(options.meta, value)
    if not meta:
        return options.with_meta(meta, "")
    import json

    text = json_text(meta, "value")
    return options.with_meta(json.loads(text), text)  # as others read it, and a copy that the caller cannot change


def _remover(held_terms: dict[int, HeldTerm], fence: int) -> Listener:
    def forget() -> None:
        held_terms.pop(fence, None)

    return forget
