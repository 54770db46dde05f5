"""A network between clients and a server that can be made bad: slow, deaf, cut or silent."""

from __future__ import annotations

import heapq
import math
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Literal, Self

from tests.support.servers.link import Link, Stream
from tests.support.servers.process import reserve
from tests.support.waiting import PATIENCE

# What becomes of a request: it passes; its reply is lost, or waits; it waits itself; the connection breaks in place of
# its reply, or before the server hears of it; its reply comes twice. Bytes are the reply, and the server hears nothing.
Verdict = Literal["pass", "drop_reply", "hold_reply", "hold", "cut_reply", "cut_request", "double_reply"] | bytes


class Proxy:
    """Passes everything on, from a port of its own to the server's, until it is told otherwise.

    ``on_request`` is shown each chunk that a client sends, and says what becomes of it: as long as a client waits for
    one reply before it sends more, that is one request.
    """

    def __init__(self, server_port: int, on_request: Callable[[bytes], Verdict] | None = None) -> None:
        self.on_request = on_request
        self.count = 0  # connections made
        self._server = ("127.0.0.1", server_port)
        self._holding_requests = self._holding_replies = self._silent = False
        self._drops: float = 0
        self._cuts: float = 0
        self._delays = (0.0, 0.0)
        self._number = 0  # of chunks that were delayed
        self._late: list[tuple[float, int, Link, Stream]] = []  # a heap: when the next chunk of a stream arrives
        self._links: list[Link] = []
        self._forgotten: list[socket.socket] = []
        self._listener = reserve()
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._orders: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._bell, self._subscriber = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._subscriber, selectors.EVENT_READ, self._obey)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._open = True
        self._thread.start()
        self.accept()

    # ------------------------------------------------------------ making it bad

    def hold_requests(self) -> None:
        """What clients send waits here until ``release``; then it is delivered, even if they are gone by then."""
        self._order(partial(self._hold, requests=True))

    def hold_replies(self) -> None:
        """What the server sends waits here until ``release``."""
        self._order(partial(self._hold, replies=True))

    def delay(self, requests: float = 0.0, replies: float = 0.0) -> None:
        """What clients or the server send from now on arrives so many seconds later, in its order."""
        self._delays = (requests, replies)

    def release(self) -> None:
        """A good network again: what waits is delivered. What was dropped stays so, and so do silent connections."""
        self._order(self._release)

    def drop_replies(self, count: int | None = None) -> None:
        """The next requests (all, without a count) reach the server; nothing comes back on their connections."""
        self._drops = math.inf if count is None else count

    def cut_replies(self, count: int) -> None:
        """The next requests reach the server; in place of each reply the connection is closed. A client sees that at
        once, and needs no timeout."""
        self._cuts = count

    def cut(self) -> None:
        """Close every connection."""
        self._order(self._cut)

    def refuse(self) -> None:
        """No new connections; those that are there stay."""
        self._order(self._refuse)

    def accept(self) -> None:
        """New connections are welcome again."""
        self._order(self._accept)

    def blackhole(self) -> None:
        """A firewall forgets every connection: nothing goes through and nobody is told. New ones fare no better."""
        self._order(self._forget)

    def settle(self) -> None:
        """What clients have sent until now was seen by ``on_request``, and is with the server unless it is held."""
        for _ in range(2):  # the first may be obeyed before what was ready together with it
            self._order(lambda: None)

    @property
    def waiting(self) -> int:
        """Bytes that wait here, in both directions."""
        streams = [stream for link in list(self._links) for stream in (link.requests, link.replies)]
        return sum(len(stream.waiting) + sum(map(len, list(stream.late))) for stream in streams)

    def close(self) -> None:
        """Close everything."""
        if not self._open:
            return
        self._order(self._close)
        self._thread.join(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    # ------------------------------------------------------------ the thread, which alone touches connections

    def _order(self, change: Callable[[], None]) -> None:
        done: Future[None] = Future()
        self._orders.append((change, done))
        self._bell.send(b"!")
        done.result(PATIENCE)

    def _run(self) -> None:
        while self._open:
            pause = max(0.0, self._late[0][0] - time.monotonic()) if self._late else None
            for key, events in self._selector.select(pause):
                key.data(events)
            self._deliver()
        for one in (self._bell, self._subscriber, self._selector):
            one.close()

    def _obey(self, _events: int) -> None:
        self._subscriber.recv(1)
        change, done = self._orders.popleft()
        change()
        done.set_result(None)

    def _welcome(self, _events: int) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # it did not wait
            return
        self.count += 1
        if self._silent:
            self._forgotten.append(client)
            return
        try:
            server = self._connect()
        except OSError:
            client.close()
            return
        link = Link(client, server)
        self._links.append(link)
        link.requests.held, link.replies.held = self._holding_requests, self._holding_replies
        self._settle(link)

    def _connect(self) -> socket.socket:
        return socket.create_connection(self._server, PATIENCE)

    def _serve(self, link: Link, stream: Stream, events: int) -> None:
        if link not in self._links:  # closed a moment ago
            return
        if events & selectors.EVENT_READ:
            chunk = stream.receive()
            if chunk:
                chunk = self._judge(link, chunk) if stream is link.requests else link.reply(chunk)
            self._send_on(link, stream, chunk)
        if link.broken:
            self._links.remove(link)
            self._drop(link.ends)
        else:
            self._settle(link)

    def _send_on(self, link: Link, stream: Stream, chunk: bytes) -> None:
        delay = self._delays[stream is link.replies]
        if chunk and (delay or stream.late):
            stream.late.append(chunk)
            self._number += 1
            heapq.heappush(self._late, (time.monotonic() + delay, self._number, link, stream))
        else:
            stream.waiting += chunk

    def _deliver(self) -> None:
        """What was delayed long enough has arrived."""
        while self._late and self._late[0][0] <= time.monotonic():
            _, _, link, stream = heapq.heappop(self._late)
            if link in self._links:
                stream.waiting += stream.late.popleft()
                self._settle(link)

    def _judge(self, link: Link, chunk: bytes) -> bytes:
        """What is sent on."""
        verdict = self.on_request(chunk) if self.on_request else "pass"
        if self._drops > 0:
            self._drops -= 1
            verdict = "drop_reply"
        if self._cuts > 0:
            self._cuts -= 1
            verdict = "cut_reply"
        link.replies.lost |= verdict == "drop_reply"
        link.requests.held |= verdict == "hold"
        link.replies.held |= verdict == "hold_reply"
        link.broken |= verdict == "cut_request"
        link.verdict = verdict
        if isinstance(verdict, bytes):
            link.replies.waiting += verdict
            return b""
        return chunk

    def _settle(self, link: Link) -> None:
        """Send what may go, then watch for what can come."""
        link.requests.send()
        link.replies.send()
        if link.replies.ended and link.replies.empty:  # the server has closed
            self._links.remove(link)
            self._drop(link.ends)
            return
        for source, sink in ((link.requests, link.replies), (link.replies, link.requests)):
            events = 0 if source.ended else selectors.EVENT_READ
            if sink.waiting and not sink.held:
                events |= selectors.EVENT_WRITE
            self._watch(source.source, events, partial(self._serve, link, source))

    def _watch(self, one: socket.socket, events: int, call: Callable[[int], None]) -> None:
        key = self._selector.get_map().get(one)
        if events == (key.events if key else 0):
            return
        if key:
            self._selector.unregister(one)
        if events:
            self._selector.register(one, events, call)

    def _drop(self, ends: tuple[socket.socket, ...]) -> None:
        for end in ends:
            self._watch(end, 0, self._obey)
            end.close()

    # ------------------------------------------------------------ orders

    def _hold(self, requests: bool = False, replies: bool = False) -> None:
        self._holding_requests |= requests
        self._holding_replies |= replies
        for link in self._links:
            link.requests.held |= requests
            link.replies.held |= replies

    def _release(self) -> None:
        self._holding_requests = self._holding_replies = self._silent = False
        self._drops = self._cuts = 0
        self._delays = (0.0, 0.0)
        self._late.clear()
        for link in list(self._links):
            for stream in (link.requests, link.replies):
                stream.held = False
                stream.waiting += b"".join(stream.late)
                stream.late.clear()
            self._settle(link)

    def _cut(self) -> None:
        for link in self._links:
            self._drop(link.ends)
        self._drop(tuple(self._forgotten))
        self._links, self._forgotten = [], []

    def _refuse(self) -> None:
        self._watch(self._listener, 0, self._welcome)
        self._listener.shutdown(socket.SHUT_RDWR)  # it keeps the port, and does not listen

    def _accept(self) -> None:
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._watch(self._listener, selectors.EVENT_READ, self._welcome)

    def _forget(self) -> None:
        self._silent = True
        for link in self._links:
            for end in link.ends:
                self._watch(end, 0, self._obey)
                self._forgotten.append(end)
        self._links = []

    def _close(self) -> None:
        self._cut()
        self._drop((self._listener,))
        self._open = False
