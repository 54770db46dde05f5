"""The fixtures for patterns."""

from tests.support.patterns.fixtures import cases, desk, desks, flavour

__all__ = ["cases", "desk", "desks", "flavour"]
