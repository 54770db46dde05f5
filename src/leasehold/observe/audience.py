"""The audience of one coordinator: who hears of its events. The log always does, where somebody reads it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from leasehold.core.typed import TYPE_CHECKING, Any
from leasehold.errors import InvalidRequest
from leasehold.observe import log

if TYPE_CHECKING:
    from leasehold.observe.events import Event, Observer


class Audience:
    """Observers in the order in which they were given."""

    __slots__ = ("_carriers", "_complained", "curious", "observers")

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self.observers = _checked(observers)
        self.curious = any(getattr(one, "wants_holder", False) for one in self.observers)
        self._carriers = [one.carry for one in self.observers if hasattr(one, "carry")]
        self._complained: set[int] = set()

    def listens(self) -> bool:
        """Does anybody want to hear of what happens every day?"""
        return bool(self.observers) or log.wanted(log.DEBUG)

    def joined_by(self, others: Iterable[Observer]) -> Audience:
        """Together with others, each once."""
        new = [one for one in others if all(one is not known for known in self.observers)]
        return Audience([*self.observers, *new]) if new else self

    def tell(self, event: Event) -> None:
        """An observer that raises harms nobody: neither the lease, nor the other observers. On the main thread an
        interrupt may arrive inside it, which is not its own and goes on its way."""
        log.record(event)
        for one in self.observers:
            try:
                one(event)
            except Exception as error:
                self._complain(one, error)
            except BaseException as error:
                if threading.current_thread() is threading.main_thread():
                    raise
                self._complain(one, error)

    @property
    def carries(self) -> bool:
        return bool(self._carriers)

    def carried(self) -> Mapping[str, Any]:
        """What observers want the holder's metadata to carry, such as the context of a trace."""
        found: dict[str, Any] = {}
        for carry in self._carriers:
            try:
                found.update(carry())
            except Exception as error:
                self._complain(carry, error)
        return found

    def _complain(self, culprit: object, error: BaseException) -> None:
        """Once for each: a broken observer must not fill the log."""
        if id(culprit) not in self._complained:
            self._complained.add(id(culprit))
            log.warn("an observer raised %r; it is told further, and this is said once", error, error=error)


def _checked(observers: object) -> tuple[Observer, ...]:
    if callable(observers) or not isinstance(observers, Iterable):
        raise InvalidRequest("observers is a list: observers=[observer]")
    checked = tuple(observers)
    for one in checked:
        if isinstance(one, type) or not callable(one):
            what = f"the class {one.__name__} itself" if isinstance(one, type) else f"a {type(one).__name__}"
            raise InvalidRequest(f"an observer is a callable that takes one event, not {what}")
    return checked
