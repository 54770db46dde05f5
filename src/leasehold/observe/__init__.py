"""What happens to leases, reported: ``events`` (plain data, for observers), ``log`` (the standard library's logging),
and the observers that come with Leasehold. Pass observers to ``connect(..., observers=[...])``. ``JsonFormatter``
writes log records as JSON."""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.observe.json_log import JsonFormatter

__all__ = ["JsonFormatter"]


def __getattr__(name: str) -> object:
    """Loaded at its first use: it needs ``logging`` and ``json``, and a short command does not."""
    if name != "JsonFormatter":
        raise AttributeError(f"module 'leasehold.observe' has no attribute {name!r}")
    from leasehold.observe.json_log import JsonFormatter

    return JsonFormatter
