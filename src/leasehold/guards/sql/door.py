"""A guard that checks in a transaction of its own, for those who have none: a door, such as a middleware."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any

from leasehold.errors import InvalidRequest, LeaseholdError
from leasehold.guards.fence import Fenced
from leasehold.guards.sql.failures import translated

if TYPE_CHECKING:
    from leasehold.guards.sql import FenceGuard

Begin = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]


class Door:
    """``begin`` gives a context manager that begins a transaction, gives its connection, and commits:
    ``engine.begin``, ``pool.connection``. With an async one ``check`` is awaited.

    A check at a door and a write behind it are two steps: a stale owner that has passed may still write after a newer
    one. Whoever needs more checks again in the transaction that writes."""

    __slots__ = ("_begin", "_guard")

    def __init__(self, guard: FenceGuard, begin: Begin) -> None:
        if not callable(begin):
            raise InvalidRequest("begin is called for each check, and gives a transaction: guard.within(engine.begin)")
        self._guard = guard
        self._begin = begin

    def check(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Coroutine[Any, Any, None] | None:
        """Accept and remember this fence, or raise StaleOwner and change nothing."""
        self._guard.present(lease_or_fence, resource, owner, shared)
        more: dict[str, Any] = {"resource": resource, "owner": owner, "shared": shared}
        try:
            transaction: Any = self._begin()
            if not hasattr(transaction, "__enter__"):
                return self._awaited(transaction, lease_or_fence, more)
            with transaction as tx:
                self._guard.check(tx, lease_or_fence, **more)
                return None
        except LeaseholdError:
            raise
        except Exception as error:
            raise translated(error, self._guard.table) from error

    async def _awaited(self, transaction: Any, lease_or_fence: Fenced | int, more: dict[str, Any]) -> None:
        try:
            async with transaction as tx:
                waiting: Any = self._guard.check(tx, lease_or_fence, **more)
                await waiting
        except LeaseholdError:
            raise
        except Exception as error:
            raise translated(error, self._guard.table) from error
