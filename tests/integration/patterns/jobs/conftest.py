"""The fixtures for jobs."""

from tests.support.patterns.jobs.fixtures import shop, store

__all__ = ["shop", "store"]
