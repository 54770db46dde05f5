"""Ensembles of three, of both kinds: a test that takes ``members`` runs on each."""

from __future__ import annotations

import pytest

from tests.integration.ensembles.members import EtcdMembers, Members, ZooKeeperMembers


@pytest.fixture(params=["etcd", "zookeeper"])
def members(request: pytest.FixtureRequest) -> Members:
    """Three that a test may harm: the next one finds them whole."""
    if request.param == "etcd":
        return EtcdMembers(request.getfixturevalue("etcd_ensemble"))
    return ZooKeeperMembers(request.getfixturevalue("zookeeper_ensemble"), request.getfixturevalue("chroot"))


# These wait for a session to end, or for an election; tests/integration/guarantees shows the same there.
SOAK = (
    "test_kill_9[",
    "cut_off_with_its_holder[etcd",
    "it_stands_still[etcd",
    "holder_stands_still[zookeeper",
    "waiter_stands_still[zookeeper",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those are for the soak."""
    for item in items:
        if "ensembles" in item.nodeid and any(part in item.nodeid for part in SOAK):
            item.add_marker(pytest.mark.soak)
