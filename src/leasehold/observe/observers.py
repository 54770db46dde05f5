"""The observers of one coordinator, which get its events. The log gets them as well, where it is enabled."""

from __future__ import annotations

import threading

from leasehold._core.light_typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping
from leasehold.errors import InvalidRequest
from leasehold.observe import log

if TYPE_CHECKING:
    from leasehold.observe.anti_patterns import AntiPatterns
    from leasehold.observe.events import Event, Observer

MOST_KINDS = 1000  # that are remembered
MOST_LIMITS = 1000
MOST_CARRIED_BYTES = 1024  # as JSON, in addition to the user's own metadata


class Observers:
    """Observers in the order in which they were given, each once."""

    __slots__ = ("_anti_patterns", "_carriers", "_kinds", "_limits", "_reported", "observers", "wants_holder")

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self.observers = _checked(observers)
        self.wants_holder = any(getattr(one, "wants_holder", False) for one in self.observers)
        self._carriers = [one.carry for one in self.observers if hasattr(one, "carry")]
        self._reported: set[int] = set()
        self._kinds: set[str] = set()
        self._limits: set[tuple[str, int]] = set()
        self._anti_patterns = _anti_patterns() if self.observers else None

    def active(self) -> bool:
        """Whether there is an observer, or a log, for routine events."""
        return bool(self.observers) or log.enabled(log.DEBUG)

    def notify(self, event: Event, others: Iterable[Observer] = ()) -> None:
        """Pass an event to the log, to all observers, and to the others that are not among them."""
        self._call(log.record, log.record, event)
        for one in self.observers:
            self._call(one, one, event)
        for one in others:
            if one not in self.observers:
                self._call(one, one, event)
        if self._anti_patterns is not None:
            self._call(self._anti_patterns, self._find_anti_pattern, event)

    def _find_anti_pattern(self, event: Event) -> None:
        found = self._anti_patterns.find(event)  # type: ignore[union-attr]  # there are observers
        if found is not None:
            self.notify(found)

    def first_unguarded(self, kind: str) -> bool:
        """Whether this is the first unguarded lease of its kind: a warning is logged once, later ones are counted."""
        if kind in self._kinds or len(self._kinds) >= MOST_KINDS:
            return False
        self._kinds.add(kind)
        return True

    def first_differing_limit(self, resource: str, found: int) -> bool:
        """Whether this semaphore was found with this limit, which is not that of the claim, for the first time."""
        if (resource, found) in self._limits or len(self._limits) >= MOST_LIMITS:
            return False
        self._limits.add((resource, found))
        return True

    def carried(self, number: int) -> Mapping[str, Any]:
        """What observers add to the metadata of this acquire's lease, such as the context of a trace."""
        found: dict[str, Any] = {}
        for carry in self._carriers:
            self._call(carry, _add_carried, found, carry, number)
        return found

    def _call(self, observer: object, call: Callable[..., object], *args: Any) -> None:
        """An observer that raises affects neither the lease nor the other observers. On the main thread an interrupt
        may arrive inside the call: that is not the observer's error, and is raised."""
        try:
            call(*args)
        except Exception as error:
            self._report(observer, error)
        except BaseException as error:
            if threading.current_thread() is threading.main_thread():
                raise
            self._report(observer, error)

    def _report(self, observer: object, error: BaseException) -> None:
        """Log the error, once for each observer: a broken one must not fill the log."""
        if id(observer) not in self._reported:
            self._reported.add(id(observer))
            log.warn("an observer raised %r; it still gets events, and this is logged once", error, error=error)


def _anti_patterns() -> AntiPatterns:
    from leasehold.observe.anti_patterns import AntiPatterns  # only where there are observers

    return AntiPatterns()


def _add_carried(found: dict[str, Any], carry: Callable[[int], Mapping[str, Any]], number: int) -> None:
    """Refuse what is no JSON, or too large."""
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
