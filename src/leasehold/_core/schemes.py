"""The stores that ``connect`` opens, and the schemes of their URLs: one list.

``connect`` and its errors, ``advise``, ``leasehold guarantees`` and the tables of the pages all read it, so that
nothing is recommended that cannot be opened. The names are those of ``guarantee_table``.
"""

from __future__ import annotations

from leasehold._core.light_typing import NamedTuple


class Opened(NamedTuple):
    """A store that ``connect`` opens."""

    words: str  # what people call it
    example: str  # of its URL
    schemes: tuple[str, ...]


OPENED = {
    "memory": Opened("memory", "memory://", ("memory",)),
    "sqlite": Opened("the embedded store", "sqlite:///path/to/file.db", ("sqlite",)),
    "redis": Opened("one Redis", "redis://host", ("redis", "rediss", "unix", "valkey", "valkeys")),
    "sentinel": Opened(
        "Sentinel",
        "redis+sentinel://host1,host2,host3/service",
        ("redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel"),
    ),
    "cluster": Opened(
        "Redis Cluster",
        "redis+cluster://host1,host2",
        ("redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster"),
    ),
    "redlock": Opened("Redlock", "redlock://host1,host2,host3", ("redlock",)),
    "postgresql": Opened("PostgreSQL", "postgresql://host/database", ("postgresql", "postgres", "postgresql+psycopg")),
    "etcd": Opened("etcd", "etcd://host1,host2,host3", ("etcd", "etcds")),
    "zookeeper": Opened("ZooKeeper", "zk://host1,host2,host3/chroot", ("zk",)),
}


def examples() -> str:
    """A URL for each store, for an error: ``redis://host, sqlite:///path/to/file.db or memory://``."""
    *others, last = [one.example for one in reversed(OPENED.values())]
    return f"{', '.join(others)} or {last}"


def store_of(scheme: str) -> str | None:
    """The name of the store that ``connect`` opens for this scheme."""
    return next((name for name, one in OPENED.items() if scheme in one.schemes), None)
