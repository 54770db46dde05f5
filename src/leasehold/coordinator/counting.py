"""``hold.semaphore`` in both flavours: what it takes, checked before anything is sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, TypeVar
from leasehold._core.permits import check_count, check_permits, check_room
from leasehold.primitives.base_lock import UNSET, Unset

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._core.names import Name
    from leasehold._runtime.options import Options
    from leasehold.coordinator import Id

S = TypeVar("S")


class Counting(ABC, Generic[S]):
    """What both flavours share."""

    _default_wait: float | None
    _asked: Any

    def semaphore(
        self,
        kind: str,
        *ids: Id,
        limit: int,
        permits: int = 1,
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> S:
        """At most ``limit`` permits of one resource at once, first come first served, each with a numbered slot.

        ``permits`` is how many ``with`` takes: all of them at once, in one lease. The limit that a claim brings decides
        until ``resize`` stores one for everybody; when others go by another one, the event ``LimitDiffers`` says so.
        The other options are those of ``lock``; ``at_least`` and ``delay`` keep only the slots of their own permit. A
        thread or task that enters twice has two permits.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     with hold.semaphore("api", limit=3, ttl="10s") as permit:
        ...         permit.slot
        0
        """
        if isinstance(wait, Unset):
            wait = self._default_wait
        checked = check_count(limit, "limit")
        asked = (ttl, wait, renew, max_hold, max_idle, at_least, delay, False, protects)
        name, options = self._asked(kind, ids, asked, meta)
        return self._make_semaphore(check_room(name), options, checked, check_permits(permits, checked))

    @abstractmethod
    def _make_semaphore(self, name: Name, options: Options, limit: int, permits: int) -> S: ...
