"""The fixtures for single_flight."""

from tests.support.patterns.flight.fixtures import counted, memory, side

__all__ = ["counted", "memory", "side"]
