"""A guard that checks in a transaction of its own, for those who have none: a door, such as a middleware."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown
from leasehold.guards.conflict import Conflict
from leasehold.guards.fence import Fenced
from leasehold.guards.sql.failures import translated

if TYPE_CHECKING:
    from leasehold.guards.sql import FenceGuard

Begin = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]


class TransactionGuard:
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
        with self._ours() as passed:
            transaction: Any = self._begin()
            if hasattr(transaction, "__enter__"):
                with transaction as tx:
                    _require_done(self._guard.check(tx, lease_or_fence, **more))
                    passed.append(True)
                _require(passed)
                return None
            if not hasattr(transaction, "__aenter__"):
                raise _no_manager(transaction)
        return self._awaited(transaction, lease_or_fence, more)

    async def _awaited(self, transaction: Any, lease_or_fence: Fenced | int, more: dict[str, Any]) -> None:
        with self._ours() as passed:
            async with transaction as tx:
                waiting: Any = self._guard.check(tx, lease_or_fence, **more)
                if waiting is not None:
                    await waiting
                passed.append(True)
            _require(passed)

    @contextmanager
    def _ours(self) -> Iterator[list[bool]]:
        """Whatever goes wrong leaves as one of ours. What fails after the check has passed is the commit."""
        passed: list[bool] = []
        try:
            yield passed
        except LeaseholdError:
            raise
        except Exception as error:
            ours = translated(error, self._guard.table)
            if passed and not isinstance(ours, Conflict):
                ours = OutcomeUnknown(
                    f"the commit of a check failed ({type(error).__name__}): the fence may or may not be remembered. "
                    "The check may be repeated"
                )
            raise ours from error


def _require(passed: list[bool]) -> None:
    """A context manager may swallow errors, and with them our refusal."""
    if not passed:
        raise InvalidRequest("the check has not passed, and begin= has swallowed why: it must let errors through")


def _require_done(waiting: Any) -> None:
    """An async connection out of a sync context manager: nobody would await the check, and it would never be made."""
    if waiting is not None:
        waiting.close()
        raise InvalidRequest("this connection is awaited: begin= must give an async context manager for it")


def _no_manager(given: object) -> InvalidRequest:
    return InvalidRequest(
        f"begin= gives a context manager that begins a transaction and commits it, such as engine.begin, and not "
        f"{type(given).__name__}"
    )
