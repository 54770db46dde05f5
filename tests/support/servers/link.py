"""A connection that goes through the proxy: two sockets, and what is on its way between them."""

from __future__ import annotations

import socket
from collections import deque


class Stream:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, held: bool) -> None:
        self.source = source
        self.sink = sink
        self.held = held  # what comes waits here
        self.lost = False  # what comes goes nowhere
        self.ended = False  # nothing more comes
        self.waiting = bytearray()
        self.late: deque[bytes] = deque()  # what is delayed on its way here

    @property
    def empty(self) -> bool:
        """Whether nothing is on its way."""
        return not self.waiting and not self.late

    def receive(self) -> bytes:
        """What has come; nothing is the end, also when the other side broke off."""
        try:
            chunk = self.source.recv(65_536)
        except ConnectionError:
            chunk = b""
        self.ended = not chunk
        return chunk

    def send(self) -> None:
        """What may go and goes, and after the last byte the end."""
        if self.lost:
            self.waiting.clear()
        try:
            while self.waiting and not self.held:
                del self.waiting[: self.sink.send(self.waiting)]
            if self.ended and self.empty:
                self.sink.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:  # nobody listens any more
            self.lost = True
            self.waiting.clear()


class Link:
    """A client's connection to us, and ours to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = (client, server)
        for end in self.ends:
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests = Stream(client, server, held=False)
        self.replies = Stream(server, client, held=False)
        self.verdict: object = "pass"  # on the last request
        self.broken = False

    def reply(self, chunk: bytes) -> bytes:
        """What is sent on of a reply."""
        verdict, self.verdict = self.verdict, "pass"
        self.broken |= verdict == "cut_reply"
        return chunk * 2 if verdict == "double_reply" else chunk
