"""A holding of an election, and everybody who must hear that its term has ended, however it did."""

from __future__ import annotations

from collections.abc import Callable

from leasehold._core import ops
from leasehold._core.holding import LOST
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.oneself import Own
from leasehold._core.tickets import Giving
from leasehold._runtime.held_lease import Held
from leasehold.observe import log

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

RESIGNED, UNHEALTHY = "resigned", "unhealthy"  # why a term was given up; see LeaseLost.reason
UNFIT = (UNHEALTHY, "max_idle")  # whoever stepped down for this had better not lead again at once


class Reign(Held):
    """One term of this process. Its end is told once: before its release is sent, and with its loss."""

    __slots__ = ("_endings", "carried", "left", "loop", "looping", "said")

    def __init__(self, *known: Any) -> None:
        Held.__init__(self, *known)
        self._endings: tuple[Callable[[], object], ...] | None = ()  # None: it has ended
        self.carried: dict[str, Any] = {}  # what observers want to travel with it
        self.said: Any = (self.options.meta or {}).get("value")  # the value, as the store last confirmed it
        self.loop: Any = None  # the event loop that leads, if one does
        self.looping = False  # it is a term of a loop, which goes on to campaign when this one is lost
        self.left = False  # that loop was left: nobody uses it any more, whoever still refers to it

    def at_end(self, ending: Callable[[], object]) -> None:
        """Call this, quickly and from any thread, when the term has ended; at once when it has."""
        with self.lock:
            if self._endings is not None:
                self._endings += (ending,)
                return
        ending()

    def end(self) -> None:
        """It is over: tell everybody, once. Whoever is interrupted here leaves the rest to the next who ends it."""
        while (ending := self._next_ending()) is not None:
            try:
                ending()
            except Exception as error:  # the others must hear of it too
                log.warn("the end of a term could not be told: %r", error, error=error)

    def _next_ending(self) -> Callable[[], object] | None:
        with self.lock:
            if not self._endings:
                self._endings = None
                return None
            ending, *rest = self._endings
            self._endings = tuple(rest)
            return ending

    # ------------------------------------------------------------ how it ends

    def tell(self) -> bool:
        """Lost."""
        told = Held.tell(self)
        if self.phase == LOST:
            self.end()
        return told

    def begin_release(self, now: float) -> ops.Release | None:
        """Given back: whoever acted as the leader hears of it before anybody else can lead."""
        release = Held.begin_release(self, now)
        self.end()
        return release

    def handed_over(
        self, giving: Giving, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float
    ) -> None:
        """Given away."""
        Held.handed_over(self, giving, renew, sent, reply, now)
        self.end()

    def forked(self, lock: AbstractContextManager[Any]) -> None:
        """In a forked child: the term is the parent's, and so are those who hear of its end."""
        self._endings = None
        Held.forked(self, lock)

    # ------------------------------------------------------------ who can use it

    def usable(self) -> bool:
        """Nobody, once its loop was left."""
        return not self.left and Held.usable(self)

    def own(self, anchor: object) -> Own:
        """The same, and it leads."""
        return Held.own(self, anchor)._replace(leads=True)

    def inside(self, anchor: object) -> bool:
        """A loop of terms is a body, too."""
        return Held.inside(self, anchor) or (self.looping and not self.left)

    def finished(self) -> bool:
        """Has whoever led come to an end?"""
        return self.left or Held.finished(self)
