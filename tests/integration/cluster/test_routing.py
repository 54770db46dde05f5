"""Every op goes to the node that has the slot of its resource."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis.asyncio
import valkey.asyncio

import leasehold
from leasehold.errors import InvalidRequest, StoreUnavailable, Unsupported
from leasehold.stores.redis.client_store import open_client
from leasehold.stores.redis.cluster.nodes import slot_of
from leasehold.stores.redis.cluster.store import ClusterStore
from tests.support.parties import FLAVOURS, Step, mostly
from tests.support.redis.cluster import Company, acquiring, calls, releasing
from tests.support.servers.certificates import Certificates
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redis import EVERY, RedisServer
from tests.support.waiting import until


def test_locks_are_spread_over_all_masters(company: Company) -> None:
    """Each is where its slot is, and fences grow."""
    party = company.party()
    for number in range(30):
        lease = party.do(acquiring(f"job:{number}"))
        key = f"lock:v1:{{job:{number}}}:owner"
        assert company.node(f"job:{number}").client().exists(key) == 1
        party.do(releasing(lease))
        again = party.do(acquiring(f"job:{number}"))
        assert again.fence > lease.fence
    assert all(node.client().dbsize() for node in company.cluster.masters)


@mostly("sync", "company")
def test_all_keys_of_a_lease_share_one_hash_tag(company: Company) -> None:
    """With readers, permits, waiters, watchers, notes and a stored limit."""
    holder, waiter = company.party(), company.party()
    lease = holder.do(acquiring("job:1", at_least=1, delay=1))
    kept = [
        holder.do(lambda hold: hold.rwlock("book", 1).read().acquire()),
        holder.do(lambda hold: hold.semaphore("seat", 1, limit=3).acquire()),
    ]
    holder.do(lambda hold: hold.semaphore("seat", 1, limit=3).resize(5))
    waiting = waiter.start(acquiring("job:1", wait=20))
    company.waiting("job:1", 1)
    holder.do(lambda hold: hold.evict("job:1", fence=lease.fence, reason="test", delay=0, force=True))
    assert kept and waiting.result(20).fence
    tags = {key.partition("{")[2].partition("}")[0] for key, _ in company.stored_keys()}
    assert tags == {"job:1", "book:1", "seat:1"} and len(company.stored_keys()) > 6
    for key, left in company.stored_keys():
        assert slot_of(key) == company.cluster.slot_of(key) and left > 0


def test_a_lock_is_handed_on_in_order(company: Company) -> None:
    """Waiters get it one after the other, as they came."""
    holder, waiters = company.party(), [company.party() for _ in range(4)]
    lease = holder.do(acquiring("job:1"))
    waiting = []
    for number, waiter in enumerate(waiters):
        waiting.append(waiter.start(acquiring("job:1", wait=20)))
        company.waiting("job:1", number + 1)
    fences = [lease.fence]
    holder.do(releasing(lease))
    for waiter, future in zip(waiters, waiting, strict=True):
        got = future.result(20)
        fences.append(got.fence)
        waiter.do(releasing(got))
    assert fences == sorted(set(fences))


def test_a_node_that_forgot_the_scripts_gets_them_again(company: Company) -> None:
    """Each node for itself, for claims, renewals and releases."""
    party = company.party()
    names = [company.resource_at(node) for node in company.cluster.masters]
    for _ in range(2):
        leases = [party.do(acquiring(name)) for name in names]
        for node in company.cluster.masters:
            node.client().script_flush()
        for lease in leases:
            party.do(extending(lease))
        for node in company.cluster.masters:
            node.client().script_flush()
        assert all(party.do(releasing(lease)) for lease in leases)


def extending(lease: Any) -> Step:
    """By a command of its own."""
    return lambda hold: lease.extend(20)


def test_operators_see_all_masters(company: Company) -> None:
    """A scan lists every lock once; one can be inspected and taken away from another process."""
    party, operator = company.party(), company.party()
    leases = [party.do(acquiring(f"job:{number}")) for number in range(20)]
    if company.flavour == "sync":
        found = operator.do(lambda hold: [one.resource for one in hold.scan("job:*")])
    else:

        async def listed(hold: Any) -> list[str]:
            return [one.resource async for one in hold.scan("job:*")]

        found = operator.do(listed)
    assert sorted(found) == sorted(f"job:{number}" for number in range(20))
    assert operator.do(lambda hold: hold.inspect("job:7")).holders
    operator.do(lambda hold: hold.evict("job:7", fence=leases[7].fence, reason="test", delay=0, force=True))
    assert not operator.do(lambda hold: hold.inspect("job:7")).holders


def test_a_result_is_kept_on_the_node_of_its_key(company: Company) -> None:
    """The result store beside the leases sends its commands over the same connections."""
    party, called = company.party(), []

    def work(number: int) -> int:
        called.append(number)
        return number * 2

    async def work_async(number: int) -> int:
        return work(number)

    function: Any = work if company.flavour == "sync" else work_async
    for _ in range(2):
        for number in range(8):
            found = party.do(partial(flying, function, number))
            assert found == number * 2
    assert sorted(called) == list(range(8))


def flying(function: Any, number: int, hold: Any) -> Any:
    """One call of it in the fleet."""
    return hold.single_flight("sum", "{number}", ttl=60)(function)(number)


# ---------------------------------------------------------------- several at once


def test_all_over_several_slots_is_refused_with_the_reason(company: Company) -> None:
    """Before anything is sent."""
    party = company.party()
    with pytest.raises(Unsupported, match=r"several slots of the Cluster.*slot='namespace'"):
        party.do(lambda hold: hold.all(hold.lock("job", 1), hold.lock("job", 2)))
    assert not company.stored_keys()


def test_all_within_a_namespace_that_is_the_slot(company: Company) -> None:
    """All keys are in one slot, and what is held is renewed, listed and released."""
    party, other = (company.party("namespace", namespace="shop") for _ in range(2))
    leases = party.do(lambda hold: hold.all(hold.lock("job", 1, ttl=1), hold.lock("job", 2, ttl=1)).acquire())
    assert {slot_of(key) for key, _ in company.stored_keys()} == {slot_of("shop")}
    assert [lease.resource for lease in leases] == ["shop/job:1", "shop/job:2"]
    waiting = other.start(acquiring("job:2", wait=20))
    node = company.cluster.owner(slot_of("shop"))
    before = calls(node, "pexpire")
    until(lambda: calls(node, "pexpire") >= before + 2 * len(leases), "both were renewed twice")
    for lease in leases:
        lease.check()
    party.do(releasing(leases))
    assert waiting.result(20).resource == "shop/job:2"


def test_the_url_may_choose_the_slot(redis_cluster: RedisCluster) -> None:
    """For the command line, and for LEASEHOLD_URL."""
    url = f"{redis_cluster.url}?slot=namespace&client_name=us"
    with leasehold.connect(url, namespace="shop") as hold, hold.all(hold.lock("job", 1), hold.lock("job", 2)) as leases:
        assert len(leases) == 2


@pytest.mark.parametrize("first", ["resource", "namespace"])
def test_two_settings_for_one_namespace_are_refused(company: Company, first: str) -> None:
    """Such programs would not exclude each other. Another namespace has a setting of its own."""
    second = {"resource": "namespace", "namespace": "resource"}[first]
    party, other = company.party(first, namespace="shop"), company.party(second, namespace="shop")
    party.do(acquiring("job:1"))
    with pytest.raises(InvalidRequest, match=f"slot='{first}'.*slot='{second}'"):
        other.do(acquiring("job:1"))
    assert company.party(second, namespace="store").do(acquiring("job:1"))
    assert all(left > 0 for _, left in company.stored_keys())


@pytest.mark.parametrize("second", ["resource", "namespace"])
def test_who_only_looks_records_no_setting(company: Company, second: str) -> None:
    """An operator with another setting sees nothing and leaves nothing, so that a program can start with its own. From
    then on the operator is told, and one with the same setting sees the lease."""
    first = {"resource": "namespace", "namespace": "resource"}[second]
    operator, party = company.party(first, namespace="shop"), company.party(second, namespace="shop")
    assert operator.do(lambda hold: hold.inspect("job:1")).holders == ()
    assert operator.do(lambda hold: hold.election("job", 1).leader()) is None
    assert operator.do(lambda hold: hold.semaphore("seat", 1, limit=3).available()) == 3
    assert company.stored_keys() == []
    assert party.do(acquiring("job:1"))
    with pytest.raises(InvalidRequest, match=f"slot='{second}'.*slot='{first}'"):
        operator.do(lambda hold: hold.inspect("job:1"))
    agreed = company.party(second, namespace="shop")
    for _ in range(3):
        assert agreed.do(lambda hold: hold.inspect("job:1")).holders
    assert party.do(acquiring("job:2"))


@mostly("sync", "company")
def test_a_look_keeps_no_setting_alive(company: Company) -> None:
    """The record is found, and its time runs on. A claim by the same coordinator renews it."""
    party = company.party("namespace", namespace="shop")
    party.do(acquiring("job:1"))
    (key,) = [key for key, _ in company.stored_keys() if ":slot:" in key]
    node = company.cluster.node_of(key)
    node.client().pexpire(key, 60_000)
    other = company.party("namespace", namespace="shop")
    assert other.do(lambda hold: hold.inspect("job:1")).holders
    assert 0 < node.client().pttl(key) <= 60_000
    assert other.do(acquiring("job:2"))
    assert node.client().pttl(key) > 60_000


def test_the_setting_needs_a_namespace_and_a_cluster(company: Company) -> None:
    """Else it would mean nothing."""
    party = company.party("namespace")
    with pytest.raises(InvalidRequest, match="needs a namespace"):
        party.do(acquiring("job:1"))
    for connect in (leasehold.connect, leasehold.aio.connect):
        with pytest.raises(InvalidRequest, match="needs a namespace"):
            connect("redis+cluster://a,b", slot="namespace")
        assert connect("redis+cluster://a,b", slot="namespace", namespace="shop").namespace == "shop"
    with pytest.raises(InvalidRequest, match="for a Redis Cluster"):
        leasehold.connect("memory://", slot="namespace")
    with pytest.raises(InvalidRequest, match="one of resource, namespace"):
        leasehold.connect("memory://", slot="kind")


def test_the_namespace_of_the_environment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """For ``slot="namespace"``; an empty argument takes it away again."""
    monkeypatch.setenv("LEASEHOLD_NAMESPACE", "shop")
    assert leasehold.connect("redis+cluster://a,b", slot="namespace").namespace == "shop"
    with pytest.raises(InvalidRequest, match="needs a namespace"):
        leasehold.connect("redis+cluster://a,b", slot="namespace", namespace="")


@pytest.mark.parametrize("connect", [leasehold.connect, leasehold.aio.connect])
def test_two_settings_in_one_call_are_refused(connect: Callable[..., Any]) -> None:
    """One in the URL, and the other as the argument. The same one twice is no contradiction."""
    connect("redis+cluster://a,b?slot=namespace", slot="namespace", namespace="shop")
    connect("redis+cluster://a,b?slot=resource", slot="resource")
    with pytest.raises(InvalidRequest, match=r"the URL has slot=namespace, and connect\(\) has slot='resource'"):
        connect("redis+cluster://a,b?slot=namespace", slot="resource")
    with pytest.raises(InvalidRequest, match=r"the URL has slot=resource, and connect\(\) has slot='namespace'"):
        connect("redis+cluster://a,b?slot=resource", slot="namespace", namespace="shop")


# ---------------------------------------------------------------- ways to a Cluster

CLIENTS: dict[str, Callable[..., Any]] = {
    "redis": redis.RedisCluster,
    "redis of asyncio": redis.asyncio.RedisCluster,
    "valkey": valkey.ValkeyCluster,
    "valkey of asyncio": valkey.asyncio.ValkeyCluster,
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_the_client_of_a_cluster(redis_cluster: RedisCluster, kind: str) -> None:
    """Its nodes and settings are used, and our own connections get pushes."""
    client = CLIENTS[kind](host="127.0.0.1", port=redis_cluster.port, client_name="from-settings")
    store = open_client(client)
    assert isinstance(store, ClusterStore)
    party = FLAVOURS["asyncio" if "asyncio" in kind else "sync"](store)
    try:
        assert party.do(acquiring("job:1")).fence
        names = [one["name"] for node in redis_cluster.masters for one in node.client().client_list()]
        assert "from-settings" in names
    finally:
        party.close()
        if "asyncio" not in kind:
            client.close()


def test_a_client_with_commands_of_its_own_is_refused(redis_cluster: RedisCluster) -> None:
    """Ours would not do what it does."""

    class Changed(redis.RedisCluster):
        def execute_command(self, *args: Any, **kwargs: Any) -> Any:
            return super().execute_command(*args, **kwargs)  # type: ignore[no-untyped-call]  # it comes without types

    with Changed(host="127.0.0.1", port=redis_cluster.port) as client, pytest.raises(Unsupported, match="Give a URL"):
        leasehold.connect(client)


@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
@mostly("sync")
def test_each_server_program(program: Callable[[], str], flavour: str) -> None:
    """A lock is held, waited for, and handed on by a push, also where there are no channels of slots. A lease that its
    replica has confirmed is renewed there, and where its slot moves to."""
    with RedisCluster(3, 1, executable=program()) as cluster:
        company = Company(flavour, cluster)
        holder, waiter = company.party(), company.party()
        lease = holder.do(acquiring("job:1", ttl=60))
        waiting = waiter.start(acquiring("job:1", ttl=60, wait=20))
        company.waiting("job:1", 1)
        holder.do(releasing(lease))
        assert waiting.result(20).fence > lease.fence
        published = sum(calls(node, "publish", "spublish") for node in cluster.nodes)
        assert published == 1
        kept = holder.do(acquiring("job:2", ttl=2, durability="replicas:1"))
        company.move("job:2")
        before = calls(company.node("job:2"), "pexpire")
        until(lambda: calls(company.node("job:2"), "pexpire") > before + 1, "it is renewed at the new node")
        assert holder.do(releasing(kept)) and calls(company.node("job:2"), "wait")
        company.close()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_with_tls_and_a_login(certificates: Certificates, flavour: str) -> None:
    """For every node."""
    with RedisCluster(tls=certificates, login=("joe", "secret")) as cluster:
        hosts = cluster.url.partition("://")[2]  # with the login
        options = "&".join(f"{name}={value}" for name, value in certificates.arguments().items())
        party = FLAVOURS[flavour](ClusterStore(f"rediss+cluster://{hosts}?{options}"))
        for number in range(10):
            assert party.do(acquiring(f"job:{number}"))
        party.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+cluster://a,b/1", "only database 0"),
        ("redis+cluster://a?db=2", "only database 0"),
        ("redis+cluster://a,,b", "commas between them"),
        ("redis+cluster://", "commas between them"),
        ("redis+cluster://a:x", r"the redis\+cluster URL has a bad host or port: write redis\+cluster://host1,host2"),
        ("valkeys+cluster://a:99999", r"the valkeys\+cluster URL .* write valkeys\+cluster://host1,host2"),
        ("redis+cluster://a:0", r"the redis\+cluster URL has port 0"),
        ("redis+cluster://a b", r"the redis\+cluster URL has a bad host: redis\+cluster://host1,host2"),
        ("redis+cluster://a?ssl_ca_certs=ca.pem", r"ssl_\* options need rediss\+cluster:// or valkeys\+cluster://"),
        ("redis+cluster://a,b?unknown=1", "unknown option"),
        ("redis+cluster://a,b?slot=kind", "resource or namespace"),
    ],
)
def test_bad_urls(url: str, why: str) -> None:
    """Say what is wrong with them."""
    with pytest.raises(InvalidRequest, match=why):
        leasehold.connect(url)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_server_that_is_no_cluster_is_refused(redis_server: RedisServer, flavour: str) -> None:
    """Its URL is another one."""
    party = FLAVOURS[flavour](ClusterStore(f"redis+cluster://127.0.0.1:{redis_server.port}"))
    with pytest.raises(Unsupported, match="no node of a Cluster"):
        party.do(acquiring("job:1"))
    party.close()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_node_answers(flavour: str) -> None:
    """Nothing was sent, and the error names the Cluster."""
    party = FLAVOURS[flavour](ClusterStore("redis+cluster://127.0.0.1:1,127.0.0.1:2"))
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2"):
        party.do(acquiring("job:1"))
    party.close()
