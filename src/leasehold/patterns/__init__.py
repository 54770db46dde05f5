"""What people really wanted the lock for, made only of primitives and guards."""

from __future__ import annotations

from leasehold.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.patterns.failure import RemoteError
    from leasehold.patterns.flight.single import AsyncFlown, AsyncSingleFlight, Flown, SingleFlight
    from leasehold.patterns.serial import Serializer

__all__ = ["AsyncFlown", "AsyncSingleFlight", "Flown", "RemoteError", "Serializer", "SingleFlight"]

# Where each name comes from. It is loaded when somebody first asks for it.
_PLACES = {
    "AsyncFlown": "flight.single",
    "AsyncSingleFlight": "flight.single",
    "Flown": "flight.single",
    "RemoteError": "failure",
    "Serializer": "serial",
    "SingleFlight": "flight.single",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'leasehold.patterns' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"leasehold.patterns.{_PLACES[name]}"), name)
    globals()[name] = value
    return value
