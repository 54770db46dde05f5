"""The client of a request, as its handler sees it: when a newer owner waits, one that hangs is one that has gone.

A worker that is frozen in the middle of its request would keep newer owners out for as long as its connection lives.
So from the moment a request is *overtaken* its handler may wait for the client ``patience`` seconds in all. Then a
body that is not complete ends in ``http.disconnect``, and a response that is not taken in an OSError, as ASGI has it
for a client that has gone. Only what waits for the client ends so: a handler that is at work is left alone, and is
inside until it returns, whatever it makes of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
T = TypeVar("T")


class ASGIClient:
    """``receive`` and ``send`` of one request, and the hook that says that a newer owner waits for it to end."""

    def __init__(self, receive: Receive, send: Send, patience: float) -> None:
        self._receive, self._send, self._left = receive, send, patience
        self._loop = asyncio.get_running_loop()
        self._limits: set[asyncio.Timeout] = set()  # an application may receive and send at once
        self._overtaken: float | None = None
        self._complete = self._gone = False

    def overtaken(self) -> None:
        """From any thread."""
        call_soon(self._loop, self._hurry)

    async def receive(self) -> Message:
        """When the whole body is here, the application listens whether the client goes. That may take as long as it
        takes."""
        if self._complete:
            return await self._receive()
        if not self._gone:
            try:
                message = await self._bounded(self._receive)
                self._complete = not message.get("more_body", False)
                return message
            except _ClientHangs:
                self._gone = True
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Servers wait here when a client takes nothing any more."""
        await self._bounded(lambda: self._send(message))

    def _hurry(self) -> None:
        if self._overtaken is None:
            self._overtaken = self._loop.time()
            for limit in self._limits:
                limit.reschedule(self._overtaken + self._left)

    async def _bounded(self, call: Callable[[], Awaitable[T]]) -> T:
        """Work between two waits does not count, many short waits do: a client that sends byte by byte ends, too."""
        began = self._loop.time()
        try:
            async with asyncio.timeout_at(None if self._overtaken is None else began + self._left) as limit:
                self._limits.add(limit)
                try:
                    return await call()
                finally:
                    self._limits.discard(limit)
        except TimeoutError as error:
            if not limit.expired():  # the server's own
                raise
            raise _ClientHangs("a newer owner waits for this request to end, and its client hangs") from error
        finally:
            if self._overtaken is not None:
                self._left -= self._loop.time() - max(began, self._overtaken)


class _ClientHangs(ConnectionAbortedError):
    """The kind of error that servers raise for a client that has gone."""


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call it on that loop, from any thread."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop has been closed, and nobody waits on it any more
        return
