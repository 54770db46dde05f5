"""What is under way now, as the events told it: leases that are held, acquires that wait, keys without a TTL.

It counts by the number of each lease, so nothing drifts; it has no lock, so nobody waits; it says of each lease once
that it has ended; and a forked child begins with nothing.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator

from leasehold._core.light_typing import Protocol
from leasehold.observe.events import Event

MOST_LABELS = 200
OTHER = "other"  # the label of whatever comes after that many


class Labels:
    """The values of one label, and no more than are good for a metrics server: a kind that somebody fills with ids must
    not become a series for each."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= MOST_LABELS:
            return OTHER
        self._known.add(value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._known.copy()))


class Tally:
    """What is held and who waits in this process."""

    def __init__(self) -> None:
        self.kind = Labels()
        self.leaking: int | None = None  # until somebody has looked
        self.forked()
        at_fork(self)

    def forked(self) -> None:
        self._held: dict[int, tuple[str, float]] = {}
        self._waiting: dict[int, str] = {}

    def waits(self, number: int, kind: str) -> None:
        self._waiting[number] = kind

    def acquired(self, number: int, kind: str) -> None:
        self._waiting.pop(number, None)
        self._held[number] = (kind, time.monotonic())

    def refused(self, number: int) -> None:
        self._waiting.pop(number, None)

    def ended(self, number: int) -> bool:
        """True for the first that says so."""
        return self._held.pop(number, None) is not None

    def held(self) -> dict[str, int]:
        """How many leases of each kind are held. A kind that was seen once stays, with 0."""
        return self._counted([kind for kind, _ in list(self._held.values())])

    def waiters(self) -> dict[str, int]:
        """The same of those who wait."""
        return self._counted(list(self._waiting.values()))

    def _counted(self, kinds: list[str]) -> dict[str, int]:
        counts = dict.fromkeys(self.kind, 0)
        for kind in kinds:
            counts[kind] = counts.get(kind, 0) + 1
        return counts

    def oldest(self) -> dict[str, float]:
        """For how many seconds the oldest lease of each kind is held."""
        now, ages = time.monotonic(), dict.fromkeys(self.kind, 0.0)
        for kind, since in list(self._held.values()):
            ages[kind] = max(ages.get(kind, 0.0), now - since)
        return ages


class Unentangled(ABC):
    """An observer whose libraries have locks of their own: what a signal handler does in the middle of one event comes
    after it. Without this, a handler that takes a lease could wait for ever for a lock of its own thread."""

    def __init__(self) -> None:
        self._desk = Desk()

    def __call__(self, event: Event) -> None:
        desk = self._desk
        if desk.busy:
            desk.later.append(event)
            return
        desk.busy = True
        try:
            self.handle(event)
            while desk.later:
                self.handle(desk.later.popleft())
        finally:
            desk.busy = False

    @abstractmethod
    def handle(self, event: Event) -> None:
        """One event, to its end."""


class Desk(threading.local):
    """What one thread is at."""

    def __init__(self) -> None:
        self.busy = False
        self.later: deque[Event] = deque()


# ---------------------------------------------------------------- forks


class Forgetful(Protocol):
    """What its parent knew is nothing to a child."""

    def forked(self) -> None: ...


_forgetful: weakref.WeakSet[Forgetful] = weakref.WeakSet()


def at_fork(thing: Forgetful) -> None:
    """Have its ``forked`` called in every forked child, for as long as it lives."""
    _forgetful.add(thing)


def _forked() -> None:
    for thing in list(_forgetful):
        thing.forked()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)
