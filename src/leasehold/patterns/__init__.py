"""What people really wanted the lock for, made only of primitives and guards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasehold.patterns.cron import AsyncCron, Cron, Run

__all__ = ["AsyncCron", "Cron", "Run"]

_PLACES = {
    "AsyncCron": "leasehold.patterns.cron",
    "Cron": "leasehold.patterns.cron",
    "Run": "leasehold.patterns.cron",
}


def __getattr__(name: str) -> Any:
    """Loaded when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
