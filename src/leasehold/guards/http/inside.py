"""Who is at work on what: a newer fence goes in when those before it, with a lower one, have left.

A check at the door and a write later on are two steps, and a newer owner could come between them. So each request is
*inside* from before its check until its response has ended:

    enter      before the check, which may take a while: whoever is checked after us must see us
    line_up    after the check: who is inside with a lower fence? Those that come later are refused by the guard, and
               these are told that they are overtaken: a newer owner waits for them to end
    leave      whatever happened

One only ever waits for lower fences, so nobody waits in a circle. Requests of one fence are one holder's, and run side
by side. Readers keep nobody waiting: they change nothing, and several are valid at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Visit:
    """One request, and those it waits for."""

    __slots__ = ("ahead", "fence", "overtaken", "resource", "shared", "wake")

    def __init__(self, resource: str, fence: int, shared: bool, overtaken: Callable[[], None]) -> None:
        self.resource, self.fence, self.shared, self.overtaken = resource, fence, shared, overtaken
        self.ahead: set[Visit] = set()
        self.wake: Callable[[], None] | None = None


class Inside:
    """The requests of one process, by resource. It holds nothing about a resource that nobody is at work on."""

    __slots__ = ("_lock", "_visits")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._visits: dict[str, set[Visit]] = {}

    def enter(
        self, resource: str, fence: int, shared: bool = False, overtaken: Callable[[], None] = lambda: None
    ) -> Visit:
        """From here on newer fences see it. ``overtaken`` is called, from any thread, for each that waits for it."""
        visit = Visit(resource, fence, shared, overtaken)
        with self._lock:
            self._visits.setdefault(resource, set()).add(visit)
        return visit

    def line_up(self, visit: Visit, wake: Callable[[], None]) -> bool:
        """May it go in at once? Else ``wake`` is called, from any thread, when those before it have left."""
        with self._lock:
            others = self._visits.get(visit.resource, ())
            ahead = [other for other in others if other.fence < visit.fence and not other.shared]
            visit.ahead, visit.wake = set(ahead), wake if ahead else None
        for other in ahead:
            other.overtaken()
        return not ahead

    def leave(self, visit: Visit) -> None:
        """It has ended, one way or another. To leave twice is to leave once."""
        with self._lock:
            others = self._visits.get(visit.resource, set())
            others.discard(visit)
            if not others:
                self._visits.pop(visit.resource, None)
            woken = [wake for other in others if (wake := _without(other, visit)) is not None]
        for wake in woken:
            wake()

    def __len__(self) -> int:
        return sum(map(len, self._visits.copy().values()))


def _without(visit: Visit, left: Visit) -> Callable[[], None] | None:
    """How to wake it, when this was the last that it waited for."""
    if left not in visit.ahead:
        return None
    visit.ahead.discard(left)
    return None if visit.ahead else visit.wake
