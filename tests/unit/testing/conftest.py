"""The plugin's own fixtures, whether or not the installation that runs the tests knows its entry point by now."""

from leasehold.testing.plugin import (
    async_hold,
    connect_async_leasehold,
    connect_leasehold,
    hold,
    leasehold_clock,
    leasehold_store,
    leasehold_url,
)

__all__ = [
    "async_hold",
    "connect_async_leasehold",
    "connect_leasehold",
    "hold",
    "leasehold_clock",
    "leasehold_store",
    "leasehold_url",
]
