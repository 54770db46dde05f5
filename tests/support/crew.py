"""Threads that wait for one lock of one coordinator, each in a known place, and let go when the test says so."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from tests.support.lock import waiting
from tests.support.waiting import PATIENCE, until


class Hand:
    """A thread that acquires, holds until it is told to let go, and releases."""

    def __init__(self, hold: Any, name: str, **options: Any) -> None:
        self._hold = hold
        self._name = name
        self._options = options
        self.lease: Any = None
        self.error: BaseException | None = None
        self._go = threading.Event()
        self.released: Future[bool] = Future()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.lease = self._hold.lock(self._name, **self._options).acquire()
            if self.lease is None:
                self.released.set_result(False)
                return
            self._go.wait(PATIENCE)
            self.released.set_result(self.lease.release())
        except BaseException as error:
            self.error = error
            self.released.set_exception(error)

    def has_it(self) -> Any:
        """Wait until it holds, and return its lease."""
        until(lambda: self.lease is not None or self.error is not None, "it holds")
        if self.error is not None:
            raise self.error
        return self.lease

    def let_go(self) -> bool:
        """Release it, and say whether it was ours until then."""
        self._go.set()
        return self.released.result(PATIENCE)

    def end(self) -> None:
        """Whatever it does, it ends."""
        self._go.set()
        self.thread.join(PATIENCE)


class Crew:
    """Hands that come one after the other: each stands in its place before the next one comes."""

    def __init__(self, hold: Any, name: str = "job", alike: bool = True, **options: Any) -> None:
        self._alike = alike  # they can pass a lease to each other
        self._hold = hold
        self._name = name
        self._options = options
        self.hands: list[Hand] = []

    def come(self, count: int = 1, **options: Any) -> list[Hand]:
        """So many more; all that are new wait."""
        for _ in range(count):
            before = waiting(self._hold._engine.store, self._name)
            self.hands.append(Hand(self._hold, self._name, **{**self._options, **options}))
            until(lambda: waiting(self._hold._engine.store, self._name) == before + 1, "it waits")  # noqa: B023 # called here
            if not before:  # whoever comes before the first one leads would claim for itself
                until(lambda: self._hold._engine.cohorts or not self._alike, "it leads")
        return self.hands[-count:]

    def end(self) -> None:
        """All of them."""
        for hand in self.hands:
            hand.end()
