"""Where the holders of one coordinator hear what happened to their leases: a mailbox that its watchdog polls.

It is bound when the watchdog first looks, beside the program and not in the way of its first acquire. Where that is
impossible the holders hear of it with their next renewal.
"""

from __future__ import annotations

from collections.abc import Callable

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.ops import Push
from leasehold.stores.sqlite.mailbox import Mailbox
from leasehold.stores.sqlite.sockets import new_name

if TYPE_CHECKING:
    from threading import RLock

BIND_WITHIN = 0.1  # seconds: the watchdog has deadlines to keep, and looks again


class News:
    """Implements ``core.ports.News``. Until the watchdog looks there is an address and no mailbox: nothing is left of a
    coordinator that never held anything."""

    __slots__ = ("_box", "_lock", "_make", "address")
    polled = True

    def __init__(self, make: Callable[[str], Mailbox], lock: RLock) -> None:
        self.address = new_name()
        self._make = make
        self._lock = lock
        self._box: Mailbox | None = None

    def fileno(self, ready: Callable[[], None]) -> int:
        """Bound anew when somebody has emptied the folder."""
        if self._box is None or not self._box.listed:
            self._bind()
        return -1 if self._box is None else self._box.fileno()

    def _bind(self) -> None:
        """In the store's lock, which a fork waits for: a child must not inherit a socket that nobody there knows of."""
        if not self._lock.acquire(timeout=BIND_WITHIN):
            return
        try:
            if self._box is None:
                self._box = self._make(self.address)
            self._box.bind()
        finally:
            self._lock.release()

    def read(self) -> list[Push]:
        return [] if self._box is None else self._box.read()

    def close(self) -> None:
        if self._box is not None:
            self._box.close()
