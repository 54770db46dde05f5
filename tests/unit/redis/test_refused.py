"""What connect() does not take, and servers that will not do: refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import redis.asyncio
import valkey.asyncio

import leasehold
from leasehold import InvalidRequest, Unsupported
from tests.integration.redis.impostor import VERSION_5_0, VERSION_6_0, impostor
from tests.support.parties import FLAVOURS
from tests.support.redis.plays import KINDS, Start, failure
from tests.support.tables import each

CONNECTS = [leasehold.connect, leasehold.aio.connect]
Connect = Callable[..., Any]
both = pytest.mark.parametrize("connect", CONNECTS)
both_flavours = pytest.mark.parametrize("flavour", FLAVOURS)


def looks_like(name: str, module: str) -> Any:
    """An object of a class of that name, which could run commands."""
    return type(name, (), {"__module__": module, "execute_command": lambda self, *args: None})()


# ---------------------------------------------------------------- objects

SEVERAL: dict[str, Callable[[], Any]] = {
    "MultiDBClient": lambda: looks_like("MultiDBClient", "redis.multidb.client"),
    "MultiDBClient of asyncio": lambda: looks_like("MultiDBClient", "redis.asyncio.multidb.client"),
}
try:  # it needs more than redis-py, and an old redis-py has none
    SEVERAL["MultiDBClient itself"] = partial(object.__new__, import_module("redis.multidb.client").MultiDBClient)
except ImportError:
    pass
PARTS: dict[str, Callable[[Any], Any]] = {
    "Pipeline": lambda client: client.pipeline(),
    "PubSub": lambda client: client.pubsub(),
    "Lock": lambda client: client.lock("job"),
}


@both
@each("name", SEVERAL)
def test_a_client_of_several_servers_is_unsupported(name: str, connect: Connect) -> None:
    """Those that move between servers share no leases among them; the message names the class."""
    with pytest.raises(Unsupported, match=f"cannot use a {name.partition(' ')[0]}: "):
        connect(SEVERAL[name]())


@both
@each("kind", KINDS)
@each("part", PARTS)
def test_a_part_of_a_client_is_unsupported(part: str, kind: str, connect: Connect) -> None:
    """The message asks for the client itself."""
    with pytest.raises(Unsupported, match=f"cannot use a {part}: .*give it the client"):
        connect(PARTS[part](KINDS[kind]()))


@both
@pytest.mark.parametrize("several", [[redis.Redis()], [redis.Redis(), redis.Redis()]])
def test_too_few_clients_are_no_redlock(several: Any, connect: Connect) -> None:
    """A list of clients is a Redlock, which needs an odd number of masters, three at least."""
    with pytest.raises(InvalidRequest, match="Redlock"):
        connect(several)


GARBAGE: dict[str, Any] = {
    "a number": 6379,
    "zero": 0,
    "False": False,
    "bytes": b"redis://localhost",
    "a mapping": {"host": "localhost"},
    "an object": object(),
    "a module": redis,
    "a function": redis.from_url,
    "a class": redis.Redis,
    "a class of asyncio": redis.asyncio.Redis,
    "a class of valkey": valkey.Valkey,
    "a pool": redis.ConnectionPool(),
    "NotImplemented": NotImplemented,
    "an exception": redis.ConnectionError(),
}


@both
@each("thing", GARBAGE.values(), ids=GARBAGE)
def test_anything_else_is_an_invalid_request(thing: Any, connect: Connect) -> None:
    """At once, by the name of its type."""
    with pytest.raises(InvalidRequest, match=f"not {type(thing).__name__}"):
        connect(thing)


# ---------------------------------------------------------------- servers


@both_flavours
@pytest.mark.parametrize("version", [VERSION_5_0, VERSION_6_0])
@pytest.mark.parametrize("protocol", [2, 3])
def test_an_old_server_is_refused(version: str, protocol: int, flavour: str) -> None:
    """Before 6.2 there is no SET with PXAT: the error says so, and nothing was tried."""
    with impostor(version) as server:
        error = failure(f"{server.url}?protocol={protocol}", flavour)
    assert isinstance(error, Unsupported) and f"is version {version}: leases need 6.2 or newer" in str(error)
    assert set(server.asked) <= {"HELLO", "INFO"}


@pytest.mark.slow
@both_flavours
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_node_of_a_cluster_is_refused(protocol: int, flavour: str, own_redis: Start) -> None:
    """It would answer for a part of the names only."""
    server = own_redis(None, "--cluster-enabled", "yes")
    error = failure(f"{server.url}?protocol={protocol}", flavour)
    assert isinstance(error, Unsupported) and "is a node of a Cluster" in str(error)
    assert not server.client().dbsize()


@pytest.mark.slow
def test_the_client_of_a_node_of_a_cluster_is_refused(own_redis: Start) -> None:
    """It knows one node. The error says how to connect."""
    server = own_redis(None, "--cluster-enabled", "yes")
    error = str(failure(redis.Redis(port=server.port), "sync"))
    assert "is a node of a Cluster: connect with redis+cluster://" in error
