"""Errors of patterns, and how an error of the user's function is stored in place of a result.

It is stored as its classes and its message in JSON, never pickled: a result store that others can write to must not
make us run code. So the error itself is raised only in the process where it happened; elsewhere it is a RemoteError.
"""

from __future__ import annotations

from typing import Any

from leasehold.errors import InvalidRequest, LeaseholdError

LONGEST_MESSAGE = 10_000  # characters
MOST_KINDS = 20


class KeyReused(InvalidRequest):
    """The same key came with another body than before: their fingerprints differ. Nothing was run. Use a new key for a
    new request."""


class RemoteError(LeaseholdError):
    """The function failed in another process, with an error of class ``.kind`` (such as ``builtins.ValueError``) and
    with ``.message``. ``.kinds`` are its class and all base classes; ``was(ValueError)`` searches them."""

    def __init__(
        self,
        message: str = "",
        *,
        kinds: tuple[str, ...] = (),
        resource: str | None = None,
        owner: str | None = None,
        fence: int | None = None,
    ) -> None:
        super().__init__(f"{kinds[0]}: {message}" if kinds else message, resource=resource, owner=owner, fence=fence)
        self.message = message
        self.kinds = kinds

    @property
    def kind(self) -> str:
        """The class of the error, with its module."""
        return self.kinds[0] if self.kinds else ""

    def was(self, kind: type[BaseException]) -> bool:
        """Whether it was of that class, or of one that derives from it, where it happened.

        >>> RemoteError("no such page", kinds=("builtins.KeyError", "builtins.LookupError")).was(LookupError)
        True
        """
        return _named(kind) in self.kinds


class ResultNotKept(InvalidRequest):
    """The function ran, and its result could not be kept: it cannot be written as text, or no result store can hold it.
    The caller that ran it has the result. Later callers get this error, and the function does not run again: under
    ``once`` for as long as the result would have been kept, under ``single_flight`` for as long as it would have been
    fresh."""


def error_record(error: Exception) -> dict[str, Any]:
    """An error as JSON. A RemoteError is written as the error that it stands for."""
    if isinstance(error, RemoteError):
        return {"kinds": list(error.kinds), "message": error.message}
    kinds = [_named(kind) for kind in type(error).__mro__ if issubclass(kind, Exception)]
    return {"kinds": kinds[:MOST_KINDS], "message": _message(error)}


def remote_error(written: Any, resource: str | None = None, fence: int | None = None) -> RemoteError:
    """The error in an ``error_record``, to be raised in another process."""
    kinds = tuple(str(kind) for kind in written["kinds"])
    return RemoteError(str(written["message"]), kinds=kinds, resource=resource, fence=fence)


def _named(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _message(error: Exception) -> str:
    """Its text, in a form that every result store can hold. ``str()`` of an error may itself fail."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be read)"
    return text[:LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode()
