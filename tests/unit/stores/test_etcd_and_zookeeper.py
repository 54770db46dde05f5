"""What etcd and ZooKeeper cannot do is refused when an object is made. Nothing is opened, and nobody is there."""

from __future__ import annotations

from typing import Any

import pytest

import leasehold
from leasehold import Unsupported
from leasehold._core.types import Capabilities
from tests.support.tables import each

URLS = ["etcd://a,b,c", "zk://a,b,c"]


@each("url", URLS)
@each("connect", [leasehold.connect, leasehold.aio.connect])
def test_all_takes_sixty(connect: Any, url: str) -> None:
    """One change has no more room."""
    hold = connect(url)
    locks = [hold.lock("stock", number) for number in range(61)]
    assert hold.all(*locks[:60])
    with pytest.raises(Unsupported, match="at most 60 resources"):
        hold.all(*locks)


@each("url", URLS)
def test_durability(url: str) -> None:
    """Every grant is on the disks of a majority: there is nothing to choose."""
    with pytest.raises(Unsupported, match="or always does, as etcd and ZooKeeper do"):
        leasehold.connect(url, durability="replicas:1")
    with leasehold.connect(url) as hold, pytest.raises(Unsupported, match="durability="):
        hold.lock("stock", durability="fsync")


@each("url", URLS)
def test_everything_else(url: str) -> None:
    """The list on the page that compares the stores is complete: these are the capabilities of one that can do all."""
    with leasehold.connect(url) as hold:
        assert hold._engine.store.capabilities == Capabilities(hosts=True, lingering=False)
