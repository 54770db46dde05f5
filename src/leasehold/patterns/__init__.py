"""What people really wanted the lock for, made only of primitives and guards."""

from __future__ import annotations

from leasehold.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.patterns.failure import RemoteError
    from leasehold.patterns.once import AsyncOnce, AsyncOnceKey, KeyReused, Once, OnceKey, ResultNotKept

__all__ = ["AsyncOnce", "AsyncOnceKey", "KeyReused", "Once", "OnceKey", "RemoteError", "ResultNotKept"]

_PLACES = {  # loaded when somebody first asks for it
    "AsyncOnce": "once",
    "AsyncOnceKey": "once",
    "KeyReused": "once",
    "Once": "once",
    "OnceKey": "once",
    "RemoteError": "failure",
    "ResultNotKept": "once",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'leasehold.patterns' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"leasehold.patterns.{_PLACES[name]}"), name)
    globals()[name] = value
    return value
