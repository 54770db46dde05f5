"""What the tests of Redis share: short plays over any target in either flavour, and who is connected to a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis.asyncio
import valkey.asyncio

import leasehold
from leasehold.coordinator.stores import open_store
from tests.contract.cases.lock import CASES
from tests.support.parties import FLAVOURS
from tests.support.scene import Scene
from tests.support.servers.redis import RedisServer

KINDS: dict[str, Any] = {
    "redis": redis.Redis,
    "redis.asyncio": redis.asyncio.Redis,
    "valkey": valkey.Valkey,
    "valkey.asyncio": valkey.asyncio.Valkey,
}
Start = Callable[..., RedisServer]


def play(target: Any, flavour: str, *cases: str) -> None:
    """Cases of the contract, in real time, with parties that are all given the same target."""
    for case in cases or ("waiters_are_served_in_order", "release_by_the_owner"):
        scene = Scene(lambda: open_store(target), FLAVOURS[flavour], None)
        try:
            CASES[case](scene)
        finally:
            scene.close()


def try_once(target: Any, flavour: str) -> int:
    """Acquire and give back; the fence."""
    party = FLAVOURS[flavour](open_store(target))
    try:
        lease = party.do(lambda hold: hold.lock("job").acquire(wait=0))
        assert party.do(lambda _: lease.release()) is True
        fence: int = lease.fence
        return fence
    finally:
        party.close()


def failure(target: Any, flavour: str) -> leasehold.LeaseholdError:
    """The error that one try ends with."""
    try:
        fence = try_once(target, flavour)
    except leasehold.LeaseholdError as error:
        return error
    raise AssertionError(f"granted with fence {fence}")


def connected(server: RedisServer) -> list[dict[str, Any]]:
    """Everybody who is connected, except those who ask."""
    with redis.Redis(port=server.port, client_name="asks", protocol=2) as client:
        return [one for one in client.client_list() if one["name"] != "asks"]


def descriptors(kind: str = "") -> int:
    """How many of that kind this process has open: sockets, or anything."""
    folder = Path("/proc/self/fd")
    return sum(_leads_to(link).startswith(kind) for link in folder.iterdir())


def _leads_to(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # the one that was used to list them
        return "gone"
