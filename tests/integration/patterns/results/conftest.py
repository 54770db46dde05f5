"""The fixtures for result stores."""

from tests.support.patterns.results.fixtures import cluster, old_server, results, valkey_server

__all__ = ["cluster", "old_server", "results", "valkey_server"]
