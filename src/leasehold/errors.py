"""Every error that Leasehold raises, and what to do about each.

    LeaseholdError
    ├── NotAcquired (TimeoutError)           busy, or the wait ran out: worth a try within .retry_in
    ├── LeaseLost                            ours once, no longer: stop the work
    ├── StaleOwner                           a guard refused an older fence: stop the work
    ├── NotHeld (RuntimeError)               release or extend by a caller that does not hold
    ├── StoreUnavailable (ConnectionError)   the store could not be reached, and nothing was taken
    ├── OutcomeUnknown (ConnectionError)     the call may have happened; it is cleaned up in the background
    ├── Unsupported                          this store cannot promise what was asked
    └── InvalidRequest (ValueError)          bad ttl, name, limit or URL; or a wait for oneself, for ever

Two more belong to guards and patterns: ``leasehold.guards.Conflict`` (below) is a StoreUnavailable, and
``leasehold.guards.sql.NoSuchRow`` a LookupError.

All carry ``.resource``, ``.owner`` (its public part) and ``.fence`` where they are known, and all can be
pickled: an error often crosses a process boundary before it is read.
"""

from __future__ import annotations

TYPE_CHECKING = False  # for type checkers alone, which know this name: see _core/light_typing.py

if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "InvalidRequest",
    "LeaseLost",
    "LeaseholdError",
    "NotAcquired",
    "NotHeld",
    "OutcomeUnknown",
    "StaleOwner",
    "StoreUnavailable",
    "Unsupported",
]


class LeaseholdError(Exception):
    """The root of the tree: ``except LeaseholdError`` catches everything that is ours."""

    def __init__(
        self,
        message: str = "",
        *,
        resource: str | None = None,
        owner: str | None = None,
        fence: int | None = None,
    ) -> None:
        super().__init__(message)
        self.resource = resource
        self.owner = owner
        self.fence = fence

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(cls: type[LeaseholdError], args: tuple[Any, ...], fields: dict[str, Any]) -> LeaseholdError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class NotAcquired(LeaseholdError, TimeoutError):
    """Another holder has it: ``.holder``. ``.retry_in`` is in how many seconds, at the latest, a try is worth it: then
    the holder's lease expires, unless it is renewed; it may be given back at any moment before. Of a semaphore,
    ``.limit`` is the limit that others go by, when it differs from the requested one."""

    def __init__(
        self,
        message: str = "",
        *,
        holder: str | None = None,
        retry_in: float | None = None,
        limit: int | None = None,
        resource: str | None = None,
        owner: str | None = None,
        fence: int | None = None,
    ) -> None:
        super().__init__(message, resource=resource, owner=owner, fence=fence)
        self.holder = holder
        self.retry_in = retry_in
        self.limit = limit


class LeaseLost(LeaseholdError):
    """The lease was ours and is no longer: whatever it protected must stop now.

    ``.reason`` is one of ``expired``, ``taken``, ``deleted``, ``evicted``, ``renewal_failed``,
    ``max_hold``, ``max_idle``, ``closed``, ``forked``; of a leader also ``resigned``, ``unhealthy``.
    Of ``renewal_failed`` the ``__cause__`` is the last error that a renewal ended with.
    """

    def __init__(
        self,
        message: str = "",
        *,
        reason: str = "expired",
        resource: str | None = None,
        owner: str | None = None,
        fence: int | None = None,
    ) -> None:
        super().__init__(message, resource=resource, owner=owner, fence=fence)
        self.reason = reason


class StaleOwner(LeaseholdError):
    """A guard has seen a newer fence (``.seen``) than the one presented (``.fence``): roll back."""

    def __init__(
        self,
        message: str = "",
        *,
        seen: int | None = None,
        resource: str | None = None,
        owner: str | None = None,
        fence: int | None = None,
    ) -> None:
        super().__init__(message, resource=resource, owner=owner, fence=fence)
        self.seen = seen


class NotHeld(LeaseholdError, RuntimeError):
    """Release or extend by a thread, task or process that does not hold the lease."""


class StoreUnavailable(LeaseholdError, ConnectionError):
    """The store could not be reached or refused to work; nothing was taken."""


class Conflict(StoreUnavailable):
    """Another process was faster, and nothing was written: run the whole step again, from its first read.

    In SQL: a serialization failure, a deadlock, a lock that took too long. Roll back, and begin a new transaction. In
    object storage: the object has changed since it was read. A conflict says nothing about which owner is newer; that
    is StaleOwner. ``Backoff.call`` and ``acall`` try again after it; give them the whole step, with the read in it."""


class OutcomeUnknown(LeaseholdError, ConnectionError):
    """The call may or may not have happened. It may be repeated; Leasehold cleans up in the background."""


class Unsupported(LeaseholdError):
    """This store cannot promise what was asked for. Raised at construction, never later."""


class InvalidRequest(LeaseholdError, ValueError):
    """The request itself is wrong; nothing was taken. To wait without an end, inside the body of one's own lease, for
    that lease to end is wrong, too."""
