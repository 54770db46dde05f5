"""A thread's connection to all nodes of a Redlock: one poll over their links, and no thread for each."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Sequence

from leasehold._core.driver import drive
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold.errors import LeaseholdError
from leasehold.stores.redis import protocol
from leasehold.stores.redis.protocol import pack
from leasehold.stores.redis.redlock import commands
from leasehold.stores.redis.redlock.link import Exchange, Link
from leasehold.stores.redis.redlock.rounds import Answer, Leave, Round

if TYPE_CHECKING:
    from leasehold.stores.redis.redlock.store import RedlockStore

CHECK_SECONDS = 0.02  # for a check from the background to end
LAST_SECONDS = 0.25  # for what must still arrive when the connection is closed


class RedlockConnection:
    """Implements ``_core.ports.Connection``. One thread uses it at a time."""

    address = ""

    def __init__(
        self,
        store: RedlockStore,
        forget: Callable[[RedlockConnection], object] = lambda connection: None,
        counts: bool = True,
    ) -> None:
        self._store = store
        self._forget = forget
        self._links = [Link(node, counts) for node in store.nodes]
        self._in_use = threading.RLock()
        self._closed = threading.Event()

    def execute(self, op: StoreOp) -> Reply:
        try:
            reply: Reply = self._drive(self._store.rounds.execute(op))
            return reply
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise

    def execute_many(self, many: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        outcomes: list[Reply | LeaseholdError] = self._drive(self._store.rounds.execute_many(many))
        return outcomes

    def next_push(self, seconds: float) -> Push | None:
        """Nothing is pushed; ``close`` ends the wait. What must still arrive goes on meanwhile."""
        give_up = time.monotonic() + seconds
        with self._in_use:
            self._finish(give_up)
        self._closed.wait(max(give_up - time.monotonic(), 0))
        return None

    def _finish(self, give_up: float) -> None:
        """Read what is owed, so that withdrawals are known to have arrived, at the latest until then."""
        while any(link.owes() for link in self._links) and not self._closed.is_set():
            left = give_up - time.monotonic()
            if left <= 0 or not self._poll(left):
                break

    def _drive(self, flow: Any) -> Any:
        with self._in_use:
            return drive(flow, self.perform)

    def perform(self, request: Round | Leave) -> Sequence[Answer | None]:
        """What a flow has requested. After an interrupt no link is used again."""
        try:
            return self._leave(request) if isinstance(request, Leave) else self._round(request)
        except LeaseholdError:  # raised by the flow's own rule: the links are as they should be
            raise
        except BaseException:
            for link in self._links:
                link.reset()
            raise

    def _round(self, request: Round) -> list[Answer | None]:
        give_up = time.monotonic() + request.seconds
        exchanges = self._submit(request.commands)
        try:
            while not request.enough([one.answer if one is not None else None for one in exchanges]):
                left = give_up - time.monotonic()
                if left <= 0 or all(one is None or one.answer is not None for one in exchanges) or not self._poll(left):
                    break
        finally:
            answers = [
                link.abandon(one) if one is not None else None for link, one in zip(self._links, exchanges, strict=True)
            ]
        return answers

    def _submit(self, batches: Sequence[Any]) -> list[Exchange | None]:
        """Nodes that get the same get the same bytes."""
        packed: dict[int, bytes] = {}
        exchanges: list[Exchange | None] = []
        kept = []  # so that no two of them get one id
        for link, requested in zip(self._links, batches, strict=True):
            if requested is None:
                exchanges.append(None)
                continue
            batch = link.node.taught(requested)
            if id(batch) not in packed:
                packed[id(batch)] = b"".join(map(pack, batch))
            kept.append(batch)
            exchanges.append(link.submit(batch, packed[id(batch)]))
        return exchanges

    def _leave(self, request: Leave) -> Sequence[Answer | None]:
        """Over an open link they leave at once. Nobody polls the others after this: they are for the background."""
        until = time.monotonic() + request.seconds
        for place, op in enumerate(request.withdrawals):
            if op is None:
                continue
            later = self._store.withdrawals.later(place, op, until)
            link, command = self._links[place], protocol.command(op)
            if link.is_open():  # one that is late may be about to reply that it has lost its scripts
                batch = [commands.with_text(command)] if link.is_late() else link.node.taught([command])
                link.submit(batch, pack(batch[0]), later)
                self._store.withdrawals.watch(self)
            else:
                later()
        return ()

    def settled(self) -> bool:
        """True when nothing is under way any more that must arrive. Called from the background, while the connection
        may be idle: nobody else would notice that it broke."""
        in_use = self._in_use
        if not in_use.acquire(blocking=False):
            return False
        try:
            for link in self._links:
                link.check()
            self._poll(0.0)  # a link that is being opened goes on
            return not any(link.owes() for link in self._links)
        finally:
            in_use.release()

    def _poll(self, seconds: float) -> bool:
        """Let every link go on that can. False when there was nothing, or nothing is expected any more."""
        poll = select.poll()
        by_fileno: dict[int, Link] = {}
        ready = False
        for link in self._links:
            events, fileno = link.events(), link.fileno()
            if events and fileno >= 0:
                poll.register(fileno, events)
                by_fileno[fileno] = link
                ready = ready or link.pending()
        found = poll.poll(0 if ready else seconds * 1000)
        for fileno, _ in found:
            by_fileno[fileno].go_on()
        for link in by_fileno.values():
            if link.pending():
                link.go_on()
        return bool(found) or ready

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """From any thread. What must still arrive gets a moment, unless another thread is using the connection: that
        one finds it broken."""
        self._forget(self)
        in_use = self._in_use
        if not in_use.acquire(timeout=CHECK_SECONDS):
            self._closed.set()
            for link in self._links:
                link.hang_up()
            return
        try:
            self._finish(time.monotonic() + LAST_SECONDS)
            self._closed.set()
            for link in self._links:
                link.close()
        finally:
            in_use.release()

    def forked(self) -> None:
        """In the child: no other thread uses it here."""
        self._in_use = threading.RLock()
        for link in self._links:
            link.forked()
