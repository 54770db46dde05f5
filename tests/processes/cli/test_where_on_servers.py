"""``status``, ``ls`` and ``inspect`` on every store that has a server: where it is, what it is, and that it is away."""

from __future__ import annotations

import time
from typing import Any

import pytest

import leasehold
from tests.support.cli.typed import typed
from tests.support.waiting import until

pytestmark = pytest.mark.slow
SERVERS = {
    "redis_server": "Redis ",
    "postgres_database": "PostgreSQL ",
    "redis_sentinel": "Redis ",
    "redis_cluster": "Redis ",
    "redlock_servers": "Redis ",
    "etcd_url": "etcd ",
    "zookeeper_url": "ZooKeeper ",
}
SECRET = "hunter2"
AWAY = {
    "redis": f"redis://app:{SECRET}@127.0.0.1:1",
    "sentinel": f"redis+sentinel://:{SECRET}@127.0.0.1:1/main",
    "cluster": f"redis+cluster://:{SECRET}@127.0.0.1:1",
    "redlock": f"redlock://:{SECRET}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    "postgresql": f"postgresql://app:{SECRET}@127.0.0.1:1/db",
    "etcd": f"etcd://app:{SECRET}@127.0.0.1:1",
    "zookeeper": f"zk://app:{SECRET}@127.0.0.1:1",
}


def counts(url: str) -> bool:
    """Whether leases are granted there by now."""
    with leasehold.connect(url) as hold:
        try:
            return hold.lock("probe", ttl=1).try_acquire() is not None
        except leasehold.StoreUnavailable:
            time.sleep(0.1)
            return False


@pytest.mark.parametrize(("fixture", "version"), SERVERS.items(), ids=list(SERVERS))
def test_where(fixture: str, version: str, request: pytest.FixtureRequest) -> None:
    """Each says its address, without a login, and its version; a resource is found by its hash."""
    server: Any = request.getfixturevalue(fixture)
    url = server if isinstance(server, str) else server.url
    ttl = 1.5 if fixture == "redlock_servers" else 30.0
    if fixture == "redlock_servers":  # a node that was started a moment ago counts after that time
        url = f"{url}?max_ttl={ttl}"
        until(lambda: counts(url), "the nodes count")
    options = ["--url", url, "--namespace", "where"]
    with leasehold.connect(url, namespace="where") as hold, hold.lock("report", 42, ttl=ttl) as lease:
        document = typed("status", "--json", *options).document()
        assert (document["address"], document["namespace"], document["reachable"]) == (hold.store, "where", True)
        assert document["store"] == hold.guarantees.store
        assert [one for one in document["servers"] if one.startswith(version) and one[-1].isdigit()]
        assert (document["held"], document["waiting"], document["resources"]) == (1, 0, 1)
        first, _, row = typed("ls", "--long", *options).out.splitlines()
        assert (first, row.split()[0]) == (f"In {hold.store}, namespace where:", "where/report:42")
        shown = typed("inspect", "--id-hash", lease.log_context()["id_hash"], *options).out
        assert shown.splitlines()[:2] == ["where/report:42", f"  store      {hold.store}, namespace where"]


@pytest.mark.parametrize(
    "store", [pytest.param(one, marks=[pytest.mark.soak] * (one == "zookeeper")) for one in AWAY]
)  # ZooKeeper is tried until the time is over
def test_away(store: str) -> None:
    """69 with a reason, and what is known all the same; never a password."""
    done = typed("status", "--url", AWAY[store])
    assert done.code == 69 and "reachable   no\n" in done.out
    assert done.err.startswith("leasehold: the store is unavailable: ")
    assert SECRET not in done.out + done.err
