"""A ZooKeeper for the whole run, a tree of its own for each test, and processes' worth of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.integration.zookeeper.party import Party
from tests.support.servers.proxy import Proxy
from tests.support.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer


@pytest.fixture(params=["threads", "asyncio"])
def flavour(request: pytest.FixtureRequest) -> str:
    """On a thread, and on an event loop."""
    flavour: str = request.param
    return flavour


@pytest.fixture
def join(zookeeper_server: ZooKeeperServer, chroot: str) -> Iterator[Callable[..., Party]]:
    """Another client, with a session of its own; of the shared server unless a URL is given."""
    with ExitStack() as stack:

        def join(flavour: str = "threads", url: str = "", **more: str) -> Party:
            options = "&".join(f"{name}={value}" for name, value in more.items())
            url = url or zookeeper_server.url(chroot)
            return stack.enter_context(Party(f"{url}?{options}" if options else url, flavour))

        yield join


@pytest.fixture
def party(join: Callable[..., Party], flavour: str) -> Party:
    """The first client, in both flavours."""
    return join(flavour)


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer) -> Iterator[Proxy]:
    """A network in front of the shared server, good until it is made bad."""
    with Proxy(zookeeper_server.port) as proxy:
        yield proxy


@pytest.fixture
def ensemble(zookeeper_ensemble: ZooKeeperEnsemble) -> ZooKeeperEnsemble:
    """Three members, which a test may harm: the next one finds them whole."""
    return zookeeper_ensemble
