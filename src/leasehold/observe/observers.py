"""The audience of one coordinator: who hears of its events. The log always does, where somebody reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold.errors import InvalidRequest
from leasehold.observe import log

if TYPE_CHECKING:
    from leasehold.observe.events import Event, Observer

MOST_KINDS = 1000  # that are remembered
MOST_LIMITS = 1000
MOST_CARRIED_BYTES = 1024  # as JSON, besides what the user says about the holder


class Observers:
    """Observers in the order in which they were given, each once."""

    __slots__ = ("_carriers", "_complained", "_kinds", "_limits", "curious", "observers")

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self.observers = _checked(observers)
        self.curious = any(getattr(one, "wants_holder", False) for one in self.observers)
        self._carriers = [one.carry for one in self.observers if hasattr(one, "carry")]
        self._complained: set[int] = set()
        self._kinds: set[str] = set()
        self._limits: set[tuple[str, int]] = set()

    def listens(self) -> bool:
        """Does anybody want to hear of what happens every day?"""
        return bool(self.observers) or log.wanted(log.DEBUG)

    def tell(self, event: Event, others: Iterable[Observer] = ()) -> None:
        """Everybody, and others who are not here anyway."""
        self._call(log.record, log.record, event)
        for one in self.observers:
            self._call(one, one, event)
        for one in others:
            if one not in self.observers:
                self._call(one, one, event)

    def first_of(self, kind: str) -> bool:
        """Is this the first unguarded lease of its kind? A habit is told once, and counted further."""
        if kind in self._kinds or len(self._kinds) >= MOST_KINDS:
            return False
        self._kinds.add(kind)
        return True

    def first_limit(self, resource: str, found: int) -> bool:
        """Is this the first time that this semaphore was found with this limit, and not with the one that was asked
        for?"""
        if (resource, found) in self._limits or len(self._limits) >= MOST_LIMITS:
            return False
        self._limits.add((resource, found))
        return True

    def carried(self, number: int) -> Mapping[str, Any]:
        """What observers want the metadata of this acquire's lease to carry, such as the context of a trace."""
        found: dict[str, Any] = {}
        for carry in self._carriers:
            self._call(carry, _put_into, found, carry, number)
        return found

    def _call(self, observer: object, call: Callable[..., object], *args: Any) -> None:
        """An observer that raises harms nobody: neither the lease, nor the other observers. On the main thread an
        interrupt may arrive inside it, which is not its own and goes on its way."""
        try:
            call(*args)
        except Exception as error:
            self._complain(observer, error)
        except BaseException as error:
            if threading.current_thread() is threading.main_thread():
                raise
            self._complain(observer, error)

    def _complain(self, culprit: object, error: BaseException) -> None:
        """Once for each: a broken observer must not fill the log."""
        if id(culprit) not in self._complained:
            self._complained.add(id(culprit))
            log.warn("an observer raised %r; it is told further, and this is said once", error, error=error)


def _put_into(found: dict[str, Any], carry: Callable[[int], Mapping[str, Any]], number: int) -> None:
    """Only what can be written down, and is small, may travel."""
    import json

    more = dict(carry(number))
    size = len(json.dumps(more, allow_nan=False).encode())
    if size > MOST_CARRIED_BYTES:
        raise InvalidRequest(f"what an observer carries takes at most {MOST_CARRIED_BYTES} bytes as JSON, not {size}")
    found.update(more)


def _checked(observers: object) -> tuple[Observer, ...]:
    if callable(observers) or not isinstance(observers, Iterable):
        raise InvalidRequest("observers is a list: observers=[observer]")
    checked: list[Observer] = []
    for one in observers:
        if isinstance(one, type) or not callable(one):
            what = f"the class {one.__name__} itself" if isinstance(one, type) else f"a {type(one).__name__}"
            raise InvalidRequest(f"an observer is a callable that takes one event, not {what}")
        if one not in checked:
            checked.append(one)
    return tuple(checked)
