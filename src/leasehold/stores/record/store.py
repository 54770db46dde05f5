"""The store on a server that keeps records: implements the port with the flows of ``turns`` and a server.

Nothing expires by a clock of the server: see ``text``. ``clock`` is for that, and for local deadlines.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from random import random
from weakref import WeakValueDictionary

from leasehold._core.driver import drive, drive_async
from leasehold._core.light_typing import Any
from leasehold._core.ops import WAKE, Group, Page, Ping, Push, Reply, StoreOp
from leasehold._core.ports import Clock
from leasehold._core.types import Capabilities
from leasehold.errors import LeaseholdError, StoreUnavailable, Unsupported
from leasehold.stores.clock import SystemClock
from leasehold.stores.concurrency import at_once
from leasehold.stores.mailbox import HolderMailbox, Mailbox
from leasehold.stores.place import here
from leasehold.stores.record.cleaner import Cleaner
from leasehold.stores.record.requests import Server, Watching
from leasehold.stores.record.text import push as read_push
from leasehold.stores.record.turns import Flow, Pause, Turns

SWEEP_EVERY = 256  # ops
SWEEP_WITHIN = 1.0  # seconds
BATCH = 100  # ops whose requests are sent together


class RecordStore:
    """Implements ``_core.ports.Store``. Making one connects to nothing; the first op does."""

    capabilities = Capabilities(hosts=True, lingering=False)

    def __init__(self, name: str, server: Server, clock: Clock | None = None) -> None:
        self.name = name
        self.clock: Clock = SystemClock() if clock is None else clock
        self._server = server
        self._turns = Turns(server, self.clock, self._deliver, random)
        self._cleaner = Cleaner(self._clean_up, lambda: bool(self._turns.unfinished))
        # Weakly: a connection that an interrupt kept from being given back is collected.
        self._boxes: WeakValueDictionary[str, Mailbox | HolderMailbox] = WeakValueDictionary()
        self._heard: dict[str, Watching] = {}
        self._forks = 0
        self._count = 0

    @property
    def url(self) -> str:
        return self._server.url

    # ------------------------------------------------------------ ops

    def execute(self, op: StoreOp, forks: int | None = None) -> Reply:
        """``forks``: how often the process of the caller had been forked when the caller got its connection."""
        reply: Reply = self._run(self._begin(op, forks), op, _end(op), forks)
        if type(op) is Ping and op.versions:
            return Page(tuple(self._server.versions(_end(op))), "")
        self._sweep(1, forks)
        return reply

    async def execute_async(self, op: StoreOp, forks: int | None = None) -> Reply:
        reply: Reply = await self._run_async(self._begin(op, forks), op, _end(op), forks)
        if type(op) is Ping and op.versions:
            asked = asyncio.get_running_loop().run_in_executor(None, self._server.versions, _end(op))
            return Page(tuple(await asked), "")
        for _ in range(self._sweeps_due(1)):
            with suppress(LeaseholdError):
                await self._run_async(self._turns.sweep(), None, time.monotonic() + SWEEP_WITHIN, forks)
        return reply

    def _begin(self, op: StoreOp, forks: int | None) -> Flow:
        return self._turns.execute(op)

    def check_together(self, resources: Collection[str]) -> None:
        """Unsupported, if these are more than one change takes."""
        most = self._server.most_parts
        if len(resources) > most:
            raise Unsupported(f"all() takes at most {most} resources on {self.name}, which changes them in one step")

    def _run(self, flow: Flow, op: StoreOp | None, give_up: float, forks: int | None) -> Any:
        """On the calling thread."""
        forks = self._forks if forks is None else forks
        try:
            return drive(flow, partial(self._perform, give_up, forks))
        except LeaseholdError as error:
            _name(error, op)
            raise
        finally:
            self._look_after()

    async def _run_async(self, flow: Flow, op: StoreOp | None, give_up: float, forks: int | None) -> Any:
        """In the running task."""
        forks = self._forks if forks is None else forks
        try:
            return await drive_async(flow, partial(self._perform_async, give_up, forks))
        except LeaseholdError as error:
            _name(error, op)
            raise
        finally:
            self._look_after()

    def _perform(self, give_up: float, forks: int, request: Any) -> Any:
        self._check(give_up, forks)
        if isinstance(request, Pause):
            time.sleep(request.seconds)
            return None
        (reply,) = self._server.perform((request,), give_up)
        return _raised(reply)

    async def _perform_async(self, give_up: float, forks: int, request: Any) -> Any:
        self._check(give_up, forks)
        if isinstance(request, Pause):
            await asyncio.sleep(request.seconds)
            return None
        (reply,) = await self._server.perform_async((request,), give_up)
        return _raised(reply)

    def _check(self, give_up: float, forks: int) -> None:
        """A call that a signal handler has forked in its middle is the parent's alone: the child sends nothing."""
        if forks != self._forks:
            raise StoreUnavailable(f"this call of {self._server.server} belongs to the process that was forked in it")
        if time.monotonic() >= give_up:
            raise StoreUnavailable(
                f"{self._server.server} is busy, or other clients keep changing this resource: nothing was done in time"
            )

    # ------------------------------------------------------------ several ops

    def execute_many(self, ops: Sequence[StoreOp], forks: int | None = None) -> list[Reply | LeaseholdError]:
        """``forks`` as in ``execute``."""
        replies: list[Reply | LeaseholdError] = []
        for start in range(0, len(ops), BATCH):
            replies.extend(self._together(ops[start : start + BATCH], self._forks if forks is None else forks))
        return replies

    def _execute_batch(self, ops: Sequence[StoreOp], forks: int) -> list[Reply | LeaseholdError]:
        replies = self.execute_many(ops, forks)
        self._sweep(len(ops), forks)
        return replies

    def _together(self, ops: Sequence[StoreOp], forks: int) -> list[Reply | LeaseholdError]:
        """Their flows in step, so that the requests of all leave together."""
        give_up = min(map(_end, ops))
        replies: list[Any] = [None] * len(ops)
        flows = {place: self._begin(op, forks) for place, op in enumerate(ops)}
        answers: dict[int, Any] = dict.fromkeys(flows)
        while flows:
            requests: dict[int, Any] = {}
            for place, flow in tuple(flows.items()):
                try:
                    answer = answers[place]
                    requests[place] = flow.throw(answer) if isinstance(answer, LeaseholdError) else flow.send(answer)
                except StopIteration as end:
                    replies[place] = end.value
                    del flows[place]
                except LeaseholdError as error:
                    replies[place] = _name(error, ops[place])
                    del flows[place]
            answers = self._answers(requests, give_up, forks)
        self._look_after()
        return replies

    def _answers(self, requests: dict[int, Any], give_up: float, forks: int) -> dict[int, Any]:
        """Pauses of some delay all: what they wait for is the same."""
        pauses = [one.seconds for one in requests.values() if isinstance(one, Pause)]
        if pauses:
            time.sleep(min(pauses))
        sent = {place: one for place, one in requests.items() if not isinstance(one, Pause)}
        answers: dict[int, Any] = dict.fromkeys(requests)
        if sent:
            try:
                self._check(give_up, forks)
                got = self._server.perform(tuple(sent.values()), give_up)
            except LeaseholdError as error:
                got = [error] * len(sent)
            answers.update(zip(sent, got, strict=True))
        return answers

    # ------------------------------------------------------------ pushes

    def connection(self) -> Mailbox:
        execute = partial(self.execute, forks=self._forks)
        execute_async = partial(self.execute_async, forks=self._forks)
        made = Mailbox(
            os.urandom(8).hex(),
            execute,
            execute_async,
            self._remove,
            partial(self._execute_batch, forks=self._forks),
            partial(at_once, execute_async),
        )
        self._boxes[made.address] = made
        return made

    def listen(self, notify: Callable[[Push], None]) -> Mailbox:
        connection = self.connection()
        connection.attach(notify)
        return connection

    def holder_pushes(self) -> HolderMailbox:
        return HolderMailbox(os.urandom(8).hex() + here(), self._hear, self._remove)

    def _hear(self, box: HolderMailbox) -> None:
        self._boxes[box.address] = box
        self._heard[box.address] = self._server.hear(box.address, partial(self._receive, box))

    def _receive(self, box: HolderMailbox, text: str) -> None:
        push = read_push(text)
        if push is not None:
            box.deliver(push)

    def _remove(self, box: Mailbox | HolderMailbox) -> None:
        self._boxes.pop(box.address, None)
        heard = self._heard.pop(box.address, None)
        if heard is not None:
            heard.close()

    def _deliver(self, push: Push) -> None:
        box = self._boxes.get(push.address)
        if box is not None:
            box.deliver(push)

    # ------------------------------------------------------------ what is done besides

    def _sweep(self, ops: int, forks: int | None) -> None:
        """After so many ops: each can have brought a new name, also in a batch."""
        for _ in range(self._sweeps_due(ops)):
            with suppress(LeaseholdError):
                self._run(self._turns.sweep(), None, time.monotonic() + SWEEP_WITHIN, forks)

    def _sweeps_due(self, ops: int) -> int:
        before, self._count = self._count, self._count + ops
        return self._count // SWEEP_EVERY - before // SWEEP_EVERY

    def _look_after(self) -> None:
        if self._turns.unfinished:
            self._cleaner.start()

    def _clean_up(self) -> None:
        """Repeat the withdrawals that have not been answered."""
        for op in tuple(self._turns.unfinished.values()):
            with suppress(LeaseholdError):
                self._run(self._turns.execute(op), op, _end(op), None)

    def before_fork(self) -> None:
        """A child closes its copies of the sockets; ours stay as they are."""

    def after_fork(self) -> None:
        """Nothing was closed."""

    def forked(self) -> None:
        self._forks += 1
        self._boxes, self._heard = WeakValueDictionary(), {}
        self._cleaner.forked()
        self._server.forked()
        self._turns.forked()

    def close(self) -> None:
        """Places go with the session."""
        self._cleaner.stop()
        self._server.close()
        for box in tuple(self._boxes.values()):
            if isinstance(box, Mailbox):
                box.deliver(WAKE)


def _end(op: StoreOp) -> float:
    """The time by which it must be done."""
    return time.monotonic() + op.budget_ms / 1000


def _raised(reply: Any) -> Any:
    if isinstance(reply, LeaseholdError):
        raise reply
    return reply


def _name(error: LeaseholdError, op: StoreOp | None) -> LeaseholdError:
    """Let the error name the resource."""
    if op is not None and not isinstance(op, Group):
        error.resource = error.resource or op.resource or None
    return error
