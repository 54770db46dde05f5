"""The fixtures for once."""

from tests.support.patterns.once.fixtures import near, stage

__all__ = ["near", "stage"]
