"""An event loop's connection to all nodes of a Redlock, shared by all tasks of that loop. The loop watches the sockets;
there is no task for a node."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from leasehold._core.driver import drive_async
from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.ops import Reply, StoreOp
from leasehold.errors import LeaseholdError
from leasehold.stores.concurrency import at_once
from leasehold.stores.redis import failures
from leasehold.stores.redis.redlock.answers import Leave, Round
from leasehold.stores.redis.redlock.exchange import Exchange, RunningRound
from leasehold.stores.redis.redlock.link import STALE_AFTER, Link
from leasehold.stores.redis.redlock.links import Links
from leasehold.stores.redis.sockets import Broken

if TYPE_CHECKING:
    from leasehold.stores.redis.redlock.store import RedlockStore

LAST_REPLIES = 1.0  # seconds in which what must arrive may be confirmed when the loop ends
LOOK_AGAIN = 0.005


class RedlockLoopConnection:
    """Implements ``_core.ports.AsyncConnection`` for the running event loop."""

    address = ""

    def __init__(self, store: RedlockStore, forget: Callable[[RedlockLoopConnection], object]) -> None:
        self._store = store
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self._links = Links(store, before_close=self._unwatch)
        self._watched: dict[int, int] = {}  # by the descriptor: what the loop watches for
        self._check: asyncio.TimerHandle | None = None
        self._lifetime: AsyncGenerator[None, None] | None = None

    async def execute_async(self, op: StoreOp) -> Reply:
        if self._lifetime is None:
            self._lifetime = self._close_with_loop()
            await anext(self._lifetime)
        try:
            reply: Reply = await drive_async(self._store.rounds.execute(op), self._perform)
            return reply
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise

    async def execute_batch_async(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """All at the same time: each has rounds of its own with all nodes."""
        return await at_once(self.execute_async, ops)

    async def _perform(self, request: Round | Leave) -> None:
        if isinstance(request, Leave):
            must_arrive = self._links.leave(request)
            self._watch()
        else:
            await self._round(request)
            must_arrive = request.follow is not None
        if must_arrive and self._check is None:
            self._check = self._loop.call_later(STALE_AFTER, self._check_links)

    async def _round(self, request: Round) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()

        def end() -> None:
            if not waiter.done():
                waiter.set_result(None)

        running, exchanges = RunningRound(request, end), list[Exchange | None]()
        try:
            try:
                exchanges = self._links.submit(running)
            except BaseException:
                self._links.reset()
                raise
            self._watch()
            if request.seconds and not running.over:
                timer = self._loop.call_later(request.seconds, end)
                try:
                    await waiter
                finally:
                    timer.cancel()
        finally:
            if running.open:
                self._links.abandon(exchanges)

    # ------------------------------------------------------------ the loop's side

    def _watch(self) -> None:
        """Let the loop watch for what each link expects now."""
        for link in self._links.each:
            fileno, events = link.interest()
            watched = self._watched.get(fileno, 0)
            if events == watched or fileno < 0:
                continue
            self._watched[fileno] = events
            if events & select.POLLIN and not watched & select.POLLIN:
                self._loop.add_reader(fileno, self._ready, link)
            elif watched & select.POLLIN and not events & select.POLLIN:
                self._loop.remove_reader(fileno)
            if events & select.POLLOUT and not watched & select.POLLOUT:
                self._loop.add_writer(fileno, self._ready, link)
            elif watched & select.POLLOUT and not events & select.POLLOUT:
                self._loop.remove_writer(fileno)

    def _unwatch(self, fileno: int) -> None:
        """This descriptor is about to be closed."""
        watched = self._watched.pop(fileno, 0)
        if watched and not self._loop.is_closed():
            self._loop.remove_reader(fileno)
            self._loop.remove_writer(fileno)

    def _ready(self, link: Link) -> None:
        try:
            link.go_on()
        except BaseException:  # a signal handler has raised
            link.reset()
            raise
        fileno, events = link.interest()
        if self._watched.get(fileno, 0) != events:
            self._watch()

    def _check_links(self) -> None:
        """Give up on what does not come. Nobody else would notice while the connection is idle."""
        self._check = None
        for link in self._links.each:
            link.check(time.monotonic())
        self._watch()
        if self._links.owe():
            self._check = self._loop.call_later(STALE_AFTER, self._check_links)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """From any thread, also when the loop is closed already. What a node has not confirmed is repeated in the
        background."""
        self._forget(self)
        for link in self._links.each:
            for exchange in link.must_arrive():
                exchange.give_up(failures.unanswered(link.node.name, Broken("it was closed")))
        if self._loop.is_closed():
            self._close_links()
            return
        try:
            self._loop.call_soon_threadsafe(self._close_links)
        except RuntimeError:  # closed meanwhile
            return

    def _close_links(self) -> None:
        if self._check is not None:
            self._check.cancel()
        for link in self._links.each:
            link.close()

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """Close the sockets when the loop ends: ``asyncio.run`` closes the generators that were begun on its loop. A
        generator that is closed together with this one may still be releasing a lease."""
        try:
            yield
        finally:
            give_up = self._loop.time() + LAST_REPLIES
            await asyncio.sleep(0)  # so that the others have sent their requests
            while self._loop.time() < give_up and any(link.is_awaited() for link in self._links.each):  # noqa: ASYNC110  # an event for it would cost every exchange
                await asyncio.sleep(LOOK_AGAIN)
            self._links.reset()

    def forked(self) -> None:
        """In the child: the loop is the parent's."""
        self._watched = {}
        for link in self._links.each:
            link.forked()
