"""One connection to the server, and one request at a time on it.

psycopg connects, with its login, TLS and several hosts; requests are sent through its wrapper of libpq, so that every
wait ends in time, on a thread and on an event loop alike.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b

import psycopg
from psycopg import pq

from leasehold._core.light_typing import Any, NamedTuple, TypeAlias

__all__ = ["Broken", "Refused", "Request", "Rows", "Session", "Statement"]

FATAL = pq.ExecStatus.FATAL_ERROR
SYNC = pq.ExecStatus.PIPELINE_SYNC
GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
BAD_CONNECTION = pq.ConnStatus.BAD
SQLSTATE = pq.DiagnosticField.SQLSTATE
MESSAGE = pq.DiagnosticField.MESSAGE_PRIMARY
READ_ONLY = "25006"
CHECK_AFTER = 0.5  # seconds without use, after which it is checked whether the server has closed the connection
UNPREPARED = ("26000", "42P05", "0A000")
LATE = "the server does not answer in time"
READ, WRITE = 1, 5  # POLLIN, and POLLIN | POLLOUT: Windows, which imports this as well, has no such names


class Broken(Exception):
    """The connection is unusable, and the request may have been executed. ``sqlstate`` is what the server said before
    it closed the connection, if it said anything."""

    def __init__(self, message: str, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class Refused(Exception):
    """The server answered with an error, and what the request has done is undone."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class Unprepared(Exception):
    """A statement that was prepared is gone, or is another one's: a pooler shares its sessions, or the table was
    altered. Nothing was done, and the session prepares nothing from now on."""


class Rows(NamedTuple):
    """The rows of one statement, each value as text."""

    rows: list[tuple[str | None, ...]]


Statement: TypeAlias = "tuple[bytes, Sequence[bytes | None]]"  # a text, and values for $1, $2 and so on


class Request:
    """Statements that are sent together: one round trip. When one is refused, those behind it are not executed. They
    are prepared, unless the plan of the only one depends on its values: see ``renew_many``."""

    __slots__ = ("prepare", "statements")

    def __init__(self, *statements: Statement, prepare: bool = True) -> None:
        self.statements = statements
        self.prepare = prepare


class Session:
    """One connection. One caller uses it at a time."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection  # psycopg's: it ends with it
        self._pg = connection.pgconn
        self._pg.nonblocking = 1
        self.busy = False  # in the middle of a request: never used again when that is not finished
        self.prepares = False  # statements with values, at the server: not behind a pooler, which shares its sessions
        self._prepared: dict[bytes, bytes] = {}  # the names of those
        self.read_only = False  # the server takes no writes, or no longer: another one may
        self.used = time.monotonic()
        self._poll = select.poll()

    def usable(self) -> bool:
        """False when its last request was not finished, or the server has closed it."""
        if self.busy or self._pg.status == BAD_CONNECTION:
            return False
        now = time.monotonic()
        if now - self.used > CHECK_AFTER:
            try:
                if _readable(self._pg.socket):
                    self._pg.consume_input()
            except (OSError, psycopg.Error):
                return False
            self.used = now
        return bool(self._pg.status != BAD_CONNECTION) and self.idle

    @property
    def idle(self) -> bool:
        """True outside a transaction."""
        return bool(self._pg.transaction_status == pq.TransactionStatus.IDLE)

    # ------------------------------------------------------------ a request

    def perform(self, request: Request, give_up: float) -> list[Rows]:
        """On the calling thread."""
        exchange = self._exchange(request)
        try:
            events = next(exchange)
            while True:
                left = give_up - time.monotonic()
                poll = self._poll
                poll.register(self._pg.socket, events)
                if left <= 0 or not poll.poll(math.ceil(left * 1000)):
                    raise Broken(LATE)
                events = next(exchange)
        except StopIteration as end:
            results: list[Rows] = end.value
            return results

    async def perform_async(self, request: Request, give_up: float) -> list[Rows]:
        """In the running task."""
        exchange = self._exchange(request)
        loop = asyncio.get_running_loop()
        try:
            events = next(exchange)
            while True:
                await _ready(loop, self._pg.socket, events, give_up - time.monotonic())
                events = next(exchange)
        except StopIteration as end:
            results: list[Rows] = end.value
            return results

    def _exchange(self, request: Request) -> Generator[int, None, list[Rows]]:
        """Yields what to wait for on the socket."""
        statements = request.statements
        self.busy = True
        try:
            ready = not self.prepares or not request.prepare or statements[0][0] in self._prepared
            if ready and len(statements) == 1:
                self._send(*statements[0])
                results = yield from self._results(1)
                prepared: list[bytes | None] = [None]
            else:
                results, prepared = yield from self._pipeline(statements)
        except (OSError, psycopg.Error) as error:
            raise Broken(_line(error)) from error
        self._check(results)
        return [Rows(_rows(result)) for result, text in zip(results, prepared, strict=True) if text is None]

    def _pipeline(self, statements: Sequence[Statement]) -> Generator[int, None, tuple[list[Any], list[bytes | None]]]:
        """Several statements in one round trip; and for each result the text that was only prepared. That is done right
        before its first use: BEGIN must come before anything that reads the table."""
        pg = self._pg
        prepared: list[bytes | None] = []
        pg.enter_pipeline_mode()
        for text, values in statements:
            if self.prepares and text not in self._prepared:
                self._prepared[text] = prepared_name(text)
                pg.send_prepare(self._prepared[text], text)
                prepared.append(text)
            self._send(text, values)
            prepared.append(None)
        pg.pipeline_sync()
        results = yield from self._results(len(prepared) + 1)
        pg.exit_pipeline_mode()
        for new, result in zip(prepared, results, strict=False):
            if new is not None and result.status not in GOOD:
                del self._prepared[new]
        return results[:-1], prepared

    def _send(self, text: bytes, values: Sequence[bytes | None]) -> None:
        name = self._prepared.get(text)
        if name is None:
            self._pg.send_query_params(text, values)
        else:
            self._pg.send_query_prepared(name, values)

    def _results(self, count: int) -> Generator[int, None, list[Any]]:
        """The result of each of so many commands."""
        pg = self._pg
        while pg.flush():
            yield WRITE
            pg.consume_input()
        results: list[Any] = []
        while True:
            while pg.is_busy():
                yield READ
                pg.consume_input()
            result = pg.get_result()
            if result is not None:
                results.append(result)
            if len(results) == count and (result is None or result.status == SYNC):
                return results
            if pg.status == BAD_CONNECTION and result is None:
                return results

    def _check(self, results: list[Any]) -> None:
        """Raise what the first of them that failed says. The request is finished otherwise."""
        pg = self._pg
        for result in results:
            if result.status in GOOD:
                continue
            state = (result.error_field(SQLSTATE) or b"").decode()
            message = (result.error_field(MESSAGE) or result.error_message or b"").decode("utf-8", "replace")
            if pg.status == BAD_CONNECTION or not state:
                raise Broken(" ".join(message.split()), state)
            self.read_only |= state == READ_ONLY
            self._done()
            if self.prepares and state in UNPREPARED:
                self.prepares = False
                self._prepared.clear()
                raise Unprepared(state, message)
            raise Refused(state, message)
        if pg.status == BAD_CONNECTION:
            raise Broken("the server closed the connection")
        self._done()

    def _done(self) -> None:
        self.busy = False
        self.used = time.monotonic()

    # ------------------------------------------------------------ pushes

    @property
    def socket(self) -> int:
        return int(self._pg.socket)

    def received(self) -> list[tuple[str, str]]:
        """The channel and the payload of each notification that has arrived. Raises Broken."""
        try:
            self._pg.consume_input()
            found = []
            while (notification := self._pg.notifies()) is not None:
                found.append((notification.relname.decode(), notification.extra.decode()))
        except (OSError, psycopg.Error) as error:
            raise Broken(_line(error)) from error
        return found

    @property
    def process(self) -> int:
        """The number of the server's process, as the server told when the connection was made. A pooler between us
        tells one of its own."""
        return int(self._pg.backend_pid)

    # ------------------------------------------------------------ its end

    def close(self) -> None:
        self._pg.finish()

    def close_copy(self) -> None:
        """In a forked child: nothing is sent. A call that was forked in its middle may still use it, and fails: no
        other socket gets the number of this one."""
        inherited.append(self.connection)
        with suppress(OSError, psycopg.Error):  # it was closed already
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nowhere, self._pg.socket, inheritable=False)
            os.close(nowhere)


inherited: list[Any] = []  # connections of the parent: to end one would end the parent's


@lru_cache(maxsize=256)
def prepared_name(text: bytes) -> bytes:
    """The name under which a session has this statement: the same in every session."""
    return b"leasehold_" + blake2b(text, digest_size=8).hexdigest().encode()


def _rows(result: Any) -> list[tuple[str | None, ...]]:
    width = range(result.nfields)
    value = result.get_value
    return [
        tuple([None if (found := value(row, column)) is None else found.decode() for column in width])
        for row in range(result.ntuples)
    ]


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


async def _ready(loop: asyncio.AbstractEventLoop, descriptor: int, events: int, seconds: float) -> None:
    ready: asyncio.Future[bool] = loop.create_future()
    if seconds <= 0:
        raise Broken(LATE)

    def wake(in_time: bool = True) -> None:
        if not ready.done():
            ready.set_result(in_time)

    loop.add_reader(descriptor, wake)
    if events & select.POLLOUT:
        loop.add_writer(descriptor, wake)
    timer = loop.call_later(seconds, wake, False)
    try:
        if not await ready:
            raise Broken(LATE)
    finally:
        timer.cancel()
        loop.remove_reader(descriptor)
        loop.remove_writer(descriptor)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
