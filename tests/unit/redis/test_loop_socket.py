"""The socket of an event loop, when a signal handler raises in the middle of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leasehold.stores.redis.loop_socket import AsyncRedisSocket
from leasehold.stores.redis.sockets import Broken, NotSent


class Transport(asyncio.Transport):
    """Keeps what is written. ``raising``: a handler raises right after the write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.raising = False
        self.closed = False
        self.owner: Any = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """As the transport of a socket, which sends at once."""
        self.written.append(bytes(data))
        if self.raising:
            raise SystemExit(9)

    def is_closing(self) -> bool:
        """After abort."""
        return self.closed

    def abort(self) -> None:
        """The loop calls connection_lost in its next turn."""
        self.closed = True
        asyncio.get_running_loop().call_soon(self.owner.connection_lost, None)


def opened() -> tuple[AsyncRedisSocket, Transport]:
    """A socket over a transport that keeps what is written."""
    socket = AsyncRedisSocket(lambda _: None, lambda _: None, lambda _: None, 60)
    transport = Transport()
    transport.owner = socket
    socket.connection_made(transport)
    return socket, transport


async def test_replies_come_in_the_order_of_the_requests() -> None:
    """One is written at once, others in one write at the end of the turn."""
    socket, transport = opened()
    give_up = asyncio.get_running_loop().time() + 60
    replies = [socket.request(text, give_up) for text in (b"a", b"b", b"c")]
    await asyncio.sleep(0)
    assert transport.written == [b"a", b"bc"]
    socket.data_received(b"+1\r\n+2\r\n+3\r\n")
    assert [await reply for reply in replies] == [b"1", b"2", b"3"]


async def test_a_handler_that_raises_after_a_write() -> None:
    """Nobody knows whether the request arrived. Its reply must not become that of the next one."""
    socket, transport = opened()
    give_up = asyncio.get_running_loop().time() + 60
    transport.raising = True
    with pytest.raises(SystemExit):
        socket.request(b"claim", give_up)
    assert not socket.usable()
    with pytest.raises(Broken):
        await socket.request(b"release", give_up)
    assert transport.written == [b"claim"]


async def test_a_handler_that_raises_in_a_common_write() -> None:
    """The requests that leave together are in doubt together."""
    socket, transport = opened()
    give_up = asyncio.get_running_loop().time() + 60
    first = socket.request(b"a", give_up)
    second = socket.request(b"b", give_up)
    transport.raising = True
    with pytest.raises(SystemExit):
        socket._flush()
    assert not socket.usable()
    for reply in (first, second):
        with pytest.raises(Broken) as raised:
            await reply
        assert not isinstance(raised.value, NotSent)


async def test_a_handler_that_raises_while_replies_are_read() -> None:
    """What was read with them is lost, so the socket is not used again."""
    socket, _ = opened()
    give_up = asyncio.get_running_loop().time() + 60
    reply = socket.request(b"a", give_up)

    class Interrupted:
        """A future whose result comes together with a signal."""

        def __init__(self) -> None:
            self.asked = 0

        def done(self) -> bool:
            self.asked += 1
            if self.asked == 1:
                raise SystemExit(9)
            return True

    socket._waiting[0] = (Interrupted(), give_up, 0.0)  # type: ignore[assignment]  # as far as it is used
    with pytest.raises(SystemExit):
        socket.data_received(b"+1\r\n")
    assert not socket.usable()
    reply.cancel()
