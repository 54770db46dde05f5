"""``hold.rwlock`` in both flavours: read-write locks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.names import known_name, make_name
from leasehold.primitives.base_lock import Unset

if TYPE_CHECKING:
    from datetime import date
    from uuid import UUID

    from leasehold._core.names import Name
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold._runtime.options import Options
    from leasehold.primitives.rwlock import AsyncReadWriteLock, Check, ReadWriteLock

    Id = str | int | UUID | date


class Sharing:
    """For threads."""

    _engine: Engine

    def rwlock(self, kind: str, *ids: Id) -> ReadWriteLock:
        """A read-write lock on one resource: ``read()`` gives a lock that many hold together, ``write()`` one that is
        held alone. Both take all that ``lock`` takes.

        First come, first served: a reader that comes while a writer waits stands behind it, and readers who stand next
        to each other come in together. ``lease.downgrade()`` lowers a writer's lease to a reader's.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     config = hold.rwlock("config", "nl")
        ...     with config.write(ttl="10s") as lease:
        ...         config.read().try_acquire() is None
        True
        """
        from leasehold.primitives.rwlock import ReadWriteLock

        return ReadWriteLock(self._engine, *_resource(self, kind, ids))


class AsyncSharing:
    """For asyncio."""

    _engine: Engine
    _driver: AsyncDriver

    def rwlock(self, kind: str, *ids: Id) -> AsyncReadWriteLock:
        """A read-write lock on one resource; see :meth:`leasehold.Leasehold.rwlock`."""
        from leasehold.primitives.rwlock import AsyncReadWriteLock

        return AsyncReadWriteLock(self._engine, *_resource(self, kind, ids), self._driver)


def _resource(hold: Any, kind: str, ids: tuple[Id, ...]) -> tuple[Name, Check]:
    """Which one, checked at once; and how its sides will be."""
    try:
        name = known_name(hold._namespace, hold._id_key, kind, *ids)
    except TypeError:  # what cannot be hashed is refused as any other wrong thing
        name = make_name(hold._namespace, kind, ids, hold._id_key)
    return name, partial(_options, hold, kind, ids)


def _options(
    hold: Any, kind: str, ids: tuple[Id, ...], asked: tuple[Any, ...], meta: Mapping[str, Any] | None
) -> Options:
    """How one side is to be held, checked as those of ``lock`` are."""
    ttl, wait, *rest = asked
    if isinstance(wait, Unset):
        wait = hold._default_wait
    options: Options = hold._asked(kind, ids, (ttl, wait, *rest), meta)[1]
    return options
