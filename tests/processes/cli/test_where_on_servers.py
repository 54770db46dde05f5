"""``status``, ``ls``, ``inspect``, ``top`` and ``doctor`` on every store that has a server: where it is, what it is,
and that it is away."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

import leasehold
from leasehold.cli.coordinator import place_of
from leasehold.cli.top.screen import Top
from leasehold.doctor import trial
from tests.support.cli.typed import typed
from tests.support.servers.redis import RedisServer
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


async def picture(hold: leasehold.Leasehold, url: str, text: str) -> list[str]:
    """The lines of ``top`` as soon as it shows this text."""
    top = Top(hold, place_of(hold, url), "*", "name", 0.2)
    async with top.run_test(size=(80, 24)) as pilot:
        give_up = time.monotonic() + 60
        while True:
            strips = top.screen._compositor.render_strips()
            lines = ["".join(segment.text for segment in strip) for strip in strips]
            if any(text in line for line in lines):
                return lines
            assert time.monotonic() < give_up, "\n".join(lines)
            await pilot.pause(0.05)


@pytest.mark.parametrize(("fixture", "version"), SERVERS.items(), ids=list(SERVERS))
def test_where(fixture: str, version: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says its address, without a login, and its version; a resource is found by its hash; ``top`` draws it, and
    ``doctor`` examines the same place."""
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
        with leasehold.connect(url, namespace="where") as operator:
            lines = asyncio.run(picture(operator, url, "1 held  0 waiting"))
        assert lines[0].split()[:2] == ["leasehold", "top"] and lines[4].split()[0] == "where/report:42"
        monkeypatch.setattr(trial, "PAIRS", 5)
        done = typed("doctor", "--json", *options)
        found = json.loads(done.out)
        assert (found["store"], found["reachable"], bool(found["latency"])) == (document["store"], True, True)
        assert done.code == (found["worst"] == "problem"), found


@pytest.mark.parametrize(
    "store", [pytest.param(one, marks=[pytest.mark.soak] * (one == "zookeeper")) for one in AWAY]
)  # ZooKeeper is tried until the time is over
def test_away(store: str) -> None:
    """69 with a reason, and what is known all the same; never a password."""
    done = typed("status", "--url", AWAY[store])
    assert done.code == 69 and "reachable   no\n" in done.out
    assert done.err.startswith("leasehold: the store is unavailable: ")
    assert SECRET not in done.out + done.err


def test_status_of_a_login_that_may_not_list(redis_server: RedisServer) -> None:
    """A program that only takes leases needs no right to list: the store answers it, so it is reached, 0."""
    url = redis_server.url.replace("redis://", "redis://worker:password@")
    rights = "reset on >password ~lock:v1:* resetchannels &lock:v1:push:* +@all -scan"
    client: Any = redis_server.client()
    client.execute_command("ACL", "SETUSER", "worker", *rights.split())
    try:
        document = typed("status", "--json", "--url", url).document()
        done = typed("status", "--url", url)
    finally:
        client.execute_command("ACL", "DELUSER", "worker")
    assert (document["reachable"], document["held"], document["round_trip"] > 0) == (True, None, True)
    assert document["servers"][0].startswith("Redis ") and "`leasehold doctor` prints the ACL" in document["error"]
    assert (done.code, done.err) == (0, "") and "reachable   yes, in " in done.out
    assert "held        unknown: Redis at " in done.out
