"""The examination of ZooKeeper: ticks, sessions, words that are not allowed, its clock, and the rights it printed."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Id, Permissions

import leasehold
from tests.support.doctor import every_finding_helps, examined, found, only
from tests.support.servers.ensemble_fixtures import ClockedZooKeeper
from tests.support.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

pytestmark = pytest.mark.slow
RIGHTS = {"c": Permissions.CREATE, "d": Permissions.DELETE, "r": Permissions.READ, "w": Permissions.WRITE}


def test_one_server(zookeeper_url: str) -> None:
    """Nothing is wrong but that it is alone."""
    seen = examined(zookeeper_url)
    every_finding_helps(seen)
    assert "problem" not in {one.severity for one in seen.report.findings} and seen.trial is not None
    assert only(seen, "members").severity == "warning" and only(seen, "session").severity == "ok"
    assert only(seen, "ticks").severity == "ok" and only(seen, "clock").severity == "ok"


def test_its_clock(zookeeper_server: ClockedZooKeeper, zookeeper_url: str) -> None:
    """Told by the time of what it writes."""
    zookeeper_server.clock.set_off(20)
    finding = only(examined(zookeeper_url), "clock")
    assert finding.severity == "warning" and "s ahead of" in finding.text


@pytest.mark.soak  # a server of its own takes seconds to start
def test_settings() -> None:
    """Long ticks, sessions that are longer than asked, few connections; then words that are not allowed."""
    slow = {"tickTime": "4000", "minSessionTimeout": "20000", "maxClientCnxns": "3"}
    with ZooKeeperServer(slow) as server, leasehold.connect(server.url()) as other:
        other.lock("job").locked()
        seen = examined(server.url())
        assert only(seen, "ticks").severity == "warning" and "4000 ms" in only(seen, "ticks").text
        assert only(seen, "session").severity == "warning" and "20 s" in only(seen, "session").text
        assert only(seen, "connections").severity == "warning"
        with leasehold.connect(server.url()) as third:
            third.lock("job").locked()
            seen = examined(server.url())
        assert "maxClientCnxns" in found(seen, "reachable")["problem"].text
    quiet = {"4lw.commands.whitelist": "srvr,ruok"}
    with ZooKeeperServer(quiet, {"zookeeper.4lw.commands.whitelist": "srvr,ruok"}) as server:
        seen = examined(server.url())
        assert only(seen, "ticks").severity == "note" and "cannot be seen" in only(seen, "ticks").text
        assert only(seen, "version").severity == "ok"


def _type(client: KazooClient, line: str) -> None:
    """What zkCli.sh does with it."""
    word, *rest = shlex.split(line)
    if word == "addauth":
        client.add_auth(*rest)
        return
    path, _, *acl = rest
    given = None
    if acl:
        scheme, credential, letters = acl[0].split(":")
        given = [ACL(sum(RIGHTS[letter] for letter in letters), Id(scheme, credential))]
    client.create(path, b"", acl=given)


def test_the_lines_that_it_prints_are_enough(zookeeper_server: ClockedZooKeeper, chroot: str) -> None:
    """A login whose chroot was made with them takes and gives back leases; nobody else gets in."""
    lines = only(examined(zookeeper_server.url(f"{chroot}/leases")), "permissions").fix.split("; ")
    assert lines == ["addauth digest app:password", f'create {chroot} ""', f'create {chroot}/leases "" auth::cdrw']
    client = KazooClient(zookeeper_server.address)
    client.start()
    for line in lines:
        _type(client, line.replace(chroot, f"{chroot}-app"))
    client.stop()
    client.close()
    url = zookeeper_server.url(f"{chroot}-app/leases", "app:password@")
    with leasehold.connect(url) as one, leasehold.connect(url) as other:
        with one.lock("job"):
            assert other.lock("job").try_acquire() is None
        with other.lock("job", wait=5):
            pass
    seen = examined(url)
    assert only(seen, "permissions").severity == "ok" and seen.trial is not None
    seen = examined(url.replace("app:password@", "eve:password@"))
    assert seen.trial is None and seen.report.reachable and "problem" in found(seen, "lease")
    assert only(seen, "permissions").severity == "note" and "cannot be seen" in only(seen, "permissions").text


@pytest.mark.soak  # kazoo tries for seconds
def test_a_server_that_is_gone() -> None:
    """A finding: nothing listens there."""
    seen = examined("zk://127.0.0.1:1")
    assert not seen.report.reachable and found(seen, "reachable")["problem"].place == "127.0.0.1:1"


@pytest.mark.soak  # an ensemble of its own takes seconds to start and to heal
def test_an_ensemble(zookeeper_ensemble: ZooKeeperEnsemble, chroot: str) -> None:
    """Three members: whole; one away is a warning; two are no majority."""
    url = zookeeper_ensemble.url(chroot)
    assert only(examined(url), "members").severity == "ok"
    first, second = zookeeper_ensemble.followers
    first.kill()
    seen: Any = examined(url)
    assert "warning" in found(seen, "members") and seen.trial is not None
    second.kill()
    seen = examined(url)
    assert "problem" in found(seen, "reachable") and not seen.report.reachable
