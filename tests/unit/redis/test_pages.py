"""The pages of Cluster and Sentinel say what the capabilities say."""

from __future__ import annotations

from pathlib import Path

from leasehold._core.types import Capabilities
from leasehold.coordinator.stores import open_store
from leasehold.stores.redis import RedisStore

DOCS = Path(__file__).parents[3] / "docs"
ROWS = {"one_slot": "| `hold.all` |"}  # of the table "What differs from one server"


def test_the_page_of_a_cluster_lists_what_differs_from_one_server() -> None:
    """Every capability that is another than that of one server has a row, and no row is left over."""
    stated, usual = open_store("redis+cluster://a,b").capabilities, RedisStore.capabilities
    differs = {name for name in Capabilities._fields if getattr(stated, name) != getattr(usual, name)}
    section = (DOCS / "redis-cluster.md").read_text("utf-8").partition("## What differs from one server")[2]
    assert differs == set(ROWS)
    assert [name for name, row in ROWS.items() if row not in section] == []


def test_the_page_of_sentinels_says_that_nothing_differs() -> None:
    """They can do all that one server can."""
    assert open_store("redis+sentinel://a,b,c/leases").capabilities == RedisStore.capabilities
    page = (DOCS / "sentinel.md").read_text("utf-8")
    assert (
        "Everything on [Redis and Valkey](redis.md) holds here as well: the same keys, options, pushes and limits"
        in page
    )
