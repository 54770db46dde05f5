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

import psycopg
from psycopg import pq

from leasehold._core.light_typing import Any, NamedTuple

__all__ = ["Broken", "Refused", "Request", "Rows", "Session"]

FATAL = pq.ExecStatus.FATAL_ERROR
GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
BAD_CONNECTION = pq.ConnStatus.BAD
SQLSTATE = pq.DiagnosticField.SQLSTATE
MESSAGE = pq.DiagnosticField.MESSAGE_PRIMARY
READ_ONLY = "25006"
CHECK_AFTER = 0.5  # seconds without use, after which it is checked whether the server has closed the connection
READ, WRITE = select.POLLIN, select.POLLIN | select.POLLOUT


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


class Rows(NamedTuple):
    """The rows of one statement, each value as text."""

    rows: list[tuple[str | None, ...]]


class Request(NamedTuple):
    """One statement with values for $1, $2 and so on; or, without values, several statements in one text."""

    text: bytes
    values: Sequence[bytes | None] | None = None


class Session:
    """One connection. One caller uses it at a time."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection  # psycopg's: it ends with it
        self._pg = connection.pgconn
        self._pg.nonblocking = 1
        self._escaping = pq.Escaping(self._pg)
        self.busy = False  # in the middle of a request: never used again when that is not finished
        self.read_only = False  # the server takes no writes, or no longer: another one may
        self.used = time.monotonic()
        self._poll = select.poll()

    def quote(self, text: str) -> str:
        """A text as a literal of SQL."""
        return bytes(self._escaping.escape_literal(text.encode())).decode()

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
                    raise Broken("the server does not answer in time")
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
        pg = self._pg
        self.busy = True
        try:
            if request.values is None:
                pg.send_query(request.text)
            else:
                pg.send_query_params(request.text, request.values)
            while pg.flush():
                yield WRITE
                pg.consume_input()
            results = []
            while True:
                while pg.is_busy():
                    yield READ
                    pg.consume_input()
                result = pg.get_result()
                if result is None:
                    break
                results.append(result)
        except (OSError, psycopg.Error) as error:
            raise Broken(_line(error)) from error
        return self._finished(results)

    def _finished(self, results: list[Any]) -> list[Rows]:
        pg = self._pg
        for result in results:
            if result.status not in GOOD:
                state = (result.error_field(SQLSTATE) or b"").decode()
                message = (result.error_field(MESSAGE) or result.error_message or b"").decode("utf-8", "replace")
                if pg.status == BAD_CONNECTION or not state:
                    raise Broken(" ".join(message.split()), state)
                self.read_only |= state == READ_ONLY
                self._done()
                raise Refused(state, message)
        if pg.status == BAD_CONNECTION:
            raise Broken("the server closed the connection")
        self._done()
        return [Rows(_rows(result)) for result in results]

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
    ready: asyncio.Future[None] = loop.create_future()
    if seconds <= 0:
        raise Broken("the server does not answer in time")

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, wake)
    if events & select.POLLOUT:
        loop.add_writer(descriptor, wake)
    timer = loop.call_later(seconds, ready.cancel)
    try:
        await ready
    except asyncio.CancelledError:
        if timer.when() > loop.time():
            raise
        raise Broken("the server does not answer in time") from None
    finally:
        timer.cancel()
        loop.remove_reader(descriptor)
        loop.remove_writer(descriptor)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
