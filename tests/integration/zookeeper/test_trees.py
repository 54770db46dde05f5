"""Whose tree it is: how it is made, what is refused, and who may use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError
from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

import leasehold
from leasehold import StoreUnavailable
from leasehold.stores.record.requests import Change, List, Look, Part, Tell
from leasehold.stores.zookeeper.names import MARK
from tests.integration.zookeeper.party import Calls, Party
from tests.support.servers.certificates import Certificates
from tests.support.servers.zookeeper import ZooKeeperServer
from tests.support.waiting import PATIENCE, until

Joining = Callable[..., Party]
LOGIN, OTHER = "app:s3cret", "eve:guess"
TTL = 15.0  # seconds


@pytest.fixture
def admin(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client of kazoo's, to look and to prepare."""
    client = KazooClient(zookeeper_server.address)
    client.start()
    yield client
    client.stop()
    client.close()


def remove(admin: KazooClient, chroot: str) -> None:
    """The whole tree, although clients may make nodes in it meanwhile."""

    def removed() -> bool:
        try:
            admin.delete(chroot, recursive=True)
        except NotEmptyError:
            return False
        return True

    until(removed, "the tree is removed")


def test_the_tree_is_made(party: Party, admin: KazooClient, chroot: str) -> None:
    """By the first request, with a mark that says whose it is."""
    party.look("a")
    assert admin.get(chroot)[0] == MARK
    assert sorted(admin.get_children(chroot)) == ["n", "r", "s"]
    assert admin.get_children(f"{chroot}/s") == [f"{int(party.session, 16):016x}"]


def test_parents_are_made(join: Joining, zookeeper_server: ZooKeeperServer, chroot: str, flavour: str) -> None:
    """Also by several clients at once."""
    parties = [join(flavour, zookeeper_server.url(f"{chroot}/deep/down")) for _ in range(3)]
    for party in parties:
        party.server.hear("x", print)  # they connect
    assert [party.look("a").text for party in parties] == [None] * 3


@pytest.mark.parametrize("data", [b"", b"leasehold 0", b"something else"])
def test_a_tree_of_somebody_else(join: Joining, admin: KazooClient, chroot: str, data: bytes, flavour: str) -> None:
    """It is refused in one sentence, and nothing is written."""
    admin.create(chroot, data)
    admin.create(f"{chroot}/s")
    party = join(flavour)
    requests = (Look(("a",)), Change((Part("a", 0, "x"),)), List("", 1), Tell("you", "x"))
    for answer in party.perform(*requests):
        assert isinstance(answer, StoreUnavailable)
        assert f"has a node {chroot} that is not of Leasehold" in str(answer)
    assert admin.get_children(chroot) == ["s"]
    assert admin.get_children(f"{chroot}/s") == []


def test_an_empty_node_is_taken_over(join: Joining, admin: KazooClient, chroot: str) -> None:
    """An administrator has made it, for its ACL or its quota."""
    admin.create(chroot)
    join().write("a", "x")
    assert admin.get(chroot)[0] == MARK


def test_a_tree_that_is_removed(party: Party, admin: KazooClient, chroot: str) -> None:
    """While it is used: it is made again, and everything in it is forgotten."""
    heard = Calls()
    party.server.hear("me", heard)
    record = party.write("a", "x")
    remove(admin, chroot)
    assert party.look("b").text is None
    refused = party.change(Part("a", record.revision, "y"))
    assert not refused.done
    assert party.change(Part("a", 0, "y")).done
    remove(admin, chroot)
    assert party.change(Part("a", 0, "z")).done
    assert party.one(Tell("me", "hello"))
    heard.wait()


def test_with_a_login(join: Joining, zookeeper_server: ZooKeeperServer, chroot: str, flavour: str) -> None:
    """Whoever has it uses the tree, places and news too; nobody else reads or writes it."""
    mine = zookeeper_server.url(chroot, f"{LOGIN}@")
    one, two = join(flavour, mine), join("threads", mine)
    place, heard = one.wait_in("a", "one"), Calls()
    one.server.hear("me", heard)
    record = two.look("a")
    assert two.change(Part("a", record.revision, "left", leave=(place,))).done
    assert two.one(Tell("me", "hello"))
    heard.wait()
    for stranger in (join(flavour), join(flavour, zookeeper_server.url(chroot, f"{OTHER}@"))):
        with pytest.raises(StoreUnavailable, match="does not allow this login what a lease needs"):
            stranger.look("a")


def test_a_tree_that_may_only_be_read(join: Joining, admin: KazooClient, chroot: str, flavour: str) -> None:
    """One sentence says so, and nothing is written."""
    admin.add_auth("digest", LOGIN)
    admin.create(chroot, acl=[*CREATOR_ALL_ACL, *READ_ACL_UNSAFE])
    with pytest.raises(StoreUnavailable, match="does not allow this login what a lease needs"):
        join(flavour).change(Part("a", 0, "x"))
    assert admin.get_children(chroot) == []


def test_creators_without_a_login(join: Joining) -> None:
    """There is nobody whom the nodes could belong to."""
    with pytest.raises(StoreUnavailable, match="acl=creator needs a login"):
        join(acl="creator").look("a")


@pytest.mark.parametrize("flavour", ["threads", pytest.param("asyncio", marks=pytest.mark.soak)])
def test_with_tls(join: Joining, certificates: Certificates, chroot: str, flavour: str) -> None:
    """The server's certificate is checked, and a client shows its own. A session survives a broken connection."""
    with ZooKeeperServer(tls=certificates) as server:
        url = f"zk://localhost:{server.tls_port}{chroot}"
        files = {"ca": str(certificates.authority), "cert": str(certificates.client)}
        party = join(flavour, url, **files)
        place = party.wait_in("a", "me")
        client = party.server._session._client
        assert client is not None
        client.hang_up()
        assert party.look("a").places == (place,)
        without, suspicious = join(flavour, url, ca=files["ca"]), join(flavour, url, tls="yes")
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            without.one(Look(("a",)), within=0.5)

        def found_out() -> bool:
            (failure,) = suspicious.perform(Look(("a",)), within=0.5)
            assert isinstance(failure, StoreUnavailable)
            return "certificate verify failed" in str(failure)

        until(found_out, "the certificate is not believed")


def test_a_change_that_is_too_large(party: Party) -> None:
    """ZooKeeper would hang up, so it is not sent."""
    with pytest.raises(StoreUnavailable, match="too large"):
        party.change(Part("a", 0, "x" * 1_000_000))
    assert party.change(Part("a", 0, "x" * 999_000)).done


# ---------------------------------------------------------------- SASL


def test_a_server_that_requires_a_login_by_sasl(join: Joining, chroot: str, tmp_path: Path) -> None:
    """It serves nobody else, and says which login it requires. With DIGEST-MD5 the tree belongs to the user, also after
    the connection broke, and leases are held, waited for and handed over; on a thread and on an event loop."""
    users = tmp_path / "users.conf"
    users.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_app="s3cret"; };')
    provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    required = {"zookeeper.sessionRequireClientSASLAuth": "true", "java.security.auth.login.config": str(users)}
    with ZooKeeperServer(provider, required) as server:
        with pytest.raises(StoreUnavailable, match="requires a login by SASL: add sasl=digest"):
            join(url=server.url(chroot)).change(Part("a", 0, "x"), within=10)
        for flavour in ("threads", "asyncio"):
            with pytest.raises(StoreUnavailable, match="does not accept this login"):
                join(flavour, server.url(chroot, "app:guess@"), sasl="digest").look("a")
            is_used_with_sasl(join(flavour, server.url(f"{chroot}-{flavour}", f"{LOGIN}@"), sasl="digest"))
        is_leased_in_both_flavours(f"{server.url(chroot, f'{LOGIN}@')}?sasl=digest")


def is_used_with_sasl(party: Party) -> None:
    """A place is kept through a broken connection, in a tree that is the user's."""
    place = party.wait_in("a", "me")
    client = party.server._session._client
    assert client is not None
    chroot = party.given.partition("?")[0].rpartition("/")[2]
    (rights,) = client.get_acls(f"/{chroot}")[0]
    assert (rights.id.scheme, rights.id.id) == ("sasl", "app")
    client.hang_up()
    assert party.look("a").places == (place,)


def is_leased_in_both_flavours(url: str) -> None:
    """By a thread first, then by a task that waits for it."""

    async def wait_for_it() -> int:
        async with leasehold.aio.connect(url) as waiter, waiter.lock("job", ttl=TTL, wait=PATIENCE) as granted:
            return granted.fence

    with leasehold.connect(url) as hold, ThreadPoolExecutor(1) as threads:
        with hold.lock("job", ttl=TTL) as lease:
            waits = threads.submit(asyncio.run, wait_for_it())
            until(lambda: hold.inspect("job").waiters, "it waits")
        assert waits.result(PATIENCE) > lease.fence
