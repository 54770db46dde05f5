"""Members of a ZooKeeper ensemble that come and go for good, while a lease is held and others wait for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.ensembles.members import ZooKeeperMembers
from tests.integration.ensembles.process import ENDLESS, more_turns
from tests.integration.ensembles.stage import stage, survived
from tests.support.servers.zookeeper import ChangingEnsemble, ZooKeeperServer
from tests.support.waiting import until

TTL = 6.0  # seconds: an election on these servers takes less than one
WHO = {"follower": lambda members: members.followers()[0], "leader": lambda members: members.leader()}


@pytest.fixture
def members(chroot: str) -> Iterator[ZooKeeperMembers]:
    """Three, of an ensemble of its own."""
    with ChangingEnsemble() as ensemble:
        yield ZooKeeperMembers(ensemble, chroot)


def replace(members: ZooKeeperMembers, one: ZooKeeperServer) -> None:
    """Another member comes in its place, and it goes."""
    ensemble = members.ensemble
    assert isinstance(ensemble, ChangingEnsemble)
    ensemble.add()
    ensemble.remove(one)
    one.kill()


@pytest.mark.parametrize("who", ["leader", pytest.param("follower", marks=pytest.mark.soak)])
def test_the_member_in_use_is_replaced(members: ZooKeeperMembers, who: str) -> None:
    """The holder and those who wait were given its address alone: they find the others, and the lease goes on."""
    one = WHO[who](members)
    survived(members, lambda: replace(members, one), one, ttl=TTL)


@pytest.mark.soak
@pytest.mark.parametrize("who", WHO)
def test_the_member_in_use_is_removed_and_runs_on(members: ZooKeeperMembers, who: str) -> None:
    """It serves its clients without a vote: the lease goes on, by way of it or of another."""
    one = WHO[who](members)
    ensemble = members.ensemble
    assert isinstance(ensemble, ChangingEnsemble)
    survived(members, lambda: ensemble.remove(one), one, ttl=TTL)


@pytest.mark.soak
def test_the_member_in_use_is_replaced_last(members: ZooKeeperMembers) -> None:
    """It is the leader, so that its clients stay connected until then. All other members that there were when they came
    are gone: they have followed the changes."""
    one, others = members.leader(), members.followers()

    def replace_all() -> None:
        for member in (*others, one):
            replace(members, member)

    survived(members, replace_all, one, ttl=TTL)


@pytest.mark.soak
def test_every_member_is_replaced(members: ZooKeeperMembers) -> None:
    """One after the other, the leader if it is an old one, while four workers take turns. In the end their URL names
    nobody who is still there."""
    with stage(members) as played:
        first = list(members.servers)
        workers = [played.enter(flavour, *first, ttl=TTL, turns=ENDLESS) for flavour in ("sync", "asyncio") * 2]
        for number, worker in enumerate(workers):
            worker.patience = lambda stay=number / 10: stay
        while old := [member for member in members.servers if member in first]:
            leader = members.leader()
            replace(members, leader if leader in old else old[0])
            for worker in workers:
                until(more_turns(worker), "everybody goes on")
        for worker in workers:
            worker.left = 0
