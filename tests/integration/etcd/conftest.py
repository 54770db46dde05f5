"""Servers of etcd, one for the whole run and an ensemble of three, and what performs requests on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from leasehold.stores.etcd import lease
from leasehold.stores.etcd.server import EtcdRecords
from tests.integration.etcd.flavours import Perform, in_loop, in_thread
from tests.support.servers.etcd import EtcdEnsemble, EtcdServer
from tests.support.servers.proxy import Proxy


@pytest.fixture
def etcd(etcd_server: EtcdServer) -> EtcdServer:
    """An empty etcd; who harms one takes ``own_etcd``."""
    return etcd_server


@pytest.fixture
def own_etcd() -> Iterator[Callable[..., EtcdServer]]:
    """Start an etcd of one's own; it takes what ``EtcdServer`` takes."""
    with ExitStack() as stack:
        yield lambda *options, **more: stack.enter_context(EtcdServer(*options, **more))


@pytest.fixture
def ensemble(etcd_ensemble: EtcdEnsemble) -> EtcdEnsemble:
    """Three empty members, which a test may harm: the next one finds them whole."""
    return etcd_ensemble


@pytest.fixture
def proxy(etcd: EtcdServer) -> Iterator[Proxy]:
    """A network in front of the shared etcd, good until it is made bad."""
    with Proxy(etcd.port) as proxy:
        yield proxy


@pytest.fixture
def connect() -> Iterator[Callable[[str], EtcdRecords]]:
    """Records at a URL, closed after the test."""
    with ExitStack() as stack:

        def start(url: str) -> EtcdRecords:
            records = EtcdRecords.from_url(url)
            stack.callback(records.close)
            return records

        yield start


@pytest.fixture
def records(etcd: EtcdServer, connect: Callable[[str], EtcdRecords]) -> EtcdRecords:
    """Those of the shared etcd."""
    return connect(etcd.url)


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> int:
    """The lease of a process ends sooner than usual when it is not kept alive: after the shortest time that etcd
    grants, in seconds."""
    monkeypatch.setattr(lease, "TTL", 2)
    monkeypatch.setattr(lease, "EVERY", 0.5)
    return 2


@pytest.fixture(params=["threads", "asyncio"])
def perform(request: pytest.FixtureRequest) -> Perform:
    """Performs requests in one flavour or the other, and returns the reply to the first, or all of several."""
    return in_thread if request.param == "threads" else in_loop
