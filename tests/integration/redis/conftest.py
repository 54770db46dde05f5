"""The fixtures for Redis."""

from tests.support.redis.fixtures import async_stage, hasty, own_stage, stage

__all__ = ["async_stage", "hasty", "own_stage", "stage"]
