"""Sentinels that are down, stand still, are behind or are none: the primary is found, or the error says what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold.stores.redis import durable, sentinel
from tests.integration.sentinel.service import RECOVERY, Service
from tests.support.parties import mostly
from tests.support.servers.sentinel import RedisSentinel
from tests.support.waiting import until

pytestmark = pytest.mark.slow
BOUND = 5.0 + 10.0  # seconds: no call takes longer than the first; the rest is for a busy machine


@pytest.fixture(autouse=True)
def sentinels_again(redis_sentinel: RedisSentinel) -> Iterator[None]:
    """All of them run after a test."""
    yield
    redis_sentinel.wipe()


def refusal(service: Service, url: str = "", error: Any = StoreUnavailable) -> str:
    """What a first acquire is told, in bounded time."""
    began = time.monotonic()
    party = service.party(url or None)
    with pytest.raises(error) as caught:
        party.do(lambda hold: hold.lock("job").acquire(wait=2))
    assert time.monotonic() - began < BOUND
    return str(caught.value)


@mostly("sync", "service")
def test_all_sentinels_are_down(service: Service) -> None:
    """A new connection fails at once and names each of them; who is connected goes on."""
    party, lease = service.acquire(ttl=3)
    first = lease.deadline
    until(lambda: lease.deadline > first, "the connection for renewals is open")
    for one in service.servers.sentinels:
        one.kill()
    message = refusal(service)
    assert "no Sentinel names a primary" in message
    assert all(f"{host}:{port} cannot be reached" in message for host, port in service.servers.addresses)
    deadline = lease.deadline
    until(lambda: lease.deadline > deadline, "it is renewed")
    party.do(lambda _: lease.release())
    party.do(lambda hold: hold.lock("other").acquire(wait=2))


@mostly("asyncio", "service")
def test_all_sentinels_stand_still(service: Service) -> None:
    """They accept connections and say nothing: the call ends in its time."""
    for one in service.servers.sentinels:
        one.freeze()
    assert "took too long" in refusal(service)


@mostly("asyncio", "service")
def test_the_first_sentinels_are_down_or_stand_still(service: Service) -> None:
    """The next one is asked."""
    first, second, _ = service.servers.sentinels
    first.kill()
    second.freeze()
    service.acquire()


def test_a_service_that_nobody_watches(service: Service) -> None:
    """The message says where to look."""
    message = refusal(service, service.url.replace("/leases/", "/other/"))
    assert "watches no service other: compare the name with those that SENTINEL MASTERS lists there" in message


def test_a_server_in_place_of_a_sentinel(service: Service) -> None:
    """A common mistake."""
    message = refusal(service, f"redis+sentinel://127.0.0.1:{service.servers.primary.port}/leases")
    assert "is no Sentinel: give the addresses of the Sentinels (port 26379), not those of Redis" in message


@pytest.mark.soak
@mostly("sync", "service")
def test_no_quorum_after_the_primary_died(service: Service) -> None:
    """One Sentinel cannot choose another primary, and says that the old one is down. After healing there is one."""
    _, second, third = service.servers.sentinels
    second.kill()
    third.kill()
    service.servers.primary.kill()
    first = service.servers.sentinels[0]
    until(lambda: b"s_down" in first.ask("SENTINEL MASTER leases"), "it is held to be down")
    message = refusal(service)
    assert "to be down: another is chosen when enough Sentinels agree (SENTINEL CKQUORUM leases says" in message
    second.start()
    third.start()
    party = service.party()
    end = time.monotonic() + 2 * RECOVERY
    while True:
        try:
            party.do(lambda hold: hold.lock("job").acquire(wait=10))
            break
        except (StoreUnavailable, OutcomeUnknown):
            assert time.monotonic() < end


@mostly("sync", "service")
def test_a_replica_that_is_named_as_the_primary(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentinels that are behind name a server that is a replica by now: nothing is sent to it, and they are asked again
    until they know."""
    replica = service.servers.replicas[0]
    understood = sentinel._understood
    monkeypatch.setattr(sentinel, "_understood", lambda *args: understood(*args)._replace(port=replica.port))
    message = refusal(service)
    assert f"nothing was sent to Redis at 127.0.0.1:{replica.port}" in message and "it is a replica by now" in message
    acquired = service.party().start(lambda hold: hold.lock("job").acquire(wait=10))
    time.sleep(0.3)
    monkeypatch.undo()
    assert acquired.result(RECOVERY)


@mostly("sync", "service")
def test_a_sentinel_that_is_behind_is_not_followed(service: Service) -> None:
    """It was stopped during the failover, and still names the old primary. The others are asked as well."""
    party, lease = service.acquire()
    service.replicated()
    first = service.servers.sentinels[0]
    first.freeze()
    old = service.servers.primary
    service.servers.replace(old)
    party.do(lambda _: lease.extend(6))
    first.thaw()
    assert party.do(lambda _: lease.release()) is True
    assert service.party().do(lambda hold: hold.lock("job").acquire(wait=10)).fence > lease.fence


@mostly("sync", "service")
def test_a_primary_that_must_have_replicas_and_has_none_grants_nothing(service: Service) -> None:
    """``min-replicas-to-write``, as the page advises: nothing was taken, and each call asks the Sentinels anew."""
    primary = service.servers.primary
    party, lease = service.acquire()
    assert primary.ask("CONFIG SET min-replicas-to-write 1") == b"+OK\r\n"
    try:
        service.servers.cut_replication()
        with pytest.raises(StoreUnavailable, match="refuses writes because it has too few replicas"):
            party.do(lambda hold: hold.lock("other").acquire(wait=2))
        service.servers.heal()
        party.do(lambda hold: hold.lock("other").acquire(wait=10))
        assert party.do(lambda _: lease.release()) is True
    finally:
        assert primary.ask("CONFIG SET min-replicas-to-write 0") == b"+OK\r\n"


def test_what_a_replica_has_confirmed_survives_a_failover(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """``durability=``: when the acquire returns the replica has the lease, without a wait, and after the failover the
    old primary confirms its renewals. Without a replica nothing is granted, and the error names the missing one."""
    party, lease = service.acquire(ttl=20, durability="replicas:1")
    owner = service.holder()
    (replica,) = service.servers.replicas
    assert owner and service.holder(server=replica) == owner
    service.servers.failover()
    assert service.holder() == owner
    assert service.party().do(lambda hold: hold.lock("job").try_acquire()) is None
    until(lambda: _extended(party, lease), "the new primary and its replica confirm it")
    assert lease.state == "held" and party.do(lambda _: lease.release()) is True
    monkeypatch.setattr(durable, "SHARE", 0.1)
    service.servers.cut_replication()
    with pytest.raises(StoreUnavailable, match=r"has no replicas that confirmed .* 1 of 1 is not connected"):
        party.do(lambda hold: hold.lock("job", ttl=5, durability="replicas:1").acquire(wait=0))
    until(lambda: not service.holder(), "it is given back")


def _extended(party: Any, lease: Any) -> bool:
    """Not while the old primary is on its way to be a replica."""
    try:
        party.do(lambda _: lease.extend(20))
    except (StoreUnavailable, OutcomeUnknown):
        return False
    return True
