"""Servers that stand in for those which pages name, beside the ones that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers.etcd import EtcdServer
from tests.support.servers.zookeeper import ZooKeeperServer


@pytest.fixture
def etcd_of_page() -> Iterator[EtcdServer]:
    """One member, empty."""
    with EtcdServer() as server:
        yield server


@pytest.fixture
def zookeeper_of_page() -> Iterator[ZooKeeperServer]:
    """The same."""
    with ZooKeeperServer() as server:
        yield server
