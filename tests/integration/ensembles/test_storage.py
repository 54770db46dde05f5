"""What members keep, while a lease is held and others wait: disks that stall or are full, backups, compaction."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.integration.ensembles.members import EtcdMembers, Members, ZooKeeperMembers
from tests.integration.ensembles.stage import SHORT, TTL, stage, survived
from tests.support.servers.etcd import EtcdEnsemble, EtcdServer, encoded
from tests.support.servers.proxy import Proxy
from tests.support.servers.syncs import stalled_disk
from tests.support.servers.zookeeper import ZooKeeperEnsemble
from tests.support.waiting import PATIENCE, until
from tests.support.workers.journal import now

STALL = 9.0  # seconds
BRIEF = 6.0  # the ttl of a lease that survives an election of ZooKeeper: here it takes less than a second
OUTAGE = 30.0  # a client that knows more than its server is replaced after three times its session
PAGE = "x" * 100_000
QUOTA = 2_000_000  # bytes


@pytest.fixture
def etcd(etcd_ensemble: EtcdEnsemble) -> EtcdMembers:
    """Three members."""
    return EtcdMembers(etcd_ensemble)


# ---------------------------------------------------------------- disks


@pytest.mark.parametrize("ttl", [TTL, pytest.param(SHORT, marks=pytest.mark.soak)])
def test_the_disk_of_the_leader_stalls(etcd: EtcdMembers, ttl: float) -> None:
    """For nine seconds, while all clients use a follower: leases of etcd may end before the time that it has confirmed,
    so that places vanish; ours do not. A lease that lasts longer than that is not lost."""
    leader, follower = etcd.leader(), etcd.followers()[0]
    with stage(etcd) as played:
        holder = played.hold(follower, ttl=ttl)
        waiters = played.queue(follower, ttl=ttl)
        with stalled_disk(leader, STALL):
            time.sleep(STALL + 1)
        if ttl > STALL:
            assert not holder.lost and not any(waiter.held.is_set() for waiter in waiters), "the lease was lost"


@contextmanager
def full_disk(server: EtcdServer) -> Iterator[None]:
    """Its log can be written no more: it is no use to preload a library into a program in Go."""
    traced = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "strace", "-f", "-qq", "-p", str(server.pid), "-e", "trace=fdatasync",
         "-e", "inject=fdatasync:error=ENOSPC", "-o", str(server.folder / "strace.log")]
    )  # fmt: skip
    try:
        yield
    finally:
        traced.send_signal(signal.SIGINT)
        traced.wait(PATIENCE)


@pytest.mark.soak
def test_the_disk_of_an_etcd_leader_is_full(etcd: EtcdMembers) -> None:
    """It ends, and the lease goes on."""
    leader = etcd.leader()

    def fill() -> None:
        with full_disk(leader):
            until(lambda: not leader.runs, "it ends")

    survived(etcd, fill)


@pytest.mark.soak
def test_the_database_of_etcd_is_full() -> None:
    """No member writes anything: the holder stops before its deadline, and nobody is granted anything; when there is
    room again all go on."""
    with EtcdEnsemble(3, f"--quota-backend-bytes={QUOTA}") as ensemble:
        members = EtcdMembers(ensemble)
        leader: Any = members.leader()
        with stage(members) as played:
            holder = played.hold(ttl=SHORT)
            waiters = played.queue(ttl=SHORT)
            page = {"key": encoded("page"), "value": encoded(PAGE)}
            until(lambda: leader.post("kv/put", page)[0] != 200, "it is full")
            until(lambda: holder.lost, "its holder knows that it is lost")
            assert not any(waiter.held.is_set() for waiter in waiters)
            leader.call("kv/deleterange", {"key": encoded("page")})
            leader.compact()
            for server in members.servers:
                server.call("maintenance/defragment", {})
            alarms = leader.call("maintenance/alarm", {}).get("alarms", [])
            assert alarms
            for alarm in alarms:
                leader.call("maintenance/alarm", {"action": "DEACTIVATE", **alarm})


def test_the_disk_of_a_zookeeper_leader_is_full(zookeeper_ensemble: ZooKeeperEnsemble, chroot: str) -> None:
    """It leads no longer, and the lease goes on."""
    members = ZooKeeperMembers(zookeeper_ensemble, chroot)
    leader: Any = members.leader()

    def fill() -> None:
        leader.disk.fill()
        client = KazooClient(members.url().removeprefix("zk://").partition("/")[0])
        client.start()
        try:
            until(lambda: written(client) and leader.mode != "leader", "it leads no longer")
        finally:
            client.stop()
            client.close()

    def free() -> None:
        leader.disk.free()
        leader.kill()

    try:
        survived(members, fill, ttl=BRIEF, before_healing=free)
    finally:
        leader.disk.free()


def written(client: KazooClient) -> bool:
    """Whatever became of it."""
    with suppress(KazooException):
        client.create("/page-", PAGE.encode(), sequence=True, ephemeral=True)
    return True


# ---------------------------------------------------------------- backups


class Backup:
    """All that the members keep, at some moment."""

    def __init__(self, members: Members, folder: Path) -> None:
        self._members, self._folder = members, folder
        if isinstance(members, EtcdMembers):
            members.leader().snapshot(folder / "snapshot")
            return
        for number, server in enumerate(members.servers):
            server.kill()
            shutil.copytree(server.folder / "data", folder / str(number))
        members.heal()

    def put_back(self) -> None:
        """Everything that was written since then is gone."""
        for server in self._members.servers:
            server.kill()
        if isinstance(self._members, EtcdMembers):
            with ThreadPoolExecutor(3) as threads:  # one alone does not answer
                file = self._folder / "snapshot"
                list(threads.map(lambda server: server.restore_snapshot(file), self._members.servers))
            return
        for number, server in enumerate(self._members.servers):
            shutil.rmtree(server.folder / "data")
            shutil.copytree(self._folder / str(number), server.folder / "data")
        self._members.heal()


@pytest.mark.soak
def test_a_backup_that_knows_the_lease_is_put_back(members: Members, tmp_path: Path) -> None:
    """Its renewals since then are gone, and revisions are lower than those that clients know: the lease goes on, and
    those who wait get it next."""
    with stage(members) as played:
        holder = played.hold(ttl=OUTAGE)
        played.queue()
        backup = Backup(members, tmp_path)
        renewed = now() + OUTAGE
        until(lambda: holder.lease.deadline > renewed, "it was renewed since then")
        backup.put_back()
        renewed = now() + OUTAGE
        until(lambda: holder.lost or holder.lease.deadline > renewed, "its lease is renewed")
        assert not holder.lost, "the lease was lost"


# ---------------------------------------------------------------- history


@pytest.mark.parametrize("cut", [False, True], ids=["watching", "cut off"])
def test_compaction_under_waiters(etcd: EtcdMembers, cut: bool) -> None:
    """What their watches would go on from is forgotten, also while they cannot see it: they go on all the same."""
    leader = etcd.leader()
    with Proxy(leader.port) as network, stage(etcd) as played:
        holder = played.hold()
        played.queue(network)
        if cut:
            network.refuse()
            network.cut()
        for number in range(10):
            leader.put("elsewhere", str(number))
        leader.compact()
        holder.leave.set()
        holder.join(PATIENCE)
        if cut:
            leader.compact()
            network.accept()
