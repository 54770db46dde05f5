"""The lines that are printed are those of the pages."""

from __future__ import annotations

from pathlib import Path

from leasehold.doctor import rights
from leasehold.stores.etcd.urls import from_url

DOCS = Path(__file__).parents[3] / "docs"


def test_the_pages_have_the_same_lines() -> None:
    """Redis, Cluster, Sentinel, etcd."""
    assert {rights.redis_line(), rights.operator_line()} <= set((DOCS / "redis.md").read_text().splitlines())
    assert " ".join(f"+{one}" for one in rights.CLUSTER) in (DOCS / "redis-cluster.md").read_text()
    assert rights.sentinel_line() in (DOCS / "sentinel.md").read_text().splitlines()
    page = (DOCS / "etcd.md").read_text()
    assert all(line in page for line in rights.etcd_lines(from_url("etcd://host"))[:2])


def test_every_command_is_checked_as_it_is_used() -> None:
    """The number of words in front of each tells where the next begins."""
    words, commands = rights.arguments(), []
    while words:
        count = int(words[0])
        commands.append(words[1 : count + 1])
        words = words[count + 1 :]
    assert [one[0] for one in commands] == list(rights.REDIS)
    assert rights.OPERATOR.keys() == rights.COMMANDS.keys()
