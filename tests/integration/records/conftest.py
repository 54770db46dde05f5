"""Both servers that keep records, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasehold.stores.record.requests import Server
from tests.integration.records.both import Both
from tests.support.servers.proxy import Proxy


@pytest.fixture(params=["etcd", "zookeeper"])
def both(request: pytest.FixtureRequest) -> Both:
    """Where the server is."""
    return Both(request.param, request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def records(both: Both) -> Iterator[Server]:
    """What is there, below the store."""
    records = both.records()
    yield records
    records.close()


@pytest.fixture
def proxy(both: Both) -> Iterator[Proxy]:
    """A network in front of it, good until it is made bad."""
    with Proxy(both.port) as proxy:
        yield proxy
