"""Servers for tests: one that is shared and wiped before each use, as many of one's own as one likes, a bad network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.certificates import Certificates
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from tests.support.servers.redlock import RedlockServers
from tests.support.servers.replicas import RedisReplicas
from tests.support.servers.sentinel import RedisSentinel


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis for the whole run; who freezes or kills one takes ``own_redis``."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of an empty Redis."""
    redis_server.wipe()
    return redis_server.url


@pytest.fixture
def own_redis() -> Iterator[Callable[..., RedisServer]]:
    """Start a Redis of one's own; it takes what ``RedisServer`` takes."""
    with ExitStack() as stack:

        def start(*options: Any, **more: Any) -> RedisServer:
            return stack.enter_context(RedisServer(*options, **more))

        yield start


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    """A network in front of the shared Redis, good until it is made bad."""
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """For a server with TLS and its clients."""
    folder: Path = tmp_path_factory.mktemp("certificates")
    return Certificates(folder)


# ---------------------------------------------------------------- several servers, for the whole run


class SharedCluster:
    """Three masters with a replica each. A Cluster that cannot be made whole is replaced, so that what one test has
    done fails no other."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._cluster: RedisCluster | None = None

    def whole(self) -> RedisCluster:
        """Empty, and all nodes agree."""
        if self._cluster is not None:
            try:
                self._cluster.wipe()
            except AssertionError as error:
                sys.stderr.write(f"the Cluster is replaced: {error}\n")
                self._cluster = None
        if self._cluster is None:
            self._cluster = self._stack.enter_context(RedisCluster(3, 1, node_timeout_ms=1000))
        return self._cluster


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[SharedCluster]:
    """For the whole run; take ``redis_cluster``."""
    with ExitStack() as stack:
        yield SharedCluster(stack)


@pytest.fixture
def redis_cluster(shared_cluster: SharedCluster) -> RedisCluster:
    """An empty Cluster, which a test may harm: the next one finds it whole."""
    return shared_cluster.whole()


@pytest.fixture(scope="session")
def shared_sentinel() -> Iterator[RedisSentinel]:
    """A primary, a replica and three Sentinels; take ``redis_sentinel``."""
    with RedisSentinel() as sentinel:
        yield sentinel


@pytest.fixture
def redis_sentinel(shared_sentinel: RedisSentinel) -> RedisSentinel:
    """An empty service, which a test may harm: the next one finds it whole."""
    shared_sentinel.wipe()
    return shared_sentinel


@pytest.fixture(scope="session")
def shared_replicas() -> Iterator[RedisReplicas]:
    """A primary and two replicas, without Sentinels; take ``redis_replicas``."""
    with RedisReplicas(2) as replicas:
        yield replicas


@pytest.fixture
def redis_replicas(shared_replicas: RedisReplicas) -> RedisReplicas:
    """An empty primary with its replicas, which a test may harm: the next one finds them whole."""
    shared_replicas.wipe()
    return shared_replicas


@pytest.fixture(scope="session")
def shared_redlock() -> Iterator[RedlockServers]:
    """Five masters that know nothing of each other; take ``redlock_servers``."""
    with RedlockServers() as servers:
        yield servers


@pytest.fixture
def redlock_servers(shared_redlock: RedlockServers) -> RedlockServers:
    """Five empty masters, which a test may harm: the next one finds them whole."""
    shared_redlock.wipe()
    return shared_redlock
