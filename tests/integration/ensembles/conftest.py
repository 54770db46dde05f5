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
