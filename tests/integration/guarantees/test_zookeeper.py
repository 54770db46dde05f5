"""What ZooKeeper promises: each cell of its column on real servers, with the fault itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

import leasehold
from leasehold._core import ops
from leasehold.stores.record.store import RecordStore
from leasehold.stores.zookeeper.server import ZooKeeper
from tests.integration.guarantees.faults import HOUR
from tests.support.guarantees import (
    LONG,
    RESOURCE,
    claim,
    show,
    show_a_frozen_holder,
    show_a_killed_holder,
    show_a_small_step,
)
from tests.support.servers.ensemble_fixtures import ClockedZooKeeper
from tests.support.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from tests.support.waiting import until

OUTAGE = 9.0  # the ttl of a lease that survives an election, or that all members crash
SHORT = 1.5  # the ttl of one that is lost


@pytest.fixture
def own_zookeeper() -> Iterator[ZooKeeperServer]:
    """One to harm."""
    with ZooKeeperServer() as server:
        yield server


def delete_all(server: ZooKeeperServer, chroot: str) -> None:
    """Every node of this tree. Clients may make some meanwhile: then once more."""
    client = KazooClient(server.address)
    client.start()

    def gone() -> bool:
        with suppress(NotEmptyError):
            client.delete(chroot, recursive=True)
        return client.exists(chroot) is None

    try:
        until(gone, "all of it is deleted")
    finally:
        client.stop()
        client.close()


class Newcomer:
    """A store that goes by the clock of the leader, because it has written already; and has not seen the resource. A
    process that has never written goes by its own clock."""

    def __init__(self, url: str) -> None:
        self.store = RecordStore("zookeeper", ZooKeeper(url))

    def writes(self) -> None:
        """Something else."""
        for name in ("another", "another"):  # the first one makes a node
            claimed = self.store.execute(ops.Claim(name, "host:1:newcomer.1", 1000))
            assert isinstance(claimed, ops.Granted)
            self.store.execute(ops.Release(name, "host:1:newcomer.1", claimed.fence))


# ---------------------------------------------------------------- holders


def test_a_killed_holder(zookeeper_server: ClockedZooKeeper, chroot: str) -> None:
    """The next is granted when the ttl is over."""
    show_a_killed_holder("zookeeper", zookeeper_server.url(chroot))


def test_a_frozen_holder(zookeeper_server: ClockedZooKeeper, chroot: str) -> None:
    """The next is granted meanwhile; a guard refuses what the first writes late."""
    show_a_frozen_holder("zookeeper", zookeeper_server.url(chroot))


# ---------------------------------------------------------------- members


def test_the_server_stands_still(own_zookeeper: ZooKeeperServer) -> None:
    """Nothing is granted until it goes on, and by then the holder has stopped."""
    show("zookeeper", "server_pause", own_zookeeper.url(), own_zookeeper.freeze, own_zookeeper.thaw, ttl=SHORT)


def test_a_minority_is_cut_off(zookeeper_ensemble: ZooKeeperEnsemble, chroot: str) -> None:
    """Neither the holder there nor anybody else is granted anything, while the majority goes on."""
    alone = zookeeper_ensemble.followers[0]

    def happens() -> None:
        zookeeper_ensemble.cut_off(alone)
        others = [member for member in zookeeper_ensemble.members if member is not alone]
        with leasehold.connect(zookeeper_ensemble.url(chroot, others)) as hold:
            claim(hold, "another").lease.release()

    def heals() -> None:
        zookeeper_ensemble.reconnect(alone)

    show("zookeeper", "partition", alone.url(chroot), happens, heals, ttl=SHORT)


def test_kill_9_of_all_members(zookeeper_ensemble: ZooKeeperEnsemble, chroot: str) -> None:
    """The lease is still held, and goes on being renewed."""

    def crash() -> None:
        for member in zookeeper_ensemble.members:
            member.kill()
        zookeeper_ensemble.heal()

    show("zookeeper", "crash_ensemble", zookeeper_ensemble.url(chroot), crash, ttl=OUTAGE)


def test_kill_9_of_the_leader(zookeeper_ensemble: ZooKeeperEnsemble, chroot: str) -> None:
    """The next leader knows of the lease, which goes on being renewed."""
    leader = zookeeper_ensemble.leader
    show("zookeeper", "failover", zookeeper_ensemble.url(chroot), leader.kill, ttl=OUTAGE)


# ---------------------------------------------------------------- clocks


def test_the_clock_is_set_forward_under_a_holder(zookeeper_server: ClockedZooKeeper, chroot: str) -> None:
    """By more than a minute: who has not watched the lease takes it for one whose end is over."""
    url = zookeeper_server.url(chroot)
    newcomer = Newcomer(url)

    def happens() -> None:
        zookeeper_server.clock.set_off(LONG + 61)
        newcomer.writes()

    show("zookeeper", "clock_forward", url, happens, second_target=lambda: newcomer.store)


def test_the_clock_is_set_forward_by_less_than_a_minute(zookeeper_server: ClockedZooKeeper, chroot: str) -> None:
    """Nobody takes the lease from its holder."""
    url = zookeeper_server.url(chroot)
    newcomer = Newcomer(url)

    def happens() -> None:
        zookeeper_server.clock.set_off(50)
        newcomer.writes()

    show_a_small_step(url, happens, lambda: newcomer.store)


def test_the_clock_is_set_forward_after_somebody_watched(zookeeper_server: ClockedZooKeeper, chroot: str) -> None:
    """By an hour: who has seen the lease before counts by itself."""
    url = zookeeper_server.url(chroot)
    newcomer = Newcomer(url)
    with ExitStack() as stack:
        first, second = (stack.enter_context(leasehold.connect(one)) for one in (url, newcomer.store))
        held = claim(first, ttl=LONG, renew=False).lease
        assert second.lock(RESOURCE).try_acquire() is None
        zookeeper_server.clock.set_off(HOUR)
        newcomer.writes()
        assert second.lock(RESOURCE).try_acquire() is None and held.remaining() > 0


def test_the_clock_is_set_back_under_a_holder(zookeeper_server: ClockedZooKeeper, chroot: str) -> None:
    """The lease goes on, and the next one has a higher fence although the clock is behind."""
    url = zookeeper_server.url(chroot)
    newcomer = Newcomer(url)

    def happens() -> None:
        zookeeper_server.clock.set_off(-HOUR)
        newcomer.writes()

    show("zookeeper", "clock_back", url, happens, second_target=lambda: newcomer.store)


def test_emptied_while_the_clock_is_behind(zookeeper_server: ClockedZooKeeper, chroot: str) -> None:
    """Two holders, and the second has the lower fence: the guard refuses it, and accepts the one that it takes next."""
    url = zookeeper_server.url(chroot)
    newcomer = Newcomer(url)

    def happens() -> None:
        zookeeper_server.clock.set_off(-HOUR)
        delete_all(zookeeper_server, chroot)
        newcomer.writes()

    show("zookeeper", "clock_back_and_loss", url, happens, second_target=lambda: newcomer.store)


# ---------------------------------------------------------------- data that is gone


def test_all_nodes_are_deleted_under_a_holder(zookeeper_server: ClockedZooKeeper, chroot: str) -> None:
    """There are two holders; the fence of the second is above that of the first, from the clock."""
    url = zookeeper_server.url(chroot)
    show("zookeeper", "flush", url, lambda: delete_all(zookeeper_server, chroot))


def test_a_backup_is_put_back(own_zookeeper: ZooKeeperServer) -> None:
    """What was granted after the backup is unknown, although no member lost anything by itself."""
    with leasehold.connect(own_zookeeper.url()) as hold:
        claim(hold, ttl=LONG).lease.release()  # the backup has a fence of this resource
    data, backup = own_zookeeper.folder / "data", own_zookeeper.folder / "backup"
    own_zookeeper.kill()
    shutil.copytree(data, backup)
    own_zookeeper.start()

    def put_back() -> None:
        own_zookeeper.kill()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        own_zookeeper.start()

    show("zookeeper", "restore", own_zookeeper.url(), put_back)
