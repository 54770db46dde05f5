"""URLs and clients of Sentinels: what they are reduced to, and what is said about a bad one. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio
import redis.sentinel
import valkey.asyncio.sentinel
import valkey.sentinel

import leasehold
from leasehold import InvalidRequest, Unsupported
from leasehold._core.schemes import OPENED
from leasehold.stores.redis.client_store import ClientStore, open_client, sentinels_of
from leasehold.stores.redis.target import Sentinels, Target, from_sentinel_url
from tests.support.servers.certificates import Certificates
from tests.support.tables import each
from tests.unit.redis.test_urls import leaks

SECRET = "hunter2"
CONNECTS = [leasehold.connect, leasehold.aio.connect]


def sentinel(host: str, port: int = 26379, **more: Any) -> Target:
    """One, as it is asked."""
    return Target(host=host, port=port, **more)


FORMS: dict[str, Sentinels] = {
    "redis+sentinel://a/leases": Sentinels((sentinel("a"),), "leases", Target()),
    "redis+sentinel://a,b:1,C/leases/": Sentinels((sentinel("a"), sentinel("b", 1), sentinel("c")), "leases", Target()),
    "valkey+sentinel://10.0.0.7:5,[::1],[::2]:7/my-service_1.x/3": Sentinels(
        (sentinel("10.0.0.7", 5), sentinel("::1"), sentinel("::2", 7)), "my-service_1.x", Target(db=3)
    ),
    "redis+sentinel://a/leases?db=3": Sentinels((sentinel("a"),), "leases", Target(db=3)),
    "redis+sentinel://:p%40ss@a,b/leases/3": Sentinels(
        (sentinel("a"), sentinel("b")), "leases", Target(db=3, password="p@ss")
    ),
    "redis+sentinel://u:p@a/leases?sentinel_username=s&sentinel_password=p%26q+r": Sentinels(
        (sentinel("a", username="s", password="p&q r"),), "leases", Target(username="u", password="p")
    ),
    "redis+sentinel://a/leases?sentinel_ssl=true&sentinel_ssl_cert_reqs=none": Sentinels(
        (sentinel("a", tls={"ssl_cert_reqs": "none"}),), "leases", Target()
    ),
    "rediss+sentinel://a/leases?ssl_cert_reqs=none": Sentinels(
        (sentinel("a", tls={"ssl_cert_reqs": "none"}),), "leases", Target(tls={"ssl_cert_reqs": "none"})
    ),
    "valkeys+sentinel://a/leases?sentinel_ssl=false": Sentinels((sentinel("a"),), "leases", Target(tls={})),
    "rediss+sentinel://a/leases?sentinel_ssl_check_hostname=false": Sentinels(
        (sentinel("a", tls={"ssl_check_hostname": "false"}),), "leases", Target(tls={})
    ),
    "redis+sentinel://a/leases?socket_connect_timeout=2&max_connections=7&client_name=me": Sentinels(
        (sentinel("a", connect_timeout=2.0),),
        "leases",
        Target(connect_timeout=2.0, max_connections=7, client_name="me"),
    ),
}


@each("url", FORMS)
def test_a_url_names_sentinels_a_service_and_both_logins(url: str) -> None:
    """The settings of the servers, and those of the Sentinels."""
    assert from_sentinel_url(url) == FORMS[url]


@each("scheme", OPENED["sentinel"].schemes)
@each("connect", CONNECTS)
def test_connecting_sends_nothing(connect: Callable[..., Any], scheme: str) -> None:
    """A host that does not exist is found out by the first call."""
    hold = connect(f"{scheme}://no.such.host.example,other.example/leases")
    if connect is leasehold.connect:
        hold.close()


BAD: dict[str, tuple[str, str]] = {
    "no service": ("redis+sentinel://a,b,c", "names the service behind the hosts: redis.sentinel://host1,host2"),
    "no service behind the slash": ("redis+sentinel://a,b,c/", "names the service"),
    "a database alone": ("redis+sentinel://a//0", "names the service"),
    "a third part": ("redis+sentinel://a/leases/0/1", "names the service"),
    "a space in the service": ("redis+sentinel://a/le%20ases", "names the service"),
    "no host": ("redis+sentinel:///leases", "bad host or port: write redis.sentinel://host1,host2"),
    "an empty host": ("redis+sentinel://a,,b/leases", "bad host or port"),
    "a bad port": ("redis+sentinel://a:x/leases", "bad host or port"),
    "port 0": ("redis+sentinel://a:0/leases", "bad host or port"),
    "a port that is too high": ("redis+sentinel://a:70000/leases", "bad host or port"),
    "a space between hosts": ("redis+sentinel://a, b/leases", "bad host or port"),
    "half a bracket": ("redis+sentinel://[::1/leases", "bad host or port"),
    "a bad database": ("redis+sentinel://a/leases/x", "the database number"),
    "two databases": ("redis+sentinel://a/leases/1?db=2", "names the database twice"),
    "an unknown option": ("redis+sentinel://a/leases?max_conections=2", "did you mean max_connections"),
    "an unknown option of Sentinels": ("redis+sentinel://a/leases?sentinel_pass=2", "there are: sentinel_username, "),
    "an option without a value": ("redis+sentinel://a/leases?sentinel_ssl", "there are: sentinel_username, "),
    "an option twice": ("redis+sentinel://a/s?sentinel_ssl=true&sentinel_ssl=true", "sentinel_ssl twice"),
    "TLS options without TLS": ("redis+sentinel://a/leases?ssl_cert_reqs=none", "ssl_. options need"),
    "TLS options of Sentinels without": ("redis+sentinel://a/s?sentinel_ssl_cert_reqs=none", "need sentinel_ssl=true"),
    "a file that is not there": ("redis+sentinel://a/s?sentinel_ssl=1&sentinel_ssl_ca_certs=/no/file", "TLS settings"),
    "a fragment": ("redis+sentinel://a/leases#1", "percent-encode it as %23"),
}


@each("name", BAD)
@each("connect", CONNECTS)
def test_a_bad_url_of_sentinels_is_refused(connect: Callable[..., Any], name: str) -> None:
    """Before anything is sent, and the message says what to write."""
    url, message = BAD[name]
    with pytest.raises(InvalidRequest, match=message):
        connect(url)


@each(
    "url",
    [
        f"redis+sentinel://user:{SECRET}@a,b:x/leases",
        f"redis+sentinel://user:x/{SECRET}@a,b/leases",
        f"redis+sentinel://user:x?{SECRET}@a,b/leases",
        f"redis+sentinel://user:x#{SECRET}@a,b/leases",
        f"redis+sentinel://user:{SECRET}@a,b",
        f"redis+sentinel://a/leases?sentinel_password={SECRET}&sentinel_x=1",
        f"redis+sentinel://a/leases?sentinel_password=x&sentinel_{SECRET}=1",
        f"redis+sentinel://a/leases?sentinel_password=x&{SECRET}=1",
        f"redis+sentinel://a/leases?sentinel_password={SECRET}&sentinel_ssl=1&sentinel_ssl_ca_certs=/no",
    ],
)
def test_no_error_about_sentinels_holds_a_password(url: str) -> None:
    """Neither that of the servers nor that of the Sentinels."""
    with pytest.raises(InvalidRequest) as caught:
        leasehold.connect(url)
    assert not leaks(caught.value)


def test_what_is_shown_of_the_settings_holds_no_password() -> None:
    """Of either layer."""
    found = from_sentinel_url(f"redis+sentinel://u:{SECRET}@a,b/leases?sentinel_password={SECRET}")
    assert SECRET not in repr(found)
    assert SECRET not in repr(found.targets) + repr(found.primary) + str(found)


# ---------------------------------------------------------------- clients

KINDS: dict[str, Any] = {
    "redis": redis.sentinel.Sentinel,
    "redis of asyncio": redis.asyncio.Sentinel,
    "valkey": valkey.sentinel.Sentinel,
    "valkey of asyncio": valkey.asyncio.sentinel.Sentinel,
}
HOSTS = [("a", 26379), ("b", 1)]


@each("kind", KINDS)
def test_the_clients_of_sentinels_are_reduced_to_both_layers(kind: str) -> None:
    """The Sentinels with their login, the service, and the settings of the servers."""
    manager = KINDS[kind](
        HOSTS, sentinel_kwargs={"username": "s", "password": "q"}, min_other_sentinels=2, password="p", db=1
    )
    layers = (sentinel("a", username="s", password="q"), sentinel("b", 1, username="s", password="q"))
    expected = Sentinels(layers, "leases", Target(db=1, password="p"), least_others=2)
    assert sentinels_of(manager.master_for("leases")) == expected
    assert sentinels_of(manager.master_for("leases", db=2)) == expected._replace(primary=Target(db=2, password="p"))
    assert sentinels_of(manager) == expected._replace(service="")
    assert not isinstance(open_client(manager.master_for("leases")), ClientStore)


@each("kind", KINDS)
def test_tls_of_either_layer_is_kept(kind: str, certificates: Certificates) -> None:
    """Each has its own."""
    ca = {"ssl_ca_certs": certificates.arguments()["ssl_ca_certs"]}
    manager = KINDS[kind](HOSTS, sentinel_kwargs={"ssl": True, **ca}, ssl=True, **ca)
    for found in (sentinels_of(manager), sentinels_of(manager.master_for("leases"))):
        assert found is not None
        settings = [found.primary.tls, *(one.tls for one in found.targets)]
        assert all(one is not None and one["ssl_ca_certs"] == ca["ssl_ca_certs"] for one in settings)
    plain = KINDS[kind](HOSTS, sentinel_kwargs={"ssl": True, **ca})
    found = sentinels_of(plain.master_for("leases"))
    assert found is not None and found.primary.tls is None and found.targets[0].tls is not None


@each("kind", KINDS)
def test_a_client_of_replicas_is_unsupported(kind: str) -> None:
    """Leases are written."""
    with pytest.raises(Unsupported, match=r"a client of replicas: give it sentinel\.master_for"):
        open_client(KINDS[kind](HOSTS).slave_for("leases"))


class OwnWay(redis.sentinel.Sentinel):
    """Knows the primary in its own way."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Without asking."""
        return "127.0.0.1", 6379


def test_a_sentinel_that_finds_the_primary_in_its_own_way_is_used_through_its_client() -> None:
    """Its client's commands find it; the object itself has no commands for a primary."""
    own: Any = OwnWay
    assert isinstance(open_client(own(HOSTS).master_for("leases")), ClientStore)
    with pytest.raises(Unsupported, match=r"give it sentinel\.master_for"):
        open_client(own(HOSTS))


def test_a_client_whose_sentinels_have_special_settings_is_used_through_its_commands() -> None:
    """A callback at connect may do anything."""
    manager: Any = redis.sentinel.Sentinel
    client = manager(HOSTS, sentinel_kwargs={"redis_connect_func": print}).master_for("leases")
    assert isinstance(open_client(client), ClientStore)
