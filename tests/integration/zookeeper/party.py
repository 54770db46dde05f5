"""A client of ZooKeeper in tests: it requests, in its flavour, and remembers what it was called back with."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Self

from leasehold.stores.record.requests import Change, Join, Look, Outcome, Part, Place, Record, Request
from leasehold.stores.zookeeper.server import ZooKeeper
from tests.support.waiting import PATIENCE, until


class Party:
    """It ends with ``with``."""

    def __init__(self, given: Any, flavour: str = "threads") -> None:
        self.given = given
        self.server = ZooKeeper(given)
        self._runner = asyncio.Runner() if flavour == "asyncio" else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.server.close()
        if self._runner is not None:
            self._runner.close()

    # ------------------------------------------------------------ requests

    def perform(self, *requests: Request, within: float = PATIENCE) -> list[Any]:
        """What each was answered with; errors too."""
        give_up = time.monotonic() + within
        if self._runner is not None:
            return self._runner.run(self.server.perform_async(requests, give_up))
        return self.server.perform(requests, give_up)

    def one(self, request: Request, within: float = PATIENCE) -> Any:
        """What it was answered with. An error is raised."""
        (answer,) = self.perform(request, within=within)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def look(self, resource: str, texts: bool = False) -> Record:
        """The record as it is."""
        record: Record = self.one(Look((resource,), texts)).records[0]
        return record

    def change(self, *parts: Part, within: float = PATIENCE) -> Outcome:
        """All or none."""
        outcome: Outcome = self.one(Change(parts), within)
        return outcome

    def write(self, resource: str, text: str, **more: Any) -> Record:
        """On condition of what it is now; that must hold."""
        outcome = self.change(Part(resource, self.look(resource).revision, text, **more))
        assert outcome.done
        return outcome.records[0]

    def wait_in(self, resource: str, owner: str) -> Place:
        """A place at the end of the queue."""
        record = self.write(resource, f"{owner} waits", join=Join(owner, f"text of {owner}"))
        (place,) = [one for one in record.places or () if one.owner == owner and one.ours]
        return place

    @property
    def session(self) -> str:
        """Its id, in hexadecimal; empty when there is none."""
        return session_of(self.server)

    # ------------------------------------------------------------ what happens to it

    def lose_session(self) -> None:
        """The server ends its session."""
        lose_session(self.server)


def session_of(server: ZooKeeper) -> str:
    """Its id, in hexadecimal; empty when there is none."""
    found = server._session.id
    return hex(found) if found else ""


def lose_session(server: ZooKeeper) -> None:
    """ZooKeeper ends its session: another client takes it over and closes it. It begins a new one."""
    from kazoo.client import KazooClient

    client = server._session._client
    assert client is not None
    old = session_of(server)
    hosts = ",".join(f"{host}:{port}" for host, port in client.hosts)
    other = KazooClient(hosts, client_id=client.client_id)
    other.start()
    other.stop()
    other.close()
    until(lambda: session_of(server) not in ("", old), "it has a new session")


class Calls:
    """A callback that counts."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def __call__(self, given: Any) -> None:
        """It was called."""
        self.got.append(given)

    def wait(self, count: int = 1) -> None:
        """Until it was called so often."""
        until(lambda: len(self.got) >= count, f"called {count} times, not {len(self.got)}")
