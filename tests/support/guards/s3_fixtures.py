"""An S3 stand-in for the whole run, a new bucket for each test, and a guard on it that has seen nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

import pytest

from leasehold.errors import StaleOwner
from leasehold.guards.fence import Fenced
from leasehold.guards.s3 import Conflict, FenceGuard
from tests.support.servers.s3 import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Shared, one request after the other: moto's own check-and-put is not atomic (test_s3_standin.py)."""
    with S3Server("lock") as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """An empty bucket."""
    return s3_server.bucket()


@pytest.fixture
def s3(s3_server: S3Server) -> Any:
    """A client for the test itself."""
    return s3_server.client()


@pytest.fixture
def s3_guard(s3: Any, bucket: str) -> FenceGuard:
    """A guard that has seen nothing, and knows that the store keeps conditions."""
    guard = FenceGuard(s3, bucket)
    guard.verify()
    return guard


class ThroughObjects:
    """The same guard, asked by its writes and reads: the contract holds for those too."""

    def __init__(self, guard: FenceGuard) -> None:
        self.guard = guard

    def check(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> None:
        """Write the object of this resource; or read it, when it is shared."""
        name = resource or getattr(lease_or_fence, "resource", None)
        key = f"objects/{blake2b(repr(name).encode()).hexdigest()}"
        if shared:
            self.guard.get(key, lease_or_fence, resource=resource, owner=owner, shared=True)
        else:
            self.guard.put(key, lambda unique: unique, lease_or_fence, resource=resource, owner=owner)


@pytest.fixture
def s3_put_guard(s3_guard: FenceGuard) -> ThroughObjects:
    """By its objects in place of its door."""
    return ThroughObjects(s3_guard)


@pytest.fixture
def requests(s3: Any) -> list[str]:
    """What the client sends from now on: the names of the operations."""
    return counted(s3)


def counted(client: Any) -> list[str]:
    """A list to which each request of this client is added, tries that are repeated too."""
    sent: list[str] = []

    def note(event_name: str, **_: object) -> None:
        sent.append(event_name.rpartition(".")[2])

    client.meta.events.register("before-send.s3", note)
    return sent


def midway(client: Any, call: Callable[[], object]) -> None:
    """Call this once, when the guard has looked and is about to write: the worst moment for a process to freeze."""
    calls = [call]

    def between(**_: object) -> None:
        if calls:
            calls.pop()()

    client.meta.events.register("before-call.s3.PutObject", between)


def tally(guard: FenceGuard, lane: int, lanes: int, rounds: int) -> list[int]:
    """Count one's fences in a shared object and add them up, by reading and writing; those that were accepted.

    Who is overtaken by an older owner reads again; who finds a newer one goes on to the next fence."""
    accepted = []
    for number in range(rounds):
        fence = number * lanes + lane + 1
        if _add(guard, fence):
            accepted.append(fence)
    return accepted


def _add(guard: FenceGuard, fence: int) -> bool:
    for _ in range(1000):
        try:
            found = guard.get("counter", fence, resource="counter")
            count, total = json.loads(found.body) if found else (0, 0)
            guard.put("counter", json.dumps([count + 1, total + fence]), fence, resource="counter", after=found)
        except StaleOwner:
            return False
        except Conflict:
            continue
        return True
    raise AssertionError("never written, never refused")
