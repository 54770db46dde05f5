"""The leader of an election as other processes see it: once, or as a stream of changes that the store pushes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from leasehold._core import ops, resource_flows
from leasehold._core.light_typing import TYPE_CHECKING, Any, NamedTuple
from leasehold._core.names import parse_name
from leasehold._core.ops import WAKE, StoreOp
from leasehold._core.ports import Connection
from leasehold._core.types import Grant
from leasehold._runtime import shutdown, sync
from leasehold._runtime.engine import Engine
from leasehold._runtime.identity import new_owner
from leasehold.errors import InvalidRequest, StoreUnavailable
from leasehold.primitives.inspection import inspection

if TYPE_CHECKING:
    from datetime import datetime

    from leasehold._core.ops import Push, Reply
    from leasehold._runtime.aio import AsyncDriver, PushRouter


class Leader(NamedTuple):
    """The current leader. ``owner`` is its host and process, ``term`` the number of its term, ``value`` what it has
    published (None: nothing). Its lease expires in ``expires_in`` seconds; each renewal sets that back."""

    owner: str
    term: int
    value: Any
    since: datetime | None
    ttl: float
    expires_in: float
    meta: dict[str, Any]


def leader_of(resource: str, view: ops.View) -> Leader | None:
    """The leader in a view of the store."""
    holder = inspection(resource, view).holder
    if holder is None:
        return None
    value = holder.meta.get("value")
    return Leader(holder.owner, holder.fence, value, holder.since, holder.ttl, holder.expires_in, holder.meta)


class ObservationClosed(Exception):
    """Raised inside the flow of an observation that was closed while a reader waited for its next change."""


class BaseObservation(ABC):
    """An observation of either flavour: the last known leader, and how the stream ends."""

    def __init__(self, engine: Engine, resource: str) -> None:
        self._engine = engine
        self._resource = resource
        self._epoch = engine.epoch
        self._known: tuple[Grant, ...] | None = None
        self._closed = False
        self._reading = False
        self._watch: resource_flows.WatchRequest | None = None  # once it has begun

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {parse_name(self._resource).shown}{' closed' if self._closed else ''}>"

    def close(self) -> None:
        """End the stream: a reader that waits for the next change stops within a second, and the store forgets this
        observer. Call it from any thread."""
        self._closed = True
        if not self._reading:
            self._stop_watching()

    def _begin_reading(self) -> None:
        if self._epoch != self._engine.epoch:  # in a forked child: the connection and the reader belong to the parent
            self._epoch, self._watch, self._reading = self._engine.epoch, None, False
            self._forked()
        if self._reading:
            raise InvalidRequest("an observation is read by one at a time: call observe() for each of them")
        self._reading = True

    def _end_reading(self) -> None:
        self._reading = False
        if self._closed:
            self._stop_watching()

    def _changed(self, view: ops.View) -> Leader | None:
        self._known = view.holders
        return leader_of(self._resource, view)

    def _ends_with(self, error: StoreUnavailable) -> bool:
        """The stream ends with its coordinator. After any other error the next call goes on with the next change."""
        if not self._engine.closed:
            return False
        self.close()
        shutdown.wait_for_exit()
        return True

    def _stop_watching(self) -> None:
        """Give the connection back, and have the store forget this observer."""
        watched, self._watch = self._watch, None
        if watched is not None and self._epoch == self._engine.epoch:
            self._give_back_connection(watched)
            if not self._engine.closed:
                self._engine.watchdog.run_later(resource_flows.end_watch(watched))

    @abstractmethod
    def _give_back_connection(self, watched: resource_flows.WatchRequest) -> None: ...

    @abstractmethod
    def _forked(self) -> None: ...

    def __reduce__(self) -> str:
        """Its connection belongs to this process; a copy would give it back while this one reads."""
        raise TypeError("an observation stays in its process, and is not copied: call observe() there")

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()


class Observation(BaseObservation):
    """The leaders of one election, for threads: at once the current one, then each change. None: there is no leader."""

    def __init__(self, engine: Engine, resource: str) -> None:
        BaseObservation.__init__(self, engine, resource)
        self._connections: list[Connection] = []  # the one that it has borrowed

    def __iter__(self) -> Observation:
        return self

    def __next__(self) -> Leader | None:
        """Wait for the next change. StoreUnavailable after ten seconds without an answer; it may be called again."""
        if self._closed:
            raise StopIteration
        self._begin_reading()
        try:
            watched = self._begin()
            engine = self._engine
            flow = resource_flows.next_change(watched, self._known, engine.clock.now())
            return self._changed(sync.drive(engine, flow, StoppableConnection(self._connections[0], self)))
        except ObservationClosed:
            raise StopIteration from None
        except StoreUnavailable as error:
            if self._ends_with(error):
                raise StopIteration from None
            raise
        finally:
            self._end_reading()

    def _begin(self) -> resource_flows.WatchRequest:
        self._engine.ensure_open()
        if self._watch is None:
            self._connections.append(self._engine.connections.borrow())
            self._watch = resource_flows.WatchRequest(self._resource, new_owner(), self._connections[0].address)
        return self._watch

    def _give_back_connection(self, watched: resource_flows.WatchRequest) -> None:
        try:
            connection = self._connections.pop()
        except IndexError:  # another thread closed it first
            return
        self._engine.connections.give_back(connection)

    def _forked(self) -> None:
        self._connections = []


class StoppableConnection:
    """A connection whose reader stops when the observation is closed."""

    def __init__(self, connection: Connection, observation: BaseObservation) -> None:
        self._connection = connection
        self._observation = observation
        self.address = connection.address
        self.close = connection.close

    def execute(self, op: StoreOp) -> Reply:
        if self._observation._closed:
            raise ObservationClosed
        return self._connection.execute(op)

    def next_push(self, seconds: float) -> Push | None:
        return WAKE if self._observation._closed else self._connection.next_push(seconds)


class AsyncObservation(BaseObservation):
    """The leaders of one election, for asyncio: at once the current one, then each change. None: there is no leader."""

    def __init__(self, engine: Engine, resource: str, driver: AsyncDriver) -> None:
        BaseObservation.__init__(self, engine, resource)
        self._driver = driver
        self._connection: PushRouter | None = None

    def __aiter__(self) -> AsyncObservation:
        return self

    async def __anext__(self) -> Leader | None:
        """Wait for the next change; see ``Observation``."""
        if self._closed:
            raise StopAsyncIteration
        self._begin_reading()
        try:
            watched, connection = self._begin()
            engine = self._engine
            flow = resource_flows.next_change(watched, self._known, engine.clock.now())
            return self._changed(await self._driver.drive(flow, StoppableAsyncConnection(connection, self)))  # type: ignore[arg-type]  # it has all that the driver uses
        except ObservationClosed:
            raise StopAsyncIteration from None
        except StoreUnavailable as error:
            if self._ends_with(error):
                raise StopAsyncIteration from None
            raise
        finally:
            self._end_reading()

    def _begin(self) -> tuple[resource_flows.WatchRequest, PushRouter]:
        self._engine.ensure_open()
        connection = self._driver.connection(self._driver.task().get_loop())
        if self._watch is None or connection is not self._connection:
            self._stop_watching()
            self._connection = connection
            self._watch = resource_flows.WatchRequest(self._resource, new_owner(), connection.address)
            connection.pushes[self._watch.owner] = None
        return self._watch, connection

    def close(self) -> None:
        """End the stream: a reader that waits for the next change stops, and the store forgets this observer."""
        BaseObservation.close(self)
        if self._reading and self._connection is not None and self._watch is not None:
            self._connection.wake(self._watch.owner)

    def _give_back_connection(self, watched: resource_flows.WatchRequest) -> None:
        if self._connection is not None:
            self._connection.pushes.pop(watched.owner, None)

    def _forked(self) -> None:
        self._connection = None


class StoppableAsyncConnection:
    """The same for the connection of an event loop."""

    def __init__(self, connection: PushRouter, observation: BaseObservation) -> None:
        self._connection = connection
        self._observation = observation
        self.next_push = connection.next_push

    async def execute(self, op: StoreOp) -> Reply:
        if self._observation._closed:
            raise ObservationClosed
        return await self._connection.execute(op)
