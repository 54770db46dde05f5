"""Where the holders of one coordinator hear what happened to their leases: a mailbox that its watchdog polls.

It is bound when the watchdog first looks, beside the program and not in the way of its first acquire. Where that is
impossible the holders hear of it with their next renewal.
"""

from __future__ import annotations

from collections.abc import Callable

from leasehold.core.ops import Push
from leasehold.stores.sqlite.mailbox import Mailbox, new_name


class News:
    """Implements ``core.ports.News``. Until the watchdog looks there is an address and no mailbox: nothing is left of a
    coordinator that never held anything."""

    __slots__ = ("_box", "_make", "address")
    polled = True

    def __init__(self, make: Callable[[str], Mailbox]) -> None:
        self.address = new_name()
        self._make = make
        self._box: Mailbox | None = None

    def fileno(self, ready: Callable[[], None]) -> int:
        """Bound anew when somebody has emptied the folder."""
        if self._box is None:
            self._box = self._make(self.address)
        return self._box.fileno() if self._box.bind() else -1

    def read(self) -> list[Push]:
        return [] if self._box is None else self._box.read()

    def close(self) -> None:
        if self._box is not None:
            self._box.close()
