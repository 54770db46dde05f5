"""An S3 stand-in for the whole run, a new bucket for each test, and a guard on it that has seen nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leasehold.guards.fence import Fenced
from leasehold.guards.s3 import FenceGuard
from leasehold.guards.s3.record import safe_name
from tests.servers.s3 import S3Server


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
        key = f"objects/{safe_name(str(name))}"
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
