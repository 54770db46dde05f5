"""URLs of Redis and Valkey: every form and option, and what is said about a bad one. Nothing is sent here."""

from __future__ import annotations

import logging
import math
import pickle
import socket
import ssl
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis.connection
from hypothesis import example, given
from hypothesis import strategies as st

import leasehold
from leasehold import InvalidRequest, LeaseholdError, StoreUnavailable
from leasehold.stores.redis.target import MEANINGLESS, OPTIONS, SCHEMES, TLS_OPTIONS, Target, from_url
from tests.support.servers.certificates import Certificates
from tests.support.tables import each

SECRET = "hunter2"
CONNECTS = [leasehold.connect, leasehold.aio.connect]
Connect = Callable[..., Any]


def leaks(error: BaseException) -> bool:
    """Does anything that can be shown of an error hold the password?"""
    shown = [str(error), repr(error), repr(error.args), repr(error.__dict__), *traceback.format_exception(error)]
    chain = [error.__cause__, None if error.__suppress_context__ else error.__context__]
    return SECRET in "".join([*shown, repr(pickle.dumps(error)), *map(repr, chain)])


# ---------------------------------------------------------------- what works

FORMS: dict[str, dict[str, Any]] = {
    "redis://": {},
    "redis://localhost": {},
    "redis://localhost:": {},
    "redis://localhost/": {},
    "redis://localhost:6379/0": {},
    "redis://Example.ORG:6380": {"host": "example.org", "port": 6380},
    "redis://10.0.0.7:1": {"host": "10.0.0.7", "port": 1},
    "redis://host:65535": {"host": "host", "port": 65_535},
    "redis://:6380": {"port": 6380},
    "valkey://host:6380/2": {"host": "host", "port": 6380, "db": 2},
    "rediss://host": {"host": "host", "tls": {}},
    "valkeys://host:6380": {"host": "host", "port": 6380, "tls": {}},
    # databases
    "redis://localhost/15": {"db": 15},
    "redis:///3": {"db": 3},
    "redis://localhost/3/": {"db": 3},
    "redis://localhost?db=3": {"db": 3},
    "redis://localhost/?db=3": {"db": 3},
    # IPv6
    "redis://[::1]": {"host": "::1"},
    "redis://[::1]:6380/2": {"host": "::1", "port": 6380, "db": 2},
    "redis://joe:pw@[2001:db8::7]:6380": {"host": "2001:db8::7", "port": 6380, "username": "joe", "password": "pw"},
    # who
    "redis://joe:pw@host": {"host": "host", "username": "joe", "password": "pw"},
    "redis://:pw@host": {"host": "host", "password": "pw"},
    "redis://joe@host": {"host": "host", "username": "joe"},
    "redis://joe:@host": {"host": "host", "username": "joe"},
    "redis://j%40e:p%40%3A%2F%3F%23%25%20%5B@host": {"host": "host", "username": "j@e", "password": "p@:/?#% ["},
    "redis://joe:p+w@host": {"host": "host", "username": "joe", "password": "p+w"},
    "redis://joe:p%C3%A4ss@host": {"host": "host", "username": "joe", "password": "päss"},
    "redis://joe:a:b@c@host": {"host": "host", "username": "joe", "password": "a:b@c"},
    "redis://joe:pw@": {"username": "joe", "password": "pw"},
    # sockets
    "unix:///run/redis.sock": {"path": "/run/redis.sock"},
    "unix:///run/redis.sock?db=2": {"path": "/run/redis.sock", "db": 2},
    "unix://localhost/run/redis.sock": {"path": "/run/redis.sock"},
    "unix://joe:pw@/run/redis.sock": {"path": "/run/redis.sock", "username": "joe", "password": "pw"},
    "unix://:pw@localhost/run/redis.sock": {"path": "/run/redis.sock", "password": "pw"},
    "unix:///run/a%20b%3F.sock": {"path": "/run/a b?.sock"},
    # options
    "redis://host?username=joe&password=p%26w": {"host": "host", "username": "joe", "password": "p&w"},
    "redis://host?client_name=worker-7": {"host": "host", "client_name": "worker-7"},
    "redis://host?protocol=2": {"host": "host", "resp": 2},
    "redis://host?protocol=3": {"host": "host"},
    "redis://host?socket_connect_timeout=0.5": {"host": "host", "connect_timeout": 0.5},
    "redis://host?socket_timeout=0.5": {"host": "host", "reply_timeout": 0.5},
    "redis://host?socket_keepalive=True": {"host": "host"},
    "redis://host?max_connections=10": {"host": "host", "max_connections": 10},
    "redis://host?health_check_interval=30": {"host": "host", "ping_after": 30.0},
    "redis://host?health_check_interval=0": {"host": "host", "ping_after": math.inf},
}


@each("connect", CONNECTS)
@each("url", FORMS)
def test_a_form_means_what_it_says(url: str, connect: Connect) -> None:
    """Each part of a URL lands where it belongs, and what is not said has its default."""
    assert from_url(url) == Target(**FORMS[url])
    assert repr(connect(url)).endswith(f"Leasehold on {from_url(url).url}>")


def test_every_scheme_and_every_option_is_tried_here(certificates: Certificates) -> None:
    """Nothing that is accepted stays without a test."""
    urls = [*FORMS, *tls_options(certificates)]
    assert {url.partition("://")[0] for url in urls} == set(SCHEMES)
    asked = {option.partition("=")[0] for url in urls for option in url.partition("?")[2].split("&")}
    assert asked - {""} == set(OPTIONS)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
@example("%2F", "a/b?c#d@e:f[g]h%i&j=k+l m")
def test_percent_encoding_carries_any_text(user: str, password: str) -> None:
    """User and password may hold whatever can be written, in both places."""
    user_text, password_text = quote(user, safe=""), quote(password, safe="")
    before = from_url(f"redis://{user_text}:{password_text}@host/4")
    assert (before.username, before.password, before.host, before.db) == (user, password, "host", 4)
    behind = from_url(f"redis://host/4?username={user_text}&password={password_text}")
    assert behind == before


def test_addresses_are_written_as_one_writes_them() -> None:
    """As errors show them: IPv6 in brackets, a socket as its path."""
    shown = [str(from_url(url)) for url in ("redis://h:1/2", "rediss://[::1]:7", "unix://joe:pw@/run/redis.sock?db=2")]
    assert shown == ["h:1", "[::1]:7", "/run/redis.sock"]


@pytest.mark.parametrize("connect", CONNECTS)
def test_connecting_sends_nothing(connect: Connect) -> None:
    """A coordinator and its locks are made without a word to the server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect(f"redis://127.0.0.1:{server.getsockname()[1]}").lock("job")
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_the_environment_may_name_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """LEASEHOLD_URL is a URL like any other, also when it is a bad one."""
    monkeypatch.setenv("LEASEHOLD_URL", "valkey://host:6380/2")
    assert repr(leasehold.connect()) == "<Leasehold on redis://host:6380/2>"
    monkeypatch.setenv("LEASEHOLD_URL", f"valkey://:{SECRET}@host:0")
    with pytest.raises(InvalidRequest, match="port 0") as info:
        leasehold.connect()
    assert not leaks(info.value)


# ---------------------------------------------------------------- TLS


def tls_options(files: Certificates) -> dict[str, dict[str, Any]]:
    """URLs, and what the settings of the connection are then."""
    here = f"ssl_certfile={files.client}&ssl_keyfile={files.client}"
    required, none, optional = ssl.CERT_REQUIRED, ssl.CERT_NONE, ssl.CERT_OPTIONAL
    return {
        "rediss://host": {"verify_mode": required, "check_hostname": True},
        f"rediss://host?ssl_ca_certs={files.authority}": {"verify_mode": required, "check_hostname": True},
        f"rediss://host?ssl_ca_data={quote(files.authority.read_text(), safe='')}": {"verify_mode": required},
        f"rediss://host?ssl_ca_path={files.authority.parent}": {"verify_mode": required},
        f"valkeys://host?{here}": {"verify_mode": required},
        f"rediss://host?{here}&ssl_password=unneeded": {"verify_mode": required},
        "rediss://host?ssl_cert_reqs=none": {"verify_mode": none, "check_hostname": False},
        "rediss://host?ssl_cert_reqs=optional": {"verify_mode": optional, "check_hostname": True},
        "rediss://host?ssl_cert_reqs=required": {"verify_mode": required, "check_hostname": True},
        "rediss://host?ssl_check_hostname=false": {"verify_mode": required, "check_hostname": False},
        "rediss://host?ssl_check_hostname=True": {"verify_mode": required, "check_hostname": True},
        "rediss://host?ssl_min_version=TLSv1.2": {"minimum_version": ssl.TLSVersion.TLSv1_2},
        "rediss://host?ssl_min_version=771": {"minimum_version": ssl.TLSVersion.TLSv1_2},
        "rediss://host?ssl_cert_reqs=CERT_NONE": {"verify_mode": none, "check_hostname": False},
        "rediss://host?ssl_min_version=TLSv1.3": {"minimum_version": ssl.TLSVersion.TLSv1_3},
        "rediss://host?ssl_ciphers=ECDHE%2BAESGCM": {"verify_mode": required},
    }


@pytest.mark.slow
def test_tls_options_reach_the_connection(certificates: Certificates) -> None:
    """Certificates are checked unless somebody says otherwise, and each option changes what it names."""
    for url, expected in tls_options(certificates).items():
        context = from_url(url).tls_context()
        assert {name: getattr(context, name) for name in expected} == expected, url


def test_ca_certificates_are_loaded(certificates: Certificates) -> None:
    """From a file and from the URL itself: that authority, and no other, is trusted."""
    for url in list(tls_options(certificates))[1:3]:
        context = from_url(url).tls_context()
        assert context is not None and context.cert_store_stats()["x509_ca"] == 1


def test_without_tls_there_is_no_context() -> None:
    """redis:// is plain, whatever else is said."""
    assert from_url("redis://joe:pw@host/2").tls_context() is None


# ---------------------------------------------------------------- what does not

BAD: dict[str, tuple[str, str]] = {
    "port text": (f"redis://joe:{SECRET}@host:port", "host or port"),
    "port negative": (f"redis://joe:{SECRET}@host:-1", "host or port"),
    "port too large": (f"redis://joe:{SECRET}@host:65536", "host or port"),
    "port 0": (f"redis://joe:{SECRET}@host:0", "port 0"),
    "two ports": (f"redis://joe:{SECRET}@host:1:2", "host or port"),
    "IPv6 without brackets": (f"redis://joe:{SECRET}@::1", "host or port"),
    "IPv6 with one bracket": (f"redis://joe:{SECRET}@[::1", "host or port"),
    "no address in brackets": (f"redis://joe:{SECRET}@[nonsense]", "host or port"),
    "a bare bracket in the password": (f"redis://joe:{SECRET}[@host", "host or port"),
    "a bare slash in the password": (f"redis://joe:{SECRET}/@host", "host or port"),
    "a bare ? in the password": (f"redis://joe:{SECRET}?@host", "host or port"),
    "a bare # in the password": (f"redis://joe:{SECRET}#@host", "host or port"),
    "a fragment": (f"redis://joe:{SECRET}@host#top", "%23"),
    "a number, a # and more": (f"redis://joe:1#{SECRET}@host", "%23"),
    "a number, a / and more": (f"redis://joe:1/{SECRET}@host", "database number"),
    "a number, a ? and more": (f"redis://joe:1?{SECRET}@host", "name=value"),
    "db text": (f"redis://joe:{SECRET}@host/leases", "database number"),
    "db negative": (f"redis://joe:{SECRET}@host/-1", "database number"),
    "db with a point": (f"redis://joe:{SECRET}@host/1.0", "database number"),
    "db in other digits": (f"redis://joe:{SECRET}@host/٣", "database number"),
    "two dbs": (f"redis://joe:{SECRET}@host/1/2", "database number"),
    "db empty": (f"redis://joe:{SECRET}@host?db=", "database number"),
    "db in two places": (f"redis://joe:{SECRET}@host/1?db=1", "database twice"),
    "unknown option": (f"redis://joe:{SECRET}@host?colour=1", "unknown option 'colour'; there are: client_name, db,"),
    "option that is misspelt": (
        f"redis://joe:{SECRET}@host?sockettimeout=1",
        "'sockettimeout': did you mean socket_timeout",
    ),
    "option in capitals": (f"redis://joe:{SECRET}@host?DB=1", "unknown option 'DB': did you mean db"),
    "a bare ? and an = in the password": (f"redis://joe:1?{SECRET}=1@host", "%3F"),
    "a bare & in the password": (f"redis://host?password=1&{SECRET}=1", "%26"),
    "socket_timeout 0": (f"redis://joe:{SECRET}@host?socket_timeout=0", "socket_timeout must be"),
    "no connections": (
        f"redis://joe:{SECRET}@host?max_connections=0",
        "max_connections of a Redis URL must be a whole",
    ),
    "keepalive off": (f"redis://joe:{SECRET}@host?socket_keepalive=no", "always on"),
    "an interval of text": (f"redis://joe:{SECRET}@host?health_check_interval=often", "health_check_interval must be"),
    "an interval below 0": (f"redis://joe:{SECRET}@host?health_check_interval=-1", "health_check_interval must be"),
    "option twice": (f"redis://host?password={SECRET}&password={SECRET}", "password twice"),
    "option without a value": (f"redis://host?{SECRET}", "name=value"),
    "client name with a space": (f"redis://joe:{SECRET}@host?client_name=a+b", "client_name"),
    "client name with a line end": (f"redis://joe:{SECRET}@host?client_name=a%0Ab", "client_name"),
    "client name beyond ASCII": (f"redis://joe:{SECRET}@host?client_name=n%C3%A4", "client_name"),
    "protocol 4": (f"redis://joe:{SECRET}@host?protocol=4", "protocol must be 2 or 3"),
    "protocol text": (f"redis://joe:{SECRET}@host?protocol=resp3", "protocol must be 2 or 3"),
    "timeout 0": (f"redis://joe:{SECRET}@host?socket_connect_timeout=0", "socket_connect_timeout"),
    "timeout negative": (f"redis://joe:{SECRET}@host?socket_connect_timeout=-1", "socket_connect_timeout"),
    "timeout nan": (f"redis://joe:{SECRET}@host?socket_connect_timeout=nan", "socket_connect_timeout"),
    "timeout infinite": (f"redis://joe:{SECRET}@host?socket_connect_timeout=inf", "socket_connect_timeout"),
    "timeout text": (f"redis://joe:{SECRET}@host?socket_connect_timeout=soon", "socket_connect_timeout"),
    "TLS option without TLS": (f"redis://joe:{SECRET}@host?ssl_cert_reqs=none", "rediss://"),
    "TLS option on a socket": (f"unix://joe:{SECRET}@/run/x.sock?ssl_ca_certs=/x", "rediss://"),
    "no such authority": (f"rediss://joe:{SECRET}@host?ssl_ca_certs=/no/such/file", "TLS settings .* No such file"),
    "no such certificate": (f"rediss://joe:{SECRET}@host?ssl_certfile=/no/such/file", "TLS settings .* No such file"),
    "no such key": (f"valkeys://joe:{SECRET}@host?ssl_keyfile=/no/such/file", "TLS settings .* No such file"),
    "no certificate inside": (f"rediss://joe:{SECRET}@host?ssl_ca_data=text", "TLS settings"),
    "no such ciphers": (f"rediss://joe:{SECRET}@host?ssl_ciphers=ROT13", "TLS settings .* cipher"),
    "old TLS": (f"rediss://joe:{SECRET}@host?ssl_min_version=TLSv1", "ssl_min_version must be one of"),
    "checked perhaps": (f"rediss://joe:{SECRET}@host?ssl_cert_reqs=maybe", "ssl_cert_reqs must be one of"),
    "no socket": (f"unix://joe:{SECRET}@", "three slashes and a path"),
    "a socket's folder for a host": (f"unix://joe:{SECRET}@run/redis.sock", "three slashes and a path"),
    "NUL in a socket's name": (f"unix://joe:{SECRET}@/run/redis%00.sock", "three slashes and a path"),
    "socket without slashes": (f"unix:{SECRET}.sock", "no URL"),
    "scheme without slashes": (f"redis:joe:{SECRET}@host", "no URL"),
    "several hosts": (f"redis://joe:{SECRET}@h1,h2", "names one host"),
    "a space in the host": (f"redis://joe:{SECRET}@my host", "names one host"),
    "a space in the host, encoded": (f"redis://joe:{SECRET}@my%20host", "names one host"),
    "unknown scheme": (f"redi://joe:{SECRET}@host", "unknown scheme"),
}


@each("connect", CONNECTS)
@each(("url", "words"), BAD.values(), ids=BAD)
def test_a_bad_url_is_refused_in_words(url: str, words: str, connect: Connect) -> None:
    """At once, with what is wrong, and without what may be a password."""
    with pytest.raises(InvalidRequest, match=words) as info:
        connect(url)
    assert not leaks(info.value)


@each("name", MEANINGLESS)
def test_an_option_that_means_nothing_here(name: str) -> None:
    """redis-py takes it in a URL: it is refused by its name, with the reason."""
    with pytest.raises(InvalidRequest, match=f"the option {name}, which means nothing here: .*Leave it out") as info:
        from_url(f"redis://joe:{SECRET}@host?{name}=1")
    assert not leaks(info.value)


def test_no_option_of_redis_py_is_unknown() -> None:
    """Whatever it reads from a URL is taken, or refused with a reason."""
    known = {*OPTIONS, *MEANINGLESS}
    assert set(redis.connection.URL_QUERY_ARGUMENT_PARSERS) <= known


@each("connect", CONNECTS)
@each(
    "url",
    [
        f"redis://joe:{SECRET}@host/{'9' * 5_000}",
        f"redis://joe:{SECRET}\udcff@host",  # what os.environ makes of a byte that is not UTF-8
        f"unix://joe:{SECRET}@/",
    ],
    ids=["db too large", "a lone surrogate", "a socket's folder alone"],
)
def test_urls_that_nothing_can_be_made_of(url: str, connect: Connect) -> None:
    """They too are refused at once."""
    with pytest.raises(InvalidRequest) as info:
        connect(url)
    assert not leaks(info.value)


def test_the_password_of_a_key_is_not_shown(certificates: Certificates) -> None:
    """Also when the key cannot be read with it."""
    url = f"rediss://host?ssl_certfile={certificates.authority}&ssl_password={SECRET}"
    with pytest.raises(InvalidRequest, match="TLS settings") as info:
        from_url(url)
    assert not leaks(info.value)


# ---------------------------------------------------------------- what a good one shows


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Somebody has it, and nobody listens there."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        yield place.getsockname()[1]


def test_nothing_that_is_shown_holds_the_password(closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the objects, nor the error of a server that is not there, nor any log record."""
    url = f"redis://joe:{SECRET}@127.0.0.1:{closed_port}/1?client_name=me"
    target = from_url(url)
    with caplog.at_level(logging.DEBUG), leasehold.connect(url) as hold:
        lock = hold.lock("job", wait=0)
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{closed_port} cannot be reached") as info:
            lock.acquire()
        assert not leaks(info.value)
        store = hold._engine.store
        shown = [f"{one} {one!r}" for one in (hold, lock, store, target, [target], {"target": target})]
    assert SECRET not in "".join(shown) + caplog.text
    assert not any(SECRET in repr(vars(record)) for record in caplog.records)


async def test_nor_in_asyncio(closed_port: int, caplog: pytest.LogCaptureFixture) -> None:
    """The same in the other flavour."""
    url = f"redis://joe:{SECRET}@127.0.0.1:{closed_port}/1"
    with caplog.at_level(logging.DEBUG):
        async with leasehold.aio.connect(url) as hold:
            with pytest.raises(LeaseholdError, match="cannot be reached") as info:
                await hold.lock("job", wait=0).acquire()
    assert not leaks(info.value) and SECRET not in caplog.text


def test_tls_options_are_known_as_such() -> None:
    """The list of what needs TLS is part of the list of what there is."""
    assert set(TLS_OPTIONS) < set(OPTIONS)
