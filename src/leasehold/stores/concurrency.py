"""A batch on an event loop, for connections that many tasks share: all ops are under way at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from leasehold._core.ops import Reply, StoreOp
from leasehold.errors import LeaseholdError


async def at_once(
    execute: Callable[[StoreOp], Awaitable[Reply]], ops: Sequence[StoreOp]
) -> list[Reply | LeaseholdError]:
    """Each in a task of its own. A cancellation ends all of them."""

    async def outcome(op: StoreOp) -> Reply | LeaseholdError:
        try:
            return await execute(op)
        except LeaseholdError as error:
            return error

    return list(await asyncio.gather(*[outcome(op) for op in ops]))
