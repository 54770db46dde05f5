"""Every way to a guard on Redis: clients, protocols, servers, one server or a Cluster, blocking or awaited."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from leasehold.guards.redis import FenceGuard
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redis import RedisServer, redis_6_2
from tests.support.servers.redis import valkey as valkey_program

RESOURCE = "report-export:42"
A, B = "host-1:11:5ec2e75ec2e75ec2e75ec2e75ec2e7.1", "host-2:22:5ec2e75ec2e75ec2e75ec2e75ec2e7.2"
BODY, HASH = "{report-export:42}:body", "{report-export:42}:hash"  # in the slot of that resource

WAYS: dict[str, tuple[str, Callable[..., Any], dict[str, Any]]] = {
    "redis-py": ("redis_server", redis.Redis, {}),
    "RESP2 and text": ("redis_server", redis.Redis, {"protocol": 2, "decode_responses": True}),
    "asyncio": ("redis_server", redis.asyncio.Redis, {}),
    "asyncio, RESP3 and text": ("redis_server", redis.asyncio.Redis, {"protocol": 3, "decode_responses": True}),
    "Valkey and valkey-py": ("valkey_server", valkey.Valkey, {}),
    "Valkey, asyncio": ("valkey_server", valkey.asyncio.Valkey, {}),
    "Redis 6.2": ("old_server", redis.Redis, {}),
    "Cluster": ("cluster", redis.RedisCluster, {}),
    "Cluster, asyncio": ("cluster", redis.asyncio.RedisCluster, {}),
    "Cluster, valkey-py": ("cluster", valkey.ValkeyCluster, {}),
}


class Awaiting:
    """An asyncio client and its guard on a loop of their own, called from any thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        """What it returns or raises."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(50)

    def close(self) -> None:
        """The loop ends."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


class Waited:
    """An awaited guard that is called like a blocking one: what it returns is awaited, on its loop."""

    def __init__(self, guard: FenceGuard[Any], awaiting: Awaiting) -> None:
        self._guard, self._awaiting = guard, awaiting

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._guard, name)

        def call(*args: Any, **more: Any) -> Any:
            answer = method(*args, **more)
            return self._awaiting.run(answer) if inspect.iscoroutine(answer) else answer

        return call


@contextmanager
def opened(make: Callable[..., Any], port: int, **more: Any) -> Iterator[Callable[..., Any]]:
    """A function that makes guards, all of one client of this kind."""
    settings = {"host": "127.0.0.1", "port": port, **more}
    if not make.__module__.count("asyncio"):
        with make(**settings) as client:
            yield lambda **options: FenceGuard(client, **options)
        return
    awaiting = Awaiting()

    async def connect() -> Any:
        client = make(**settings)
        await client.initialize()  # a Cluster's client stumbles when eight tasks at once are the first to use it
        return client

    client = awaiting.run(connect())
    try:
        yield lambda **options: Waited(FenceGuard(client, **options), awaiting)
    finally:
        awaiting.run(client.aclose())
        awaiting.close()


# ---------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer]:
    """A Valkey for the whole run."""
    with RedisServer(executable=valkey_program()) as server:
        yield server


@pytest.fixture(scope="session")
def old_server() -> Iterator[RedisServer]:
    """A Redis 6.2 for the whole run."""
    with RedisServer(executable=redis_6_2()) as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisCluster]:
    """A Cluster of three for the whole run."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def place(way: str, request: pytest.FixtureRequest) -> Any:
    """The server or Cluster of this way, wiped."""
    place = request.getfixturevalue(WAYS[way][0])
    place.wipe()
    return place


@pytest.fixture
def make_guard(way: str, place: Any) -> Iterator[Callable[..., Any]]:
    """Makes guards over one client, of this way; it takes what FenceGuard takes, without the client."""
    _, make, more = WAYS[way]
    with opened(make, place.port, **more) as guards:
        yield guards


@pytest.fixture
def guard(make_guard: Callable[..., Any]) -> Any:
    """A guard of this way that has seen nothing; an awaited one is awaited for you."""
    return make_guard()


@pytest.fixture
def data(place: Any) -> Any:
    """A client of the test's own, to see what is there."""
    return place.client()
