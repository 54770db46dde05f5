"""Help for tests of applications: the fixtures of the pytest plugin, and the functions below.

from leasehold.testing import expire, freeze, outage

def test_a_late_write_is_refused(hold, connect_leasehold, leasehold_clock):
    lease = hold.lock("report", 42, ttl="30s").acquire()
    with freeze(lease):                          # as if its process were paused
        leasehold_clock.advance("31s")
        newer = connect_leasehold().lock("report", 42).acquire()
    assert lease.state == "lost" and newer.fence > lease.fence
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasehold.testing.clock import TurnableClock
    from leasehold.testing.standin import StandInStore
    from leasehold.testing.trouble import Freeze, expire, freeze, outage

__all__ = ["Freeze", "StandInStore", "TurnableClock", "expire", "freeze", "outage"]

_HOMES = {"StandInStore": "standin", "TurnableClock": "clock"}


def __getattr__(name: str) -> Any:
    """pytest loads this package in every run where Leasehold is installed, so nothing else is imported before use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'trouble')}"), name)
