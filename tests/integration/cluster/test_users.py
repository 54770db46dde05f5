"""What a user of a Cluster must be allowed, and a child of a fork."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.errors import StoreUnavailable
from leasehold.stores.redis.cluster.store import ClusterStore
from tests.support.doctor import examined, found
from tests.support.parties import FLAVOURS, mostly
from tests.support.redis.cluster import Company, acquiring, calls, releasing
from tests.support.servers.cluster import RedisCluster

DOCS = Path(__file__).parents[3] / "docs"
LINE = re.search(r"^ACL SETUSER leasehold (.*)$", (DOCS / "redis.md").read_text("utf-8"), re.MULTILINE)
MORE = re.search(r"one server needs\]\(\S+\): `([^`]*)`", (DOCS / "redis-cluster.md").read_text("utf-8"))

TENANT = re.search(
    r"In Redis: `([^`]*)` in place of .* In a Cluster also `([^`]*)`", (DOCS / "howto/security.md").read_text("utf-8")
)


def set_user(cluster: RedisCluster, *rules: str) -> None:
    """On every node."""
    for node in cluster.nodes:
        client: Any = node.client()
        client.execute_command("ACL", "LOG", "RESET")  # of what tests before this one were refused
        client.execute_command("ACL", "SETUSER", "leasehold", *rules)


@mostly("asyncio")
def test_the_user_of_the_page_may_do_all_that_is_needed(redis_cluster: RedisCluster, flavour: str) -> None:
    """Locks, waiters with pushes, moves of slots, listings, confirmed leases: with the lines of the pages, and nothing
    else."""
    assert LINE and MORE
    set_user(redis_cluster, *LINE[1].split(), *MORE[1].split(), "+wait")
    try:
        company = Company(flavour, redis_cluster)
        url = redis_cluster.url.replace("://", "://leasehold:password@")
        holder, waiter = (FLAVOURS[flavour](ClusterStore(url)) for _ in range(2))
        for _ in range(2):
            lease = holder.do(acquiring("job:1", ttl=60))
            waiting = waiter.start(acquiring("job:1", ttl=60, wait=20))
            company.waiting("job:1", 1)
            company.move("job:1")
            holder.do(releasing(lease))
            waiter.do(releasing(waiting.result(20)))
        assert holder.do(acquiring("job:2", durability="replicas:1"))
        assert sum(calls(node, "spublish") for node in redis_cluster.masters)
        assert [refusal for node in redis_cluster.masters for refusal in calls_refused(node)] == []
        for party in (holder, waiter):
            party.close()
    finally:
        for node in redis_cluster.nodes:
            client: Any = node.client()
            client.execute_command("ACL", "DELUSER", "leasehold")


def calls_refused(node: Any) -> list[Any]:
    """What this user was not allowed. A PING may be refused: that is an answer as well."""
    return [one for one in node.client(protocol=3).execute_command("ACL", "LOG") if one[b"object"] != b"ping"]


def test_a_user_without_the_map_is_told_so(redis_cluster: RedisCluster) -> None:
    """The error of the server is in ours."""
    assert LINE
    set_user(redis_cluster, *LINE[1].split())
    try:
        url = redis_cluster.url.replace("://", "://leasehold:password@")
        with leasehold.connect(url) as hold, pytest.raises(StoreUnavailable, match="cluster"):
            hold.lock("job", 1).acquire()
    finally:
        for node in redis_cluster.nodes:
            client: Any = node.client()
            client.execute_command("ACL", "LOG", "RESET")
            client.execute_command("ACL", "DELUSER", "leasehold")


@mostly("asyncio")
def test_a_tenant_with_the_keys_of_the_page(redis_cluster: RedisCluster, flavour: str) -> None:
    """Without the key of the setting of its namespace the error is ours, and says what is missing; with it, the tenant
    takes leases in its namespace and in no other."""
    assert LINE and MORE and TENANT
    own, setting = TENANT[1].split(), TENANT[2]
    rules = [one for one in LINE[1].split() if one != "~lock:v1:*"]
    set_user(redis_cluster, *rules, *own, *MORE[1].split())
    try:
        url = redis_cluster.url.replace("://", "://leasehold:password@")
        tenant = FLAVOURS[flavour](ClusterStore(url), namespace="acme")
        with pytest.raises(StoreUnavailable, match=r"one of these keys: leases need ~lock:v1:\*"):
            tenant.do(acquiring("job:1"))
        set_user(redis_cluster, setting)
        tenant.do(releasing(tenant.do(acquiring("job:1"))))
        seen = examined(url, namespace="acme")
        assert found(seen, "permissions").keys() == {"ok"} and seen.trial is not None
        with leasehold.connect(url, namespace="other") as other, pytest.raises(StoreUnavailable):
            other.lock("job", 1).try_acquire()
        tenant.close()
    finally:
        for node in redis_cluster.nodes:
            client: Any = node.client()
            client.execute_command("ACL", "LOG", "RESET")
            client.execute_command("ACL", "DELUSER", "leasehold")


def test_a_forked_child_has_connections_of_its_own(redis_cluster: RedisCluster) -> None:
    """It locks on every node, its parent's leases are the parent's, and the parent goes on."""
    with leasehold.connect(redis_cluster.url) as hold:
        leases: list[Any] = [hold.lock("job", number, ttl=30).acquire() for number in range(6)]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                lost = all(lease.state == "lost" for lease in leases)
                busy = all(hold.lock("job", number).try_acquire() is None for number in range(6))
                for number in range(6):
                    with hold.lock("child", number):
                        pass
                code = 0 if lost and busy else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert all(lease.extend(40) is not False for lease in leases)
        assert all(lease.release() for lease in leases)
