"""What etcd promises: each cell of its column on real servers, with the fault itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import leasehold
from tests.integration.guarantees.faults import HOUR, DatedNetwork
from tests.support.guarantees import (
    LONG,
    RESOURCE,
    claim,
    show,
    show_a_frozen_holder,
    show_a_killed_holder,
    show_a_small_step,
)
from tests.support.servers.etcd import EtcdEnsemble, EtcdServer

OUTAGE = 9.0  # the ttl of a lease that survives an election, or that all members crash
SHORT = 1.5  # the ttl of one that is lost


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """One to harm."""
    with EtcdServer() as server:
        yield server


@pytest.fixture
def dated(etcd_server: EtcdServer) -> Iterator[DatedNetwork]:
    """A network in front of it that sets its clock."""
    with DatedNetwork(etcd_server.port) as network:
        yield network


def by_way_of(dated: DatedNetwork) -> str:
    """For clients."""
    return f"etcd://127.0.0.1:{dated.port}/leasehold"


# ---------------------------------------------------------------- holders


def test_a_killed_holder(etcd_server: EtcdServer) -> None:
    """The next is granted when the ttl is over."""
    show_a_killed_holder("etcd", etcd_server.url)


def test_a_frozen_holder(etcd_server: EtcdServer) -> None:
    """The next is granted meanwhile; a guard refuses what the first writes late."""
    show_a_frozen_holder("etcd", etcd_server.url)


# ---------------------------------------------------------------- members


def test_the_server_stands_still(own_etcd: EtcdServer) -> None:
    """Nothing is granted until it goes on, and by then the holder has stopped."""
    show("etcd", "server_pause", own_etcd.url, own_etcd.freeze, own_etcd.thaw, ttl=SHORT)


def test_a_minority_is_cut_off(etcd_ensemble: EtcdEnsemble) -> None:
    """Neither the holder there nor anybody else is granted anything, while the majority goes on."""
    alone = etcd_ensemble.leader()

    def happens() -> None:
        etcd_ensemble.cut_off(alone)
        others = [member for member in etcd_ensemble.members if member is not alone]
        with leasehold.connect(etcd_ensemble.url_from(*others)) as hold:
            claim(hold, "another").lease.release()

    show("etcd", "partition", alone.url, happens, etcd_ensemble.heal, ttl=SHORT)


def test_kill_9_of_all_members(etcd_ensemble: EtcdEnsemble) -> None:
    """The lease is still held, and goes on being renewed."""

    def crash() -> None:
        etcd_ensemble.kill_all()
        etcd_ensemble.start_all()

    show("etcd", "crash_ensemble", etcd_ensemble.url, crash, ttl=OUTAGE)


def test_kill_9_of_the_leader(etcd_ensemble: EtcdEnsemble) -> None:
    """The next leader knows of the lease, which goes on being renewed."""
    leader = etcd_ensemble.leader()
    show("etcd", "failover", etcd_ensemble.url_from(leader), leader.kill, ttl=OUTAGE)


# ---------------------------------------------------------------- clocks


def test_the_clock_is_set_forward_under_a_holder(dated: DatedNetwork) -> None:
    """By more than a minute: who has not watched the lease takes it for one whose end is over."""
    show("etcd", "clock_forward", by_way_of(dated), lambda: dated.set_off(LONG + 61))


def test_the_clock_is_set_forward_by_less_than_a_minute(dated: DatedNetwork) -> None:
    """Nobody takes the lease from its holder."""
    show_a_small_step(by_way_of(dated), lambda: dated.set_off(50))


def test_the_clock_is_set_forward_after_somebody_watched(dated: DatedNetwork) -> None:
    """By an hour: who has seen the lease before counts by itself."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(leasehold.connect(by_way_of(dated))) for _ in range(2))
        held = claim(first, ttl=LONG, renew=False).lease
        assert second.lock(RESOURCE).try_acquire() is None
        dated.set_off(HOUR)
        assert second.lock(RESOURCE).try_acquire() is None and held.remaining() > 0


def test_the_clock_is_set_back_under_a_holder(dated: DatedNetwork) -> None:
    """The lease goes on, and the next one has a higher fence although the clock is behind."""
    show("etcd", "clock_back", by_way_of(dated), lambda: dated.set_off(-HOUR))


def test_emptied_while_the_clock_is_behind(dated: DatedNetwork, etcd_server: EtcdServer) -> None:
    """Two holders, and the second has the lower fence: the guard refuses it, and accepts the one that it takes next."""

    def lose() -> None:
        dated.set_off(-HOUR)
        etcd_server.wipe()

    show("etcd", "clock_back_and_loss", by_way_of(dated), lose)


# ---------------------------------------------------------------- data that is gone


def test_all_keys_are_deleted_under_a_holder(etcd_server: EtcdServer) -> None:
    """There are two holders; the fence of the second is above that of the first, from the clock."""
    show("etcd", "flush", etcd_server.url, etcd_server.wipe)


def test_a_snapshot_is_restored(own_etcd: EtcdServer, tmp_path: Path) -> None:
    """What was granted after the snapshot is unknown, although no member lost anything by itself."""
    with leasehold.connect(own_etcd.url) as hold:
        claim(hold, ttl=LONG).lease.release()  # the snapshot has a fence of this resource
    snapshot = tmp_path / "snapshot"
    own_etcd.snapshot(snapshot)
    show("etcd", "restore", own_etcd.url, lambda: own_etcd.restore_snapshot(snapshot))
