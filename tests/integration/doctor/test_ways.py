"""Ways to a server: TLS, a unix socket, a client; and servers that accept connections and answer nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.doctor import examined, found, only
from tests.support.servers.certificates import Certificates
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.slow


def test_redis_over_tls_a_unix_socket_and_by_a_client(
    own_redis: Callable[..., RedisServer], certificates: Certificates
) -> None:
    """Each leads to the same examination."""
    server = own_redis(tls=certificates, appendonly=True)
    tls = f"{server.tls_url}?ssl_ca_certs={certificates.authority}&ssl_certfile={certificates.client}"
    for target in (tls, server.unix_url, server.client()):
        seen = examined(target)
        assert seen.trial is not None and seen.report.worst == "note", target
        assert only(seen, "version").severity == "ok" and only(seen, "eviction").severity == "ok"


@pytest.mark.soak  # servers of their own take seconds to start
def test_etcd_and_zookeeper_over_tls(certificates: Certificates) -> None:
    """The quota and the words come over TLS as well."""
    with EtcdServer(tls=certificates) as etcd:
        seen = examined(etcd.url)
        assert seen.trial is not None and only(seen, "quota").severity == "ok"
    with ZooKeeperServer(tls=certificates) as zookeeper:
        url = f"zk://localhost:{zookeeper.tls_port}/leasehold?ca={certificates.authority}&cert={certificates.client}"
        seen = examined(url)
        assert seen.trial is not None and only(seen, "ticks").severity == "ok"


@contextmanager
def frozen(server: Any, url: Callable[[Any], str]) -> Iterator[str]:
    """The URL of a server that hangs."""
    with server as running:
        running.freeze()
        yield url(running)
        running.thaw()


@pytest.mark.soak  # every limit of a call is waited for
@pytest.mark.parametrize("store", ["postgresql", "etcd", "zookeeper"])
def test_a_server_that_hangs(store: str) -> None:
    """A finding, before the time limit of a test."""
    hanging = {
        "postgresql": lambda: frozen(PostgresServer(), lambda one: one.url),
        "etcd": lambda: frozen(EtcdServer(), lambda one: one.url),
        "zookeeper": lambda: frozen(ZooKeeperServer(), lambda one: one.url()),
    }
    with hanging[store]() as url:
        seen = examined(url)
        assert not seen.report.reachable and "problem" in found(seen, "reachable")
