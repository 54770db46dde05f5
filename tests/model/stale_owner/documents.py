"""Counters whose whole history is one document: each write is the document as it was read, and one line more.

So a write that knew nothing of another one takes its line away, and the judge misses it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from leasehold.guards.fence import Fenced
from tests.model.stale_owner.targets import Target, Write, nothing


class DocumentTarget(Target):
    """Keeps what each resource's document was when it was read last."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    @abstractmethod
    def load(self, lease: Fenced) -> str:
        """Present the fence, and read the document; empty at first."""

    @abstractmethod
    def store(self, lease: Fenced, text: str, midway: Callable[[], None]) -> None:
        """The guarded write."""

    @abstractmethod
    def document(self, resource: str) -> str:
        """What lies there, without any guard."""

    def read(self, lease: Fenced) -> int:
        """The value in the last line."""
        text = self.known[lease.resource] = self.load(lease)
        return last_value(text)

    def write(self, lease: Fenced, value: int, note: str, midway: Callable[[], None] = nothing) -> None:
        """One line more than was read."""
        self.store(lease, self.known.get(lease.resource, "") + f"{lease.fence} {value} {note}\n", midway)

    def value(self, resource: str) -> int:
        """The value in the last line."""
        return last_value(self.document(resource))

    def history(self, resource: str) -> list[Write]:
        """Line by line."""
        rows = [line.split() for line in self.document(resource).splitlines()]
        return [Write(int(fence), int(value), note) for fence, value, note in rows]

    def prepare(self, resource: str) -> None:
        """What is not there stands at 0."""
        assert self.value(resource) == 0


def last_value(text: str) -> int:
    """0 where there is nothing."""
    return int(text.splitlines()[-1].split()[1]) if text else 0
