"""URLs of ZooKeeper and clients of kazoo's: forms and options, and what is said about a bad one. Nothing is sent."""

from __future__ import annotations

import re
import traceback

import pytest
from kazoo.client import KazooClient

from leasehold import InvalidRequest
from leasehold.stores.record.requests import Server
from leasehold.stores.zookeeper.server import ZooKeeper
from leasehold.stores.zookeeper.target import CHROOT, SESSION_SECONDS, from_url, target_of
from tests.support.tables import each

SECRET = "hunter2"
PERCENT = "percent-encode the special characters of the user and the password"


@each(
    ["url", "hosts", "chroot"],
    [
        ("zk://host", "host:2181", CHROOT),
        ("zk://host/", "host:2181", CHROOT),
        ("zk://one,two:2182,three/apps/leases", "one:2181,two:2182,three:2181", "/apps/leases"),
        ("zk://[::1]:2200,[fe80::1]/x/", "[::1]:2200,[fe80::1]:2181", "/x"),
        ("zk://app:p%40ss%2Fw@host/a%20b", "host:2181", "/a b"),
        ("zk://host/lease%C3%A9", "host:2181", "/leaseé"),
    ],
)
def test_hosts_and_chroot(url: str, hosts: str, chroot: str) -> None:
    """Ports and the chroot have defaults."""
    target = from_url(url)
    assert (target.hosts, target.chroot) == (hosts, chroot)


def test_without_a_login_nodes_are_open() -> None:
    """Everybody who reaches the server may use the tree, as is ZooKeeper's own default."""
    target = from_url("zk://host")
    assert (target.auth, target.sasl, target.acl, target.tls) == ((), None, "open", {})
    assert target.session_seconds == SESSION_SECONDS


def test_with_a_login_nodes_are_for_it_alone() -> None:
    """Unless the URL says otherwise."""
    target = from_url("zk://app:p%40ss%2Fw@host")
    assert (target.auth, target.acl) == ((("digest", "app:p@ss/w"),), "creator")
    assert from_url("zk://app:pw@host?acl=open").acl == "open"


def test_a_login_by_sasl() -> None:
    """It takes the place of ZooKeeper's own login, and nodes are for it alone as well."""
    target = from_url("zk://app:p%40ss@host?sasl=digest")
    assert target.sasl == {"mechanism": "DIGEST-MD5", "username": "app", "password": "p@ss"}
    assert (target.auth, target.acl) == ((), "creator")
    with pytest.raises(InvalidRequest, match="sasl=digest needs a user and a password"):
        from_url("zk://host?sasl=digest")


def test_packages_that_sasl_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is said with the command that installs it, also for a client of kazoo's, before anything is
    connected."""
    installed = {"puresasl"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: "found" if name in installed else None)
    with pytest.raises(InvalidRequest, match=re.escape("kerberos: pip install 'pure-sasl[gssapi]'")):
        from_url("zk://host?sasl=gssapi")
    installed.add("kerberos")
    assert from_url("zk://host?sasl=gssapi").sasl == {"mechanism": "GSSAPI"}
    assert from_url("zk://app:pw@host?sasl=gssapi").sasl == {"mechanism": "GSSAPI", "principal": "app"}
    installed.clear()
    options = {"mechanism": "DIGEST-MD5", "username": "app", "password": SECRET}
    for given in ("zk://app:pw@host?sasl=digest", "zk://host?sasl=gssapi", KazooClient("host", sasl_options=options)):
        with pytest.raises(InvalidRequest, match=re.escape("pip install 'leasehold[zookeeper-sasl]'")):
            target_of(given)


def test_options() -> None:
    """The session is in seconds; TLS is on when a file for it is named."""
    target = from_url(f"zk://host?session=12.5s&ca={__file__}&cert={__file__}")
    assert target.session_seconds == 12.5
    assert target.tls == {
        "use_ssl": True,
        "check_hostname": True,
        "ca": __file__,
        "certfile": __file__,
        "keyfile": __file__,
    }
    assert from_url("zk://host?tls=yes").tls == {"use_ssl": True, "check_hostname": True}


BAD = {
    "redis://host": "that is no URL of ZooKeeper",
    "zk:host": "that is no URL of ZooKeeper",
    "zookeeper://host": "write zk://host1,host2,host3/chroot",
    "zk://": "names no host",
    "zk:///chroot": "names no host",
    "zk://one,,two": "a host is missing",
    "zk://ho st": "a host is missing",
    "zk://host:port": "a port is a number",
    "zk://host:0": "a port is a number",
    "zk://host:65536": "a port is a number",
    "zk://::1": "in brackets",
    "zk://[::1": "in brackets",
    "zk://[host]": "in brackets",
    f"zk://app:{SECRET}@x@host": PERCENT,
    f"zk://app:{SECRET}/@host": PERCENT,
    f"zk://app:{SECRET}?x@host": PERCENT,
    f"zk://app:{SECRET}:x@host": PERCENT,
    f"zk://a%3Ab:{SECRET}@host": "has no colon",
    "zk://app@host": "a user and a password",
    f"zk://:{SECRET}@host": "a user and a password",
    "zk://host//x": "is no path of ZooKeeper",
    "zk://host/a/../b": "is no path of ZooKeeper",
    "zk://host/a/./b": "is no path of ZooKeeper",
    "zk://host/zookeeper": "belongs to ZooKeeper itself",
    "zk://host/zookeeper/x": "belongs to ZooKeeper itself",
    "zk://host/a%01b": "ZooKeeper forbids",
    "zk://host/a\x01b": "a control character",
    "zk://host/\ud800": "cannot be sent as UTF-8",
    "zk://host?acl=mine": "acl= is creator or open",
    "zk://host?acl=open&acl=open": "twice",
    "zk://host?sesion=3": "did you mean session?",
    "zk://host?timeout=3": "has no option 'timeout'",
    "zk://host?session=": "session= is a number of seconds from 1 to 60",
    "zk://host?session=0.5": "session= is a number of seconds from 1 to 60",
    "zk://host?session=nan": "session= is a number of seconds from 1 to 60",
    "zk://host?sasl=plain": "sasl= is digest or gssapi",
    "zk://host?tls=maybe": "tls= is yes or no",
    "zk://host?ca=/no/such/file": "names a file that cannot be read",
    f"zk://host?key={__file__}": "key= needs cert=",
    f"zk://host?tls=no&ca={__file__}": "which tls=no forbids",
}


@each(["url", "message"], BAD.items())
def test_bad_urls(url: str, message: str) -> None:
    """One sentence says what is wrong, and shows no password."""
    with pytest.raises(InvalidRequest) as caught:
        from_url(url)
    assert message in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_client_gives_its_settings() -> None:
    """It is not started, nor stopped."""
    client = KazooClient("one,[::1]:2182/apps", timeout=7, auth_data={("digest", "app:pw")}, use_ssl=True, ca="ca.pem")
    target = target_of(client)
    assert target.hosts == "one:2181,[::1]:2182"
    assert (target.chroot, target.session_seconds, target.acl) == ("/apps", 7, "creator")
    assert target.auth == (("digest", "app:pw"),)
    assert target.tls == {"use_ssl": True, "verify_certs": True, "ca": "ca.pem"}
    assert target_of(KazooClient("one")).chroot == CHROOT


def test_something_else() -> None:
    """What is no client is refused at once."""
    with pytest.raises(InvalidRequest, match="give a KazooClient or a URL"):
        target_of(object())


def test_it_is_a_server_that_keeps_records() -> None:
    """Type checkers see that nothing is missing; nothing is connected."""
    server: Server = ZooKeeper("zk://host")
    assert server.most_parts == 60
    assert server.server == "ZooKeeper at host:2181"
    server.close()
