"""Servers that agree by consensus, for tests of what they promise: one of each, and ensembles of three."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.servers.clock import WallClock
from tests.support.servers.etcd import EtcdEnsemble, EtcdServer
from tests.support.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer


class ClockedZooKeeper(ZooKeeperServer):
    """One whose wall clock a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = WallClock()

    def _environment(self) -> dict[str, str]:
        return self.clock.environment()


@pytest.fixture(scope="session")
def shared_etcd_server() -> Iterator[EtcdServer]:
    """For the whole run; take ``etcd_server``."""
    with EtcdServer() as server:
        yield server


@pytest.fixture
def etcd_server(shared_etcd_server: EtcdServer) -> EtcdServer:
    """An empty etcd, which nobody harms."""
    shared_etcd_server.wipe()
    return shared_etcd_server


@pytest.fixture
def etcd_url(shared_etcd_server: EtcdServer) -> str:
    """A prefix of one's own there."""
    return f"etcd://127.0.0.1:{shared_etcd_server.port}/test-{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def shared_zookeeper_server() -> Iterator[ClockedZooKeeper]:
    """For the whole run; take ``zookeeper_server``."""
    with ClockedZooKeeper() as server:
        yield server


@pytest.fixture
def zookeeper_server(shared_zookeeper_server: ClockedZooKeeper) -> ClockedZooKeeper:
    """A ZooKeeper with a clock, which is right at first; nobody harms the server."""
    shared_zookeeper_server.clock.set_off(0)
    return shared_zookeeper_server


@pytest.fixture
def chroot() -> str:
    """Of a tree that nobody has made yet."""
    return f"/leasehold-{secrets.token_hex(4)}"


@pytest.fixture
def zookeeper_url(zookeeper_server: ClockedZooKeeper, chroot: str) -> str:
    """A tree of one's own there."""
    return zookeeper_server.url(chroot)


@pytest.fixture(scope="session")
def shared_etcd_ensemble() -> Iterator[EtcdEnsemble]:
    """For the whole run; take ``etcd_ensemble``."""
    with EtcdEnsemble() as ensemble:
        yield ensemble


@pytest.fixture
def etcd_ensemble(shared_etcd_ensemble: EtcdEnsemble) -> EtcdEnsemble:
    """Three empty members, which a test may harm: the next one finds them whole."""
    return shared_etcd_ensemble.whole()


@pytest.fixture(scope="session")
def shared_zookeeper_ensemble() -> Iterator[ZooKeeperEnsemble]:
    """For the whole run; take ``zookeeper_ensemble``."""
    with ZooKeeperEnsemble() as ensemble:
        yield ensemble


@pytest.fixture
def zookeeper_ensemble(shared_zookeeper_ensemble: ZooKeeperEnsemble) -> ZooKeeperEnsemble:
    """Three members, which a test may harm: the next one finds them whole. Take a ``chroot``, too."""
    shared_zookeeper_ensemble.heal()
    return shared_zookeeper_ensemble
