"""The fixtures for elections."""

from tests.support.election import ahold, hold, often, spy

__all__ = ["ahold", "hold", "often", "spy"]
