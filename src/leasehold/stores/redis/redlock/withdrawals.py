"""Withdrawals that a node has not confirmed. They are repeated in a thread, which exists while there are any, until
the node confirms them or the lease would be over anyway."""

from __future__ import annotations

import threading
import time
import weakref

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Withdraw
from leasehold.errors import LeaseholdError
from leasehold.observe import log
from leasehold.stores.redis import protocol
from leasehold.stores.redis.redlock.answers import Answer, Round
from leasehold.stores.redis.redlock.commands import Batch
from leasehold.stores.redis.redlock.rounds import withdrawal_again

if TYPE_CHECKING:
    from leasehold.stores.redis.redlock.connection import RedlockConnection
    from leasehold.stores.redis.redlock.store import RedlockStore

MOST = 10_000  # of one node: beyond that the oldest are left to expire
BATCH = 250  # in one write
TRY_SECONDS = 0.5
LINGER = 1.0  # seconds without work after which the thread ends: contention brings them one after the other
FIRST_PAUSE, LAST_PAUSE = 0.02, 1.0


class Withdrawals:
    """Those of one store."""

    def __init__(self, store: RedlockStore) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._open: list[dict[Withdraw, float]] = [{} for _ in store.nodes]  # for each node: until when
        self._owing: weakref.WeakSet[RedlockConnection] = weakref.WeakSet()  # over which some have left
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._closed = False

    def add(self, place: int, op: Withdraw, until: float) -> None:
        """This may not have arrived at that node."""
        with self._lock:
            waiting = self._open[place]
            waiting[withdrawal_again(op)] = until
            if len(waiting) > MOST:
                del waiting[next(iter(waiting))]
            self._start()

    def watch(self, connection: RedlockConnection) -> None:
        """Withdrawals have left over this connection: see to it that they arrive."""
        if connection not in self._owing:
            with self._lock:
                self._owing.add(connection)
                self._start()

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            thread = threading.Thread(target=self._run, name="leasehold-withdrawals", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started now; they expire, or go with the next one
                return
            self._thread = thread

    def _run(self) -> None:
        pause, idle_since = FIRST_PAUSE, time.monotonic()
        connection = self._store.own_connection()
        try:
            while not self._closed:
                try:
                    self._check_owing()
                    pause = FIRST_PAUSE if self._try(connection) else min(2 * pause, LAST_PAUSE)
                except Exception as error:  # a bug here must not end the others
                    log.warn("withdrawals on a Redlock had an error and go on: %r", error, error=error)
                with self._lock:
                    if any(self._open) or self._owing:
                        idle_since = time.monotonic()
                    if time.monotonic() - idle_since > LINGER:
                        self._thread = None
                        return
                self._wake.wait(pause)
        finally:
            connection.close()

    def _check_owing(self) -> None:
        """A connection that is used meanwhile is put back by its own thread."""
        with self._lock:
            owing, self._owing = list(self._owing), weakref.WeakSet()
        for connection in owing:
            if not connection.settled():
                with self._lock:
                    self._owing.add(connection)

    def _try(self, connection: Any) -> bool:
        """Send what is left. True if any node confirmed some."""
        now = time.monotonic()
        waiting: list[list[Withdraw]] = []
        with self._lock:
            for some in self._open:
                for op in [op for op, until in some.items() if until < now]:
                    del some[op]
                waiting.append(list(some)[:BATCH])
        batches = [Batch([protocol.command(op) for op in some]) if some else None for some in waiting]
        confirmed = False

        def take(place: int, answer: Answer) -> bool:
            nonlocal confirmed
            if not isinstance(answer.outcome, LeaseholdError):
                for op, reply in zip(waiting[place], answer.outcome, strict=True):
                    if not isinstance(reply, Exception):
                        confirmed = True
                        with self._lock:
                            self._open[place].pop(op, None)
            return False

        if any(batches):
            connection.perform(Round(batches, TRY_SECONDS, take))
        return confirmed

    def close(self) -> None:
        """What is left gets a last try."""
        self._closed = True
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * TRY_SECONDS)
        if any(self._open):
            connection = self._store.own_connection()
            try:
                self._try(connection)
            finally:
                connection.close()

    def forked(self) -> None:
        """In the child: they are the parent's."""
        self.__init__(self._store)  # type: ignore[misc]  # everything is as at the beginning
