"""The watchdog's inbox: leases that nobody refers to any more, and a bell that rouses it.

Both may be used at any bytecode of any thread, inside any lock: by callbacks of weak references, by signal handlers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.runtime.held import Held


class Inbox:
    """Put from anywhere; one thread waits and reads."""

    def __init__(self) -> None:
        self._items: SimpleQueue[Held] = SimpleQueue()
        self._bell = threading.Lock()  # taken while it is silent
        self._bell.acquire()

    def put(self, held: Held) -> None:
        self._items.put(held)
        self.ring()

    def ring(self) -> None:
        try:
            self._bell.release()
        except RuntimeError:  # it rings already
            pass

    def wait(self, seconds: float) -> None:
        """Until it rings. Not with the queue's own timeout: in CPython an interrupted one can wait for ever."""
        self._bell.acquire(timeout=seconds)

    def read(self) -> Iterator[Held]:
        """All that is there now."""
        while True:
            try:
                yield self._items.get_nowait()
            except Empty:
                return
