"""Every way to a service: by URL and by the clients of Sentinels, with logins and TLS of both layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis.asyncio
import redis.sentinel
import valkey.asyncio.sentinel
import valkey.sentinel

from leasehold import StoreUnavailable
from leasehold.coordinator.stores import open_store
from leasehold.stores.redis import RedisStore
from tests.integration.sentinel.service import Service
from tests.support.parties import FLAVOURS, mostly
from tests.support.servers.certificates import Certificates
from tests.support.servers.redis import redis_6_2
from tests.support.servers.redis import valkey as valkey_server
from tests.support.servers.sentinel import RedisSentinel

pytestmark = pytest.mark.slow
LOGIN, SENTINEL_LOGIN = ("worker", "p@ss/1"), ("watcher", "s&cret?2")


@pytest.fixture(scope="module")
def closed_service(certificates: Certificates) -> Iterator[RedisSentinel]:
    """Servers and Sentinels, each with a user, a password and TLS."""
    with RedisSentinel(login=LOGIN, sentinel_login=SENTINEL_LOGIN, tls=certificates) as servers:
        yield servers


def hosts(servers: RedisSentinel, name: str = "127.0.0.1") -> str:
    """As a URL has them."""
    return ",".join(f"{name}:{port}" for _, port in servers.addresses)


def secure_url(servers: RedisSentinel, tls: Certificates, sentinel_password: str = SENTINEL_LOGIN[1]) -> str:
    """With the logins of both layers, and TLS."""
    user, password = map(quote_all, LOGIN)
    options = "&".join(
        [
            f"sentinel_username={SENTINEL_LOGIN[0]}",
            f"sentinel_password={quote_all(sentinel_password)}",
            *(f"{name}={quote_all(str(value))}" for name, value in tls.arguments().items()),
        ]
    )
    return f"rediss+sentinel://{user}:{password}@{hosts(servers)}/{servers.service}/0?{options}"


def quote_all(text: str) -> str:
    """Also slashes."""
    return quote(text, safe="")


MANAGERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "redis": ("sync", redis.sentinel.Sentinel),
    "redis of asyncio": ("asyncio", redis.asyncio.Sentinel),
    "valkey": ("sync", valkey.sentinel.Sentinel),
    "valkey of asyncio": ("asyncio", valkey.asyncio.sentinel.Sentinel),
}


def pushed_to(servers: RedisSentinel) -> int:
    """How many listen for pushes at the primary."""
    client: Any = servers.primary.client()
    return len(client.pubsub_channels("lock:v1:push:*"))


def hands_over(service: Service, target: Any) -> None:
    """A lease goes from one to the next, by a push."""
    holder, waiter = service.party(target), service.party(target)
    lease = holder.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=10))
    waiting = waiter.start(lambda hold: hold.lock("job", ttl=30).acquire(wait=30))
    assert pushed_to(service.servers) >= 1
    holder.do(lambda _: lease.release())
    assert waiting.result(30).fence > lease.fence


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_url_with_logins_and_tls_of_both_layers(
    closed_service: RedisSentinel, certificates: Certificates, flavour: str
) -> None:
    """It connects to the primary, and is pushed to."""
    closed_service.wipe()
    service = Service(flavour, closed_service, secure_url(closed_service, certificates))
    hands_over(service, service.url)
    service.close()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_wrong_logins_are_told_apart(closed_service: RedisSentinel, certificates: Certificates, flavour: str) -> None:
    """That of the Sentinels, that of the servers, and none; no password is shown."""
    service = Service(flavour, closed_service)
    good = secure_url(closed_service, certificates)
    wrong = {
        secure_url(closed_service, certificates, "hunter2"): r"refused the login \(WRONGPASS\): sentinel_username and",
        good.replace("sentinel_username=watcher", "sentinel_username=other"): "refused the login",
        good.replace("p%40ss", "hunter2"): "does not accept this user and password",
        good.replace(good.partition("?")[2].partition("ssl_")[0], ""): "wants a password: sentinel_password",
    }
    for url, message in wrong.items():
        with pytest.raises(StoreUnavailable, match=message) as caught:
            service.party(url).do(lambda hold: hold.lock("job").acquire(wait=10))
        assert "hunter2" not in str(caught.value)
    service.close()


@mostly("sync")
def test_tls_where_there_is_none_and_none_where_there_is(
    closed_service: RedisSentinel, redis_sentinel: RedisSentinel, certificates: Certificates, flavour: str
) -> None:
    """The message says which layer has a problem, and what to write."""
    service = Service(flavour, redis_sentinel)
    ca = f"socket_connect_timeout=2&ssl_ca_certs={certificates.arguments()['ssl_ca_certs']}"
    wrong = {
        f"rediss+sentinel://{hosts(redis_sentinel)}/leases?{ca}": "no Sentinel names a primary.*does not use TLS",
        f"rediss+sentinel://{hosts(redis_sentinel)}/leases?{ca}&sentinel_ssl=false": r"Redis at .*does not use TLS",
        f"redis+sentinel://{hosts(closed_service)}/leases?socket_connect_timeout=2": "no Sentinel names a primary",
    }
    for url, message in wrong.items():
        with pytest.raises(StoreUnavailable, match=message):
            service.party(url).do(lambda hold: hold.lock("job").acquire(wait=5))
    service.close()


@pytest.mark.parametrize("kind", MANAGERS)
def test_clients_of_sentinels_get_connections_with_pushes(
    closed_service: RedisSentinel, redis_sentinel: RedisSentinel, kind: str
) -> None:
    """``master_for(name)`` and the Sentinel itself; with logins and TLS of both layers, and without."""
    flavour, make = MANAGERS[kind]
    for servers in (redis_sentinel, closed_service):
        servers.wipe()
        of_sentinels, of_servers = servers.arguments()
        manager = make(servers.addresses, sentinel_kwargs=of_sentinels, **of_servers)
        service = Service(flavour, servers)
        for target in (manager.master_for(servers.service), manager):
            assert isinstance(open_store(target), RedisStore)
            hands_over(service, target)
            servers.wipe()
        service.close()


@pytest.mark.parametrize("kind", [pytest.param("redis", marks=pytest.mark.soak), "redis of asyncio"])
def test_a_client_follows_a_failover(redis_sentinel: RedisSentinel, kind: str) -> None:
    """As a URL does."""
    flavour, make = MANAGERS[kind]
    service = Service(flavour, redis_sentinel)
    party = service.party(make(redis_sentinel.addresses).master_for("leases"))
    lease = party.do(lambda hold: hold.lock("job", ttl=9).acquire(wait=10))
    service.replicated()
    redis_sentinel.kill_primary()
    party.do(lambda _: lease.extend(9))
    assert party.do(lambda _: lease.release()) is True
    service.close()


FEW_RIGHTS = re.compile(r"^ACL SETUSER leasehold .*sentinel.*$", re.MULTILINE)


def test_a_user_with_the_rights_of_the_page(redis_sentinel: RedisSentinel) -> None:
    """At the Sentinels it may ask for the primary, and nothing else. With fewer rights the message names them."""
    (line,) = FEW_RIGHTS.findall(Path("docs/sentinel.md").read_text())
    service = Service(
        "sync", redis_sentinel, f"{redis_sentinel.url}?sentinel_username=leasehold&sentinel_password=password"
    )
    for sentinel in redis_sentinel.sentinels:
        assert sentinel.ask(line) == b"+OK\r\n"
    service.acquire()
    for sentinel in redis_sentinel.sentinels:
        assert sentinel.ask("ACL SETUSER leasehold -sentinel|master") == b"+OK\r\n"
    service.acquire("other")
    for sentinel in redis_sentinel.sentinels:
        assert sentinel.ask("ACL SETUSER leasehold -sentinel|get-master-addr-by-name") == b"+OK\r\n"
    with pytest.raises(StoreUnavailable, match="does not allow this user SENTINEL GET-MASTER-ADDR-BY-NAME"):
        service.acquire("third")
    for sentinel in redis_sentinel.sentinels:
        sentinel.ask("ACL DELUSER leasehold")
    service.close()


@pytest.mark.parametrize("executable", [valkey_server, pytest.param(redis_6_2, marks=pytest.mark.soak)])
def test_other_servers(executable: Callable[[], str]) -> None:
    """Valkey, and the oldest Redis: their roles are known, and a failover goes on."""
    with RedisSentinel(executable=executable()) as servers:
        service = Service("sync", servers)
        party, lease = service.acquire(ttl=9)
        service.replicated()
        servers.kill_primary()
        party.do(lambda _: lease.extend(9))
        assert service.holder() == lease.owner
        service.close()


@mostly("sync")
def test_resp2(redis_sentinel: RedisSentinel, flavour: str) -> None:
    """Without pushes: the first waiter polls, and a failover goes on."""
    service = Service(flavour, redis_sentinel, f"{redis_sentinel.url}?protocol=2")
    party, lease = service.acquire(ttl=9)
    service.replicated()
    redis_sentinel.kill_primary()
    party.do(lambda _: lease.extend(9))
    assert service.holder() == lease.owner
    service.close()
