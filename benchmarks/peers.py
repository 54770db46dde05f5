"""The contenders over Redis: each opens a client at a URL and makes locks by number, in the way its users write it.

The floor is the least that a lease over Redis can cost: a bare socket, hiredis, and packed requests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import hiredis
import redis
import redis.asyncio

import leasehold
from benchmarks.race import AsyncLocks, Locks
from leasehold._core import cohort

OURS, OURS_ASYNCIO = "Leasehold", "Leasehold, asyncio"
FLOOR, RAW = "floor", "bare pair of redis-py"
REDIS_PY, REDIS_ASYNCIO, PYTHON_REDIS_LOCK = "redis-py Lock", "redis.asyncio Lock", "python-redis-lock"

TTL = 30
OWNER = "0123456789abcdef0123456789abcdef"
POOL = 50  # connections of redis.asyncio; also redis-py's default for a pool that waits, and what redis-benchmark uses
COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


# ---------------------------------------------------------------- threads


@contextmanager
def ours(url: str) -> Iterator[Locks]:
    with leasehold.connect(url) as hold:
        yield lambda number: hold.lock("bench", number, ttl=TTL)


@contextmanager
def ours_reused(url: str) -> Iterator[Locks]:
    """One lock object for every use."""
    with leasehold.connect(url) as hold:
        lock = hold.lock("bench", 43, ttl=TTL)
        yield lambda number: lock


@contextmanager
def ours_bounded(url: str, passes: int) -> Iterator[Locks]:
    """A cohort of this process passes a lease so many times at most, while others wait elsewhere."""
    with patch.object(cohort, "MOST_PASSES", passes), ours(url) as locks:
        yield locks


@contextmanager
def redis_py(url: str, sleep: float = 0.1) -> Iterator[Locks]:
    with redis.Redis.from_url(url) as client:
        yield lambda number: client.lock(f"redis-py:{number}", timeout=TTL, sleep=sleep)


@contextmanager
def redis_py_polling(url: str) -> Iterator[Locks]:
    """It asks every millisecond whether the lock is free; with its default, ten times a second, it is far slower."""
    with redis_py(url, sleep=0.001) as locks:
        yield locks


@contextmanager
def python_redis_lock(url: str) -> Iterator[Locks]:
    import redis_lock  # type: ignore[import-untyped]  # python-redis-lock has no types

    with redis.Redis.from_url(url) as client:
        yield lambda number: redis_lock.Lock(client, f"python-redis-lock:{number}", expire=TTL)


class Raw:
    """The commands of the floor, sent by redis-py."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client
        self._sha = client.script_load(COMPARE_AND_DELETE)

    def __enter__(self) -> None:
        if not self._client.set("raw", OWNER, nx=True, px=TTL * 1000):
            raise RuntimeError("the raw commands did not get their key")

    def __exit__(self, *_: object) -> None:
        if self._client.evalsha(self._sha, 1, "raw", OWNER) != 1:
            raise RuntimeError("the raw commands lost their key")


@contextmanager
def raw(url: str) -> Iterator[Locks]:
    with redis.Redis.from_url(url) as client:
        lock = Raw(client)
        yield lambda number: lock


class Floor:
    """SET NX PX and a script that compares and deletes, over one socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._reader = hiredis.Reader()
        self.claim, self.release = packed(self.request(_pack("SCRIPT", "LOAD", COMPARE_AND_DELETE)), "floor")

    def request(self, request: bytes) -> Any:
        """One round trip; every reply here fits into one packet."""
        self._link.sendall(request)
        self._reader.feed(self._link.recv(65536))
        return self._reader.gets()

    def __enter__(self) -> None:
        if self.request(self.claim) != b"OK":
            raise RuntimeError("the floor did not get its key")

    def __exit__(self, *_: object) -> None:
        if self.request(self.release) != 1:
            raise RuntimeError("the floor lost its key")


@contextmanager
def floor(url: str) -> Iterator[Locks]:
    with socket.create_connection(_address(url)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lock = Floor(link)
        yield lambda number: lock


# ---------------------------------------------------------------- asyncio


@asynccontextmanager
async def ours_asyncio(url: str) -> AsyncIterator[AsyncLocks]:
    async with leasehold.aio.connect(url) as hold:
        yield lambda number: hold.lock("bench-asyncio", number, ttl=TTL)


@asynccontextmanager
async def redis_asyncio(url: str) -> AsyncIterator[AsyncLocks]:
    async with redis.asyncio.Redis.from_url(url) as client:
        yield lambda number: client.lock(f"redis-asyncio:{number}", timeout=TTL)


@asynccontextmanager
async def redis_asyncio_pool(url: str) -> AsyncIterator[AsyncLocks]:
    """With a pool that waits for a connection: the default one raises when it has no free connection."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=POOL, timeout=None)
    async with redis.asyncio.Redis.from_pool(pool) as client:
        yield lambda number: client.lock(f"redis-asyncio:{number}", timeout=TTL)


class AsyncFloor(asyncio.Protocol):
    """The same over an asyncio transport, for one task."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._loop = asyncio.get_running_loop()
        self._reply: asyncio.Future[Any] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Only one request is under way, so this is its reply."""
        self._reader.feed(data)
        self._reply.set_result(self._reader.gets())

    async def load(self) -> None:
        """Load the script, before the first use."""
        sha = await self.request(_pack("SCRIPT", "LOAD", COMPARE_AND_DELETE))
        self.claim, self.release = packed(sha, "floor-asyncio")

    def request(self, request: bytes) -> asyncio.Future[Any]:
        """One round trip."""
        self._reply = self._loop.create_future()
        self.transport.write(request)
        return self._reply

    async def __aenter__(self) -> None:
        if await self.request(self.claim) != b"OK":
            raise RuntimeError("the floor did not get its key")

    async def __aexit__(self, *_: object) -> None:
        if await self.request(self.release) != 1:
            raise RuntimeError("the floor lost its key")


@asynccontextmanager
async def floor_asyncio(url: str) -> AsyncIterator[AsyncLocks]:
    host, port = _address(url)
    transport, lock = await asyncio.get_running_loop().create_connection(AsyncFloor, host, port)
    await lock.load()
    yield lambda number: lock
    transport.close()


# ---------------------------------------------------------------- bytes


def packed(sha: bytes, key: str) -> tuple[bytes, bytes]:
    """The two requests of a pair: claim and release."""
    return _pack("SET", key, OWNER, "NX", "PX", TTL * 1000), _pack("EVALSHA", sha, 1, key, OWNER)


def _pack(*words: str | int | bytes) -> bytes:
    request: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub says a tuple of one word
    return request


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 6379)
