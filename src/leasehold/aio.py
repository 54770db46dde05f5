"""The asyncio flavour: ``leasehold.aio.connect`` returns an AsyncLeasehold, with the same methods, awaited."""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold.coordinator import AsyncLeasehold
from leasehold.coordinator.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold._core.durations import Duration
    from leasehold.coordinator.stores import Target
    from leasehold.observe.events import Observer

__all__ = ["connect"]


def connect(
    target: Target | None = None,
    *,
    namespace: str | None = None,
    wait: Duration | None = None,
    observers: Iterable[Observer] = (),
    hide_ids: str | bytes | None = None,
    durability: str | None = None,
    slot: str | None = None,
    shared: bool | None = None,
    show_ids: bool = False,
) -> AsyncLeasehold:
    """A coordinator for asyncio, over the store that ``target`` names; see :func:`leasehold.connect`."""
    return AsyncLeasehold(
        open_store(target, slot, shared, namespace),
        namespace=namespace,
        wait=wait,
        observers=observers,
        hide_ids=hide_ids,
        durability=durability,
        show_ids=show_ids,
    )
