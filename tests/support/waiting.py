"""Waiting for something, with an end: what must happen is waited for, however busy the machine is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0  # seconds after which a test fails in place of waiting on; much more than anything takes


def until(condition: Callable[[], Any], what: str = "it", within: float = PATIENCE, every: float = 0.002) -> Any:
    """What the condition gives, as soon as that is true. ``every``: seconds between two looks, more for one that keeps
    servers busy."""
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"never came true: {what}"
        time.sleep(every)
    return found


async def until_async(condition: Callable[[], Any], what: str = "it", within: float = PATIENCE) -> Any:
    """The same, without blocking the event loop."""
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"never came true: {what}"
        await asyncio.sleep(0.002)
    return found
