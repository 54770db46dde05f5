"""What people really wanted the lock for, made only of primitives and guards."""

from __future__ import annotations

from leasehold.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.patterns.failure import RemoteError

__all__ = ["RemoteError"]

_PLACES = {"RemoteError": "failure"}  # loaded when somebody first asks for it


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'leasehold.patterns' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"leasehold.patterns.{_PLACES[name]}"), name)
    globals()[name] = value
    return value
