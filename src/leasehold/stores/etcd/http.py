"""HTTP/1.1 as etcd's gateway speaks it: a request as bytes, and a reply out of bytes. Nothing is sent or received here.

The gateway announces a short reply by its length; a long one, an error and a stream come in chunks.
"""

from __future__ import annotations

from leasehold._core.light_typing import NamedTuple

MOST_HEAD = 65_536  # bytes of a head; etcd's has about 300
MOST_BODY = 1 << 28
END = b"\r\n\r\n"


class NotHttp(Exception):
    """What arrived is no reply of HTTP/1.1, or one without an end that we could wait for."""


class Reply(NamedTuple):
    """``date``: the header as it was sent, or nothing. ``last``: the server closes the connection."""

    status: int
    body: bytes
    date: bytes = b""
    last: bool = False


def request(path: str, host: str, token: str, body: bytes) -> bytes:
    """A POST of JSON."""
    login = f"Authorization: {token}\r\n" if token else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{login}Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def stream_head(path: str, host: str, token: str) -> bytes:
    """A POST whose body follows in chunks, while the reply is read. The gateway, which is written in Go, allows that
    only on a connection that it closes afterwards: otherwise it reads the body to its end before it replies."""
    login = f"Authorization: {token}\r\n" if token else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{login}Content-Type: application/json\r\n"
        "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()


def chunk(body: bytes) -> bytes:
    """A part of the body of such a request."""
    return b"%x\r\n%s\r\n" % (len(body), body)


class Head:
    """The first line and the headers of a reply."""

    __slots__ = ("chunked", "date", "last", "length", "status")

    def __init__(self, head: bytes) -> None:
        if not head.startswith(b"HTTP/1.1 ") or not head[9:12].isdigit():
            raise NotHttp("it does not speak HTTP/1.1")
        self.status = int(head[9:12])
        lower = head.lower()
        self.date = _header(lower, b"\r\ndate:")
        self.last = _header(lower, b"\r\nconnection:") == b"close"
        self.chunked = _header(lower, b"\r\ntransfer-encoding:") == b"chunked"
        length = _header(lower, b"\r\ncontent-length:")
        if not self.chunked and not length.isdigit():
            raise NotHttp("it sent a reply without a length")
        self.length = 0 if self.chunked else int(length)
        if self.length > MOST_BODY:
            raise NotHttp("it sent a reply that is too long")


def _header(head: bytes, name: bytes) -> bytes:
    at = head.find(name)
    if at < 0:
        return b""
    at += len(name)
    end = head.find(b"\r\n", at)
    return head[at : end if end >= 0 else len(head)].strip()


class Replies:
    """What a server has sent on one connection so far. ``feed`` adds to it, ``reply`` takes the next whole reply, and
    ``lines`` those of a reply that has not ended, such as a stream of events."""

    __slots__ = ("_chunks", "_data", "_head")

    def __init__(self) -> None:
        self._data = b""
        self._head: Head | None = None
        self._chunks: Chunks | None = None

    def feed(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data

    @property
    def unread(self) -> bool:
        """Has something arrived that belongs to no request?"""
        return bool(self._data) or self._head is not None

    def reply(self) -> Reply | None:
        """None: it is not complete yet."""
        head = self._read_head()
        if head is None:
            return None
        if self._chunks is not None:
            self._data = self._chunks.feed(self._data)
            if not self._chunks.ended:
                return None
            body = bytes(self._chunks.body)
        elif len(self._data) < head.length:
            return None
        else:
            body, self._data = self._data[: head.length], self._data[head.length :]
        self._head = self._chunks = None
        return Reply(head.status, body, head.date, head.last)

    def lines(self) -> tuple[int, list[bytes], bool]:
        """The status (0: not here yet), the whole lines that have arrived since, and whether it has ended."""
        head = self._read_head()
        if head is None:
            return 0, [], False
        if self._chunks is None:  # it is short, and no stream
            whole = len(self._data) >= head.length
            return head.status, [self._data] if whole else [], whole
        self._data = self._chunks.feed(self._data)
        *lines, rest = bytes(self._chunks.body).split(b"\n")
        if self._chunks.ended:
            lines.append(rest)
            rest = b""
        self._chunks.body[:] = rest
        return head.status, [line for line in lines if line], self._chunks.ended

    def _read_head(self) -> Head | None:
        if self._head is None:
            at = self._data.find(END)
            if at < 0:
                if len(self._data) > MOST_HEAD:
                    raise NotHttp("it does not speak HTTP/1.1")
                return None
            self._head = Head(self._data[: at + 2])
            self._data = self._data[at + 4 :]
            self._chunks = Chunks() if self._head.chunked else None
        return self._head


class Chunks:
    """A body in chunks, each behind its length, and trailers behind the last one."""

    __slots__ = ("body", "ended")

    def __init__(self) -> None:
        self.body = bytearray()
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """What is left: the beginning of a chunk, or what follows the end."""
        at = 0
        while not self.ended:
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                break
            start = line_end + 2
            length = _length(data[at:line_end])
            if not length:
                end = data.find(END, line_end)  # behind the trailers; without any it begins right here
                if end < 0:
                    break
                self.ended = True
                return data[end + 4 :]
            if len(self.body) + length > MOST_BODY:
                raise NotHttp("it sent a reply that is too long")
            if len(data) < start + length + 2:
                break
            self.body += data[start : start + length]
            at = start + length + 2
        return data[at:]


def _length(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise NotHttp("it sent a chunk without a length") from None
