"""The guard on Redis, seen from the server: one command a call, forgotten scripts, slots that are elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis.crc import key_slot

from leasehold.errors import InvalidRequest, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.redis import FenceGuard
from leasehold.guards.redis.step import _AFTER, _ON_ONE_LINE, CALL, CHECK
from tests.integration.guards.test_redis_guard import CALLS
from tests.support.guards.redis_stage import BODY, HASH, RESOURCE, WAYS, A
from tests.support.servers.cluster import SLOTS, RedisCluster
from tests.support.servers.redis import RedisServer

pytestmark = pytest.mark.slow
WHO: dict[str, Any] = {"resource": RESOURCE, "owner": A}
REPEATABLE = ("check", "get", "hget", "set", "hset")  # the body of eval in CALLS flushes everything


def call(name: str, guard: Any, fence: int) -> Any:
    """One of the methods."""
    return CALLS[name](guard, {"lease_or_fence": fence, **WHO})


def counts(data: Any) -> dict[str, int]:
    """How often each command was run, also inside scripts."""
    return {name.removeprefix("cmdstat_"): one["calls"] for name, one in data.info("commandstats").items()}


@pytest.mark.parametrize("way", ["redis-py", "asyncio", "Valkey and valkey-py", "Redis 6.2"])
def test_one_command_a_call(guard: Any, place: RedisServer) -> None:
    """Each method is one EVALSHA, accepted or refused: two commands for the record, and yours."""
    data: Any = place.client()
    guard.eval("return 1", 10, **WHO)
    for name in REPEATABLE:
        call(name, guard, 10)
    data.config_resetstat()
    for name, inside in {"check": [], "get": ["get"], "hget": ["hget"], "set": ["set"], "hset": ["hset"]}.items():
        call(name, guard, 10)
        expected = {"evalsha": 1, "get": 1, "set": 1}
        for command in inside:
            expected[command] = expected.get(command, 0) + 1
        found = {
            command: count for command, count in counts(data).items() if not command.startswith(("config", "info"))
        }
        assert found == expected, name
        data.config_resetstat()
    for name in ("set", "delete", "eval"):
        with pytest.raises(StaleOwner):
            call(name, guard, 9)
    found = counts(data)
    assert (found["get"], found.get("set", 0), found.get("del", 0)) == (3, 0, 0)
    assert found["evalsha"] + found.get("eval", 0) <= 4  # the body of eval is new to the server


@pytest.mark.parametrize("way", WAYS)
def test_scripts_are_sent_when_they_are_needed(guard: Any, place: Any) -> None:
    """A server that has forgotten them, in the middle of everything, is told again; nobody notices."""
    nodes = place.nodes if isinstance(place, RedisCluster) else [place]
    for fence in range(1, 4):
        for name in REPEATABLE:
            call(name, guard, fence)
            for node in nodes:
                assert node.ask("SCRIPT FLUSH") == b"+OK\r\n"
        assert guard.eval("return ARGV[1]", fence, args=["7"], **WHO) in (b"7", "7")


def test_a_server_that_restarts(own_redis: Callable[..., RedisServer]) -> None:
    """It has lost the scripts; the records are as durable as the data."""
    server = own_redis(appendonly=True)
    guard = FenceGuard(server.client())
    guard.set("k", "x", 10, **WHO)
    server.restart()
    with pytest.raises(StaleOwner):
        guard.set("k", "late", 9, **WHO)
    guard.set("k", "y", 10, **WHO)


@pytest.mark.parametrize("way", ["Cluster", "Cluster, asyncio", "Cluster, valkey-py"])
def test_every_slot_of_a_cluster(guard: Any, cluster: RedisCluster) -> None:
    """Resources are on all the nodes, and each with its keys on one."""
    for number in range(40):
        resource = f"report-export:{number}"
        guard.set(guard.key("body", resource=resource), number, 10, resource=resource, owner=A)
        with pytest.raises(StaleOwner):
            guard.delete(guard.key("body", resource=resource), 9, resource=resource, owner=A)
    sizes = [node.client().dbsize() for node in cluster.nodes]
    assert sum(sizes) == 80 and min(sizes) > 0


@pytest.mark.parametrize("way", ["Cluster", "Cluster, asyncio", "Cluster, valkey-py"])
def test_a_slot_that_moves(guard: Any, cluster: RedisCluster) -> None:
    """MOVED: the client finds the new node, where the scripts are not known yet, and the record has come along."""
    resource = "moving:1"
    key = guard.key("body", resource=resource)
    guard.set(key, "before", 10, resource=resource, owner=A)
    slot = key_slot(b"moving:1")
    owner = next(number for number in range(3) if cluster.nodes[number].client().dbsize())
    source, target = cluster.nodes[owner], cluster.nodes[(owner + 1) % 3]
    try:
        cluster.move(slot, source, target)
        with pytest.raises(StaleOwner):
            guard.set(key, "late", 9, resource=resource, owner=A)
        guard.set(key, "after", 11, resource=resource, owner=A)
        assert target.client().get(key) == b"after"
    finally:
        cluster.move(slot, target, source)


def test_a_plain_client_at_a_node(cluster: RedisCluster) -> None:
    """It cannot follow, and the error says which client can; keys of two slots are the caller's mistake."""
    cluster.wipe()
    for node in cluster.nodes:
        guard = FenceGuard(node.client())
        for number in range(20):
            resource = f"job:{number}"
            key = guard.key("x", resource=resource)
            if node is not cluster.nodes[key_slot(resource.encode()) * 3 // SLOTS]:
                with pytest.raises(StoreUnavailable, match="RedisCluster"):
                    guard.set(key, "x", 10, resource=resource)
            else:
                guard.set(key, "x", 10, resource=resource)
            with pytest.raises(InvalidRequest, match=r"guard\.key"):
                guard.set("{elsewhere}", "x", 11, resource=resource)
    assert sum(node.client().dbsize() for node in cluster.nodes) == 40


def test_the_rule_stands_in_front_of_all() -> None:
    """One text of the rule in every script, and the first line of a body is the first line of what is sent."""
    rule = CHECK.text.removesuffix(b"\nreturn {1}")
    assert CALL.text.startswith(rule)
    assert _ON_ONE_LINE.startswith(" ".join(rule.decode().split())) and "\n" not in _ON_ONE_LINE
    assert "--" not in _ON_ONE_LINE + _AFTER


@pytest.mark.parametrize("way", ["redis-py", "Redis 6.2", "Valkey and valkey-py"])
def test_errors_name_the_line_of_the_body(guard: Any) -> None:
    """As its author counts them."""
    with pytest.raises(InvalidRequest, match="user_script:3:"):
        guard.eval("local x = 1\nlocal y = 2\nthis is no lua", 1, **WHO)
    with pytest.raises(OutcomeUnknown, match="user_script:2: there"):
        guard.eval("local x = 1\nerror('there')", 1, **WHO)


def test_two_keys_of_one_resource(redis_server: RedisServer, redis_url: str) -> None:
    """One record for a resource: a newer owner that has touched one key has closed them all."""
    guard = FenceGuard(redis_server.client())
    guard.set(BODY, "new", 11, **WHO)
    with pytest.raises(StaleOwner):
        guard.hset(HASH, {"never": "touched"}, 10, **WHO)
