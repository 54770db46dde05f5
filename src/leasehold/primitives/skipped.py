"""SKIPPED: what a decorated function returns when somebody else was at it and ``on_busy`` is ``"skip"``."""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum

from leasehold._core.light_typing import Final, Literal

_here: ContextVar[float | None] = ContextVar("leasehold_skipped_retry_in")
_anywhere: float | None = None


class Skipped(Enum):  # an Enum of one: type checkers narrow `result is SKIPPED`, and pickle and copy give itself
    """The type of :data:`leasehold.SKIPPED`, for annotations. There is one instance, and it is falsy.

    >>> import leasehold
    >>> leasehold.SKIPPED, bool(leasehold.SKIPPED)
    (SKIPPED, False)
    """

    SKIPPED = "SKIPPED"

    @property
    def retry_in(self) -> float | None:
        """In how many seconds a try is worth it at the latest, as in NotAcquired: of the last call that was skipped in
        this thread or task; where none was, the last of the whole process. None before any."""
        return _here.get(_anywhere)

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "SKIPPED"

    __str__ = __repr__


SKIPPED: Final = Skipped.SKIPPED


def skip(retry_in: float | None) -> Skipped:
    """A call is skipped now, in this thread or task."""
    global _anywhere
    _anywhere = retry_in
    _here.set(retry_in)
    return SKIPPED
