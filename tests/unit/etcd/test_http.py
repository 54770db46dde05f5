"""HTTP/1.1 out of bytes: replies by their length and in chunks, however they are cut."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.stores.etcd.http import NotHttp, Replies, Reply, chunk, request, stream_head
from tests.support.tables import each

TRAILERS = [b"", b"T: x\r\n", b"T: x\r\nU: y\r\n"]
DATE = b"tue, 17 nov 2026 14:56:31 gmt"
HEAD = b"HTTP/1.1 200 OK\r\nDate: Tue, 17 Nov 2026 14:56:31 GMT\r\n"


def by_length(body: bytes) -> bytes:
    """A reply that is announced by its length."""
    return HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def in_chunks(body: bytes, size: int, trailer: bytes = b"") -> bytes:
    """A reply in chunks of at most this size."""
    parts = [chunk(body[at : at + size]) for at in range(0, len(body), size)]
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


SHORT = st.binary(max_size=20).map(lambda body: (body, by_length(body)))
LONG = st.tuples(st.binary(max_size=20), st.integers(1, 5), st.sampled_from(TRAILERS)).map(
    lambda one: (one[0], in_chunks(*one))
)


@given(st.lists(st.one_of(SHORT, LONG), max_size=4), st.integers(0, 1000))
def test_replies_are_the_same_however_they_are_cut(sent: list[tuple[bytes, bytes]], seed: int) -> None:
    """One after the other, and nothing is left."""
    chance = random.Random(seed)
    data = b"".join(raw for _, raw in sent)
    replies, found = Replies(), []
    while data:
        size = chance.randint(1, 12)
        replies.feed(data[:size])
        data = data[size:]
        while (reply := replies.reply()) is not None:
            found.append(reply)
    assert found == [Reply(200, body, DATE) for body, _ in sent]
    assert not replies.unread


def test_lines_of_a_reply_that_goes_on() -> None:
    """Each is given once, when it is whole."""
    replies = Replies()
    assert replies.lines() == (0, [], False)
    replies.feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"one\ntw"))
    assert replies.lines() == (200, [b"one"], False)
    replies.feed(chunk(b"o\n\nthree\n"))
    assert replies.lines() == (200, [b"two", b"three"], False)
    replies.feed(chunk(b"end") + b"0\r\n\r\n")
    assert replies.lines() == (200, [b"end"], True)


def test_lines_of_a_short_reply() -> None:
    """An error in place of a stream has a length."""
    replies = Replies()
    replies.feed(by_length(b"no").replace(b"200", b"400"))
    assert replies.lines() == (400, [b"no"], True)


@each(
    "raw",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_reply(raw: bytes) -> None:
    """It is refused: nobody waits for its end."""
    replies = Replies()
    replies.feed(raw)
    with pytest.raises(NotHttp):
        replies.reply()


def test_a_reply_that_nobody_requested_is_noticed() -> None:
    """What follows a reply belongs to nobody."""
    replies = Replies()
    replies.feed(by_length(b"one") * 2)
    assert replies.reply() is not None and replies.unread


def test_a_connection_that_the_server_closes() -> None:
    """The reply says so."""
    replies = Replies()
    replies.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert replies.reply() == Reply(200, b"", last=True)


def test_requests() -> None:
    """A token is sent if there is one; a stream is never the last word on a connection that stays."""
    assert request("/v3/x", "h:1", "", b"{}") == (
        b"POST /v3/x HTTP/1.1\r\nHost: h:1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert b"\r\nAuthorization: t\r\n" in request("/v3/x", "h:1", "t", b"{}")
    assert b"\r\nAuthorization: t\r\n" in stream_head("/v3/watch", "h:1", "t")
    assert b"\r\nConnection: close\r\n" in stream_head("/v3/watch", "h:1", "")
