"""The contract of a lock, over a Cluster whose replicas confirm every lease."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from leasehold.stores.redis.cluster.store import ClusterStore
from tests.contract.cases.lock import CASES
from tests.contract.test_contract import STILL, of_several
from tests.contract.ways import TurnedCluster
from tests.support.parties import FLAVOURS
from tests.support.scene import Scene
from tests.support.servers.clock import OneClock
from tests.support.servers.replicas import is_empty
from tests.support.waiting import until

pytestmark = pytest.mark.soak  # test_durability is for each time


@pytest.fixture(scope="module")
def replicated_cluster() -> Iterator[tuple[OneClock, TurnedCluster]]:
    """Three masters with a replica each, that see the clock which the cases turn."""
    clock = OneClock()
    with TurnedCluster(clock, *STILL, "--repl-timeout", "1000000", replicas=1) as cluster:
        yield clock, cluster


@pytest.fixture(params=FLAVOURS)
def scene(request: pytest.FixtureRequest, replicated_cluster: tuple[OneClock, TurnedCluster]) -> Iterator[Scene]:
    """An empty Cluster, and parties that want every lease confirmed."""
    clock, cluster = replicated_cluster
    for node in cluster.masters:
        node.wipe()
    until(lambda: all(is_empty(node) for node in cluster.nodes), "all nodes are empty")
    party = partial(FLAVOURS[request.param], durability="replicas:1")
    scene = Scene(lambda: ClusterStore(cluster.url, clock), party, clock)
    yield scene
    scene.close()


@pytest.mark.parametrize("name", [name for name in CASES if not of_several(name)])
def test_contract_with_confirmed_leases(name: str, scene: Scene) -> None:
    """The case holds."""
    CASES[name](scene)
