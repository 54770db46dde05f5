"""Every store of the list is one that grants: what ``advise`` recommends can be used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import leasehold
from leasehold._core.schemes import OPENED
from tests.integration.guarantees.faults import grow_old
from tests.support.servers.redlock import RedlockServers


@pytest.fixture(params=OPENED)
def store(request: pytest.FixtureRequest) -> str:
    """The name of each."""
    name: str = request.param
    return name


@pytest.fixture
def url(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> Iterator[str]:
    """Where it is. A store that is added says here how it is started."""
    if store == "memory":
        yield "memory://opened"
    elif store == "sqlite":
        yield f"sqlite:///{tmp_path}/leases.db"
    elif store == "redlock":
        with RedlockServers(3) as servers:
            yield grow_old(servers).url
    elif store == "postgresql":
        yield request.getfixturevalue("postgres_database").url
    elif store == "etcd":
        yield request.getfixturevalue("etcd_server").url
    elif store == "zookeeper":
        yield request.getfixturevalue("zookeeper_server").url(request.getfixturevalue("chroot"))
    else:
        yield request.getfixturevalue("redis_server" if store == "redis" else f"redis_{store}").url


def test_it_grants(store: str, url: str) -> None:
    """A lease with a fence, from a coordinator that knows what its store promises."""
    with leasehold.connect(url) as hold, hold.lock("report-export", 42) as lease:
        assert lease.fence > 0 and hold.guarantees.store == store


async def test_it_grants_in_asyncio(store: str, url: str) -> None:
    """The same."""
    async with leasehold.aio.connect(url) as hold, hold.lock("report-export", 42) as lease:
        assert lease.fence > 0 and hold.guarantees.store == store
