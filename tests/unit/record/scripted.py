"""Turns whose server is the test: it replies to each request itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold.stores.clock import ManualClock
from leasehold.stores.record.requests import Place, Record
from leasehold.stores.record.turns import Turns


class Watch:
    """One that was set: on the record of a resource, or on the key of a place."""

    def __init__(self, target: str, changed: Callable[[Record | None], None]) -> None:
        self.target = target
        self.changed = changed
        self.open = True

    def close(self) -> None:
        """Nobody is told any more."""
        self.open = False


class Scripted:
    """A server that does what the test says."""

    most_parts = 60
    server = "a server"
    offers = False

    def __init__(self) -> None:
        self.watches: list[Watch] = []

    def wall_us(self) -> int:
        """Some time."""
        return 1_700_000_000_000_000

    def watch_record(self, record: Record, changed: Callable[[Record | None], None]) -> Watch:
        """The test fires it."""
        self.watches.append(Watch(record.resource, changed))
        return self.watches[-1]

    def watch_place(self, resource: str, place: Place, changed: Callable[[Record | None], None]) -> Watch:
        """The same."""
        self.watches.append(Watch(place.key, changed))
        return self.watches[-1]


def turns(server: Any) -> Turns:
    """Of one process."""
    return Turns(server, ManualClock(), lambda push: None, lambda: 0.0)


def begin(turns: Turns, op: Any) -> Any:
    """The flow of an op: what it yields is a request."""
    return turns.execute(op)


def end(flow: Any, reply: object) -> Any:
    """The reply of an op whose last request is answered so."""
    try:
        request = flow.send(reply)
    except StopIteration as ended:
        return ended.value
    raise AssertionError(f"another request: {request}")
