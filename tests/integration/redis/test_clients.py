"""Clients of redis-py and valkey-py, sync and asyncio: whatever they know of their server is used, and they stay the
user's own."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis.asyncio
import redis.credentials
import valkey.asyncio

import leasehold
from leasehold import StoreUnavailable
from leasehold.coordinator.stores import open_store
from leasehold.stores.redis import RedisStore
from tests.support.parties import FLAVOURS, Party
from tests.support.redis.plays import KINDS, Start, connected, descriptors, failure, play, try_once
from tests.support.servers.certificates import Certificates
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import EVERY, RedisServer
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

SECRET = "hunter2"
PASSWORD = f"{SECRET}@:/?#% [ä"
HUNG_UP = "EOF occurred|reset by peer|Broken pipe|closed by the server"
SYNC = [name for name in KINDS if "asyncio" not in name]
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "text": {"decode_responses": True},
    "RESP2": {"protocol": 2},
    "RESP3 and text": {"protocol": 3, "decode_responses": True},
}
every_kind = pytest.mark.parametrize("kind", KINDS)
both_flavours = pytest.mark.parametrize("flavour", FLAVOURS)


# ---------------------------------------------------------------- clients


@both_flavours
@every_kind
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_client_leads_to_its_server(
    kind: str, settings: str, flavour: str, redis_server: RedisServer, redis_url: str
) -> None:
    """Whatever the client makes of replies, and whichever protocol it speaks, in both flavours."""
    client = KINDS[kind](host="127.0.0.1", port=redis_server.port, **SETTINGS[settings])
    assert isinstance(open_store(client), RedisStore)
    play(client, flavour)
    assert redis_server.client().exists("lock:v1:{job}:fence")


def ways_to_make(module: Any, name: str) -> dict[str, Callable[[RedisServer], Any]]:
    """The ways in which people make a client of that module."""
    make = getattr(module, name)
    return {
        "from_url": lambda server: make.from_url(server.url),
        "from a pool": lambda server: make(connection_pool=module.ConnectionPool(host="127.0.0.1", port=server.port)),
        "from a pool that blocks": lambda server: make(
            connection_pool=module.BlockingConnectionPool(host="127.0.0.1", port=server.port, max_connections=1)
        ),
        "from a URL for a pool": lambda server: make(connection_pool=module.ConnectionPool.from_url(server.url)),
        "over a socket in the file system": lambda server: make(unix_socket_path=server.unix_url[7:].split("?")[0]),
        "from a URL of a socket": lambda server: make.from_url(server.unix_url),
        "with its own timeouts and retries": lambda server: make(
            port=server.port,
            socket_timeout=60,
            socket_connect_timeout=60,
            health_check_interval=5,
            socket_keepalive=True,
        ),
        "of a subclass that changes nothing": lambda server: type("Ours", (make,), {})(port=server.port),
    }


MODULES = {"redis": redis, "redis.asyncio": redis.asyncio, "valkey": valkey, "valkey.asyncio": valkey.asyncio}


@pytest.mark.parametrize("way", ways_to_make(redis, "Redis"))
@every_kind
def test_a_client_may_be_made_in_any_way(kind: str, way: str, redis_server: RedisServer, redis_url: str) -> None:
    """It is reduced to an address, so all of them come to the same; a pool of one connection is not in the way."""
    client = ways_to_make(MODULES[kind], KINDS[kind].__name__)[way](redis_server)
    assert isinstance(open_store(client), RedisStore)
    play(client, "sync" if kind in SYNC else "asyncio", "waiters_are_served_in_order")


@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
@both_flavours
def test_every_server_will_do(program: Callable[[], str], flavour: str, own_redis: Start) -> None:
    """Redis 6.2, Redis 7 and Valkey, with nothing but a URL."""
    play(own_redis(executable=program()).url, flavour)


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
@both_flavours
def test_urls_lead_there_too(scheme: str, flavour: str, redis_server: RedisServer, redis_url: str) -> None:
    """By TCP under both names, by host name, and by a socket in the file system."""
    for url in (f"{scheme}://localhost:{redis_server.port}", redis_server.unix_url):
        play(url, flavour, "waiters_are_served_in_order")


# ---------------------------------------------------------------- who and where


@both_flavours
@every_kind
def test_the_database_is_the_clients(kind: str, flavour: str, redis_server: RedisServer, redis_url: str) -> None:
    """Keys are in the database of the client and in no other."""
    try_once(KINDS[kind](port=redis_server.port, db=3), flavour)
    assert redis_server.client(db=3).dbsize() and not redis_server.client(db=0).dbsize()


@both_flavours
def test_the_database_of_a_url(flavour: str, redis_server: RedisServer, redis_url: str) -> None:
    """In its path, as an option, and on a socket in the file system."""
    socket_url = redis_server.unix_url.replace("db=0", "db=6")
    for url in (f"redis://127.0.0.1:{redis_server.port}/4", f"redis://127.0.0.1:{redis_server.port}?db=5", socket_url):
        try_once(url, flavour)
    assert [bool(redis_server.client(db=db).dbsize()) for db in (0, 4, 5, 6)] == [False, True, True, True]


def acl_server(own_redis: Start) -> RedisServer:
    """Nobody gets in without a password; joe has one that must be written with care."""
    server = own_redis(None, "--requirepass", "the default user's")
    admin: Any = server.client(password="the default user's")
    admin.execute_command("ACL", "SETUSER", "joe", "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    return server


@both_flavours
@every_kind
def test_a_user_with_a_password(kind: str, flavour: str, own_redis: Start) -> None:
    """ACL user and password of a client and of a URL, with every sort of character."""
    server = acl_server(own_redis)
    try_once(KINDS[kind](port=server.port, username="joe", password=PASSWORD), flavour)
    try_once(KINDS[kind](port=server.port, password="the default user's"), flavour)
    for protocol in (2, 3):
        joe = f"redis://joe:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}?protocol={protocol}"
        other = f"redis://:the default user's@127.0.0.1:{server.port}?protocol={protocol}"
        try_once(joe, flavour)
        try_once(other, flavour)


@both_flavours
@pytest.mark.parametrize("protocol", [2, 3])
def test_connections_say_who_they_are(protocol: int, flavour: str, own_redis: Start) -> None:
    """The server knows the user and the client's name of every connection."""
    server = acl_server(own_redis)
    url = f"redis://joe:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}?client_name=worker-7&protocol={protocol}"
    party = FLAVOURS[flavour](open_store(url))
    lease = party.do(lambda hold: hold.lock("job").acquire())
    admin = server.client(password="the default user's")

    def said() -> set[tuple[str, str]]:
        return {(one["name"], one["resp"]) for one in admin.client_list() if one["user"] == "joe"}

    until(lambda: said() == {("worker-7", str(protocol))}, "all have said so")
    party.do(lambda _: lease.release())
    party.close()


@both_flavours
@every_kind
def test_the_name_of_a_client_is_used(kind: str, flavour: str, redis_server: RedisServer, redis_url: str) -> None:
    """CLIENT LIST shows whose locks those are."""
    party = FLAVOURS[flavour](open_store(KINDS[kind](port=redis_server.port, client_name="worker-7")))
    lease = party.do(lambda hold: hold.lock("job").acquire())
    until(lambda: {one["name"] for one in connected(redis_server)} == {"worker-7"}, "all have said so")
    party.do(lambda _: lease.release())
    party.close()


class Vault(redis.credentials.CredentialProvider):
    """Gives out a password that changes."""

    def __init__(self) -> None:
        self.password = "first"
        self.asked = 0

    def get_credentials(self) -> tuple[str, str]:
        """Whenever somebody connects."""
        self.asked += 1
        return "joe", self.password


@every_kind
def test_a_credential_provider_is_asked_at_each_connect(kind: str, own_redis: Start) -> None:
    """A password that was changed meanwhile is no trouble."""
    server, vault = own_redis(), Vault()
    admin: Any = server.client()
    admin.execute_command("ACL", "SETUSER", "joe", "reset", "on", ">first", "~*", "&*", "+@all")
    flavour = "sync" if kind in SYNC else "asyncio"
    party = FLAVOURS[flavour](open_store(KINDS[kind](port=server.port, credential_provider=vault)))
    first = party.do(lambda hold: hold.lock("job").acquire())
    assert party.do(lambda _: first.release()) is True
    asked = vault.asked
    admin.execute_command("ACL", "SETUSER", "joe", "resetpass", ">second")
    vault.password = "second"
    admin.execute_command("CLIENT", "KILL", "USER", "joe")
    assert party.do(lambda hold: hold.lock("job").acquire(wait=PATIENCE)).fence > first.fence
    assert vault.asked > asked > 0
    party.close()


class Broken(redis.credentials.CredentialProvider):
    """Cannot be reached today."""

    def get_credentials(self) -> tuple[str, str]:
        """Fails."""
        raise RuntimeError("the vault is closed")


class Awaited(redis.credentials.CredentialProvider):
    """Can be asked on an event loop only, as redis-py allows for its asyncio clients."""

    async def get_credentials_async(self) -> tuple[str, str]:
        """At each connect."""
        return "default", "right"


@both_flavours
def test_a_credential_provider_that_fails(flavour: str, redis_server: RedisServer, redis_url: str) -> None:
    """StoreUnavailable: nothing was sent. Its error is the cause."""
    error = failure(redis.Redis(port=redis_server.port, credential_provider=Broken()), flavour)
    assert isinstance(error, StoreUnavailable) and "RuntimeError" in f"{error.__cause__!r}"


async def test_a_credential_provider_that_must_be_awaited(own_redis: Start) -> None:
    """The client itself can ask it: so it is used through its own commands."""
    server = own_redis(None, "--requirepass", "right")
    client = redis.asyncio.Redis(port=server.port, credential_provider=Awaited())
    try:
        async with leasehold.aio.connect(client) as hold:
            assert await hold.lock("job").try_acquire()
    finally:
        await client.aclose()


@both_flavours
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_user_without_a_password(protocol: int, flavour: str, own_redis: Start) -> None:
    """An ACL user with nopass is who he says he is, not the default user."""
    server = own_redis()
    admin: Any = server.client()
    admin.execute_command("ACL", "SETUSER", "joe", "reset", "on", "nopass", "~*", "&*", "+@all")
    url = f"redis://joe@127.0.0.1:{server.port}?protocol={protocol}&client_name=ours"
    for target in (url, redis.Redis(port=server.port, username="joe", client_name="ours")):
        party = FLAVOURS[flavour](open_store(target))
        try:
            assert party.do(lambda hold: hold.lock("job").try_acquire())
            assert {one["user"] for one in connected(server) if one["name"] == "ours"} == {"joe"}
        finally:
            party.close()


# ---------------------------------------------------------------- TLS


def tls_url(server: RedisServer, files: dict[str, str]) -> str:
    """The address with what a connection needs."""
    return f"{server.tls_url}?" + "&".join(f"{name}={quote(value)}" for name, value in files.items())


@both_flavours
@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
def test_tls_by_url(scheme: str, flavour: str, own_redis: Start, certificates: Certificates) -> None:
    """A private authority, and a certificate of our own."""
    server = own_redis(tls=certificates)
    url = tls_url(server, certificates.arguments()).replace("rediss", scheme)
    play(url, flavour, "waiters_are_served_in_order")


@both_flavours
@every_kind
def test_tls_by_client(kind: str, flavour: str, own_redis: Start, certificates: Certificates) -> None:
    """The certificates of a client are used for our connections."""
    server = own_redis(tls=certificates)
    make, files = KINDS[kind], certificates.arguments()
    for client in (make(ssl=True, port=server.tls_port, **files), make.from_url(server.tls_url, **files)):
        assert isinstance(open_store(client), RedisStore)
        play(client, flavour, "release_by_the_owner")


def test_tls_without_a_check_is_for_those_who_say_so(own_redis: Start, certificates: Certificates) -> None:
    """ssl_cert_reqs=none trusts any server, and only that."""
    server, files = own_redis(tls=certificates), certificates.arguments()
    own = {name: files[name] for name in ("ssl_certfile", "ssl_keyfile")}
    try_once(tls_url(server, {**own, "ssl_cert_reqs": "none"}), "sync")
    assert "certificate verify failed" in str(failure(tls_url(server, own), "sync"))


@both_flavours
def test_bad_certificates_are_told_apart(
    flavour: str, own_redis: Start, certificates: Certificates, tmp_path: Path
) -> None:
    """A server that we do not know, a server that wants a certificate, one that does not know ours: each is said, as
    far as one hears: a server that has hung up may be noticed before its reason is read."""
    server, ours, strange = own_redis(tls=certificates), certificates.arguments(), Certificates(tmp_path).arguments()
    for wrong, words in (
        ({**ours, "ssl_ca_certs": strange["ssl_ca_certs"]}, "certificate verify failed"),
        ({"ssl_ca_certs": ours["ssl_ca_certs"]}, f"certificate required|{HUNG_UP}"),
        ({**strange, "ssl_ca_certs": ours["ssl_ca_certs"]}, f"unknown ca|{HUNG_UP}"),
    ):
        clients = [make(ssl=True, port=server.tls_port, **wrong) for make in KINDS.values()]
        for target in (tls_url(server, wrong), *clients):
            error = failure(target, flavour)
            assert isinstance(error, StoreUnavailable) and re.search(words, str(error)), error


@both_flavours
@pytest.mark.parametrize("patience", ["", "&socket_connect_timeout=0.3"])
def test_tls_to_a_plain_port(patience: str, flavour: str, own_redis: Start) -> None:
    """The server waits for the end of a line that never comes: the error says what is likely wrong, unless the time was
    over before the handshake began, which a busy machine may need some tries for."""
    server = own_redis()
    url = f"rediss://127.0.0.1:{server.port}?ssl_cert_reqs=none{patience}"
    hint = re.compile(r"took too long; if this port does not use TLS, connect without it \(redis://\)")
    until(lambda: bool(hint.search(str(failure(url, flavour)))), "it says what is likely wrong")


@both_flavours
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_plain_connection_to_a_tls_port(
    protocol: int, flavour: str, own_redis: Start, certificates: Certificates
) -> None:
    """The server hangs up at our first words: the error says what is likely wrong."""
    server = own_redis(tls=certificates)
    error = failure(f"redis://127.0.0.1:{server.tls_port}?protocol={protocol}", flavour)
    assert isinstance(error, StoreUnavailable)
    assert re.search(r"if this port wants TLS, connect with it \(rediss://\)", str(error)), error


ANSWERS = {
    "a plain error": ("rediss", b"-ERR unknown command\r\n", "connect without it"),
    "a TLS alert": ("redis", b"\x15\x03\x01\x00\x02\x02\x46", "connect with it"),
    "a web server": ("redis", b"HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol error(?!.*TLS)"),
}


@both_flavours
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_port_that_answers_something_else(answer: str, flavour: str) -> None:
    """In the clear where TLS was asked for, in TLS where it was not, or as something else altogether."""
    scheme, said, words = ANSWERS[answer]
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        asked = ThreadPoolExecutor(1).submit(failure, url, flavour)
        other, _ = server.accept()
        other.recv(4096)
        other.sendall(said)
        error = asked.result(PATIENCE)
        other.close()
    assert isinstance(error, StoreUnavailable) and re.search(words, str(error)), error


@both_flavours
def test_a_port_that_says_nothing(flavour: str) -> None:
    """Connecting ends with socket_connect_timeout, whatever a call may take; and no error of a socket gets through."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for scheme in ("redis", "rediss"):
            error = failure(f"{scheme}://127.0.0.1:{server.getsockname()[1]}?socket_connect_timeout=0.1", flavour)
            assert isinstance(error, StoreUnavailable) and "took too long" in str(error), error


# ---------------------------------------------------------------- not let in


@both_flavours
@pytest.mark.parametrize("protocol", [2, 3])
def test_who_is_not_let_in_is_told_why(protocol: int, flavour: str, own_redis: Start) -> None:
    """No password, a wrong one, an unknown user or database: StoreUnavailable in words, without the password."""
    server = own_redis(None, "--requirepass", "right", "--databases", "4")
    at = f"127.0.0.1:{server.port}"
    for url, words in (
        (f"redis://{at}", "wants a password"),
        (f"redis://:{SECRET}@{at}", "does not accept this user and password"),
        (f"redis://nobody:{SECRET}@{at}", "does not accept this user and password"),
        (f"redis://:right@{at}/4", "has no database 4"),
    ):
        error = failure(f"{url}?protocol={protocol}", flavour)
        assert isinstance(error, StoreUnavailable) and words in str(error) and at in str(error), error
        assert SECRET not in f"{error} {error!r} {error.__cause__!r} {vars(error)}"


@both_flavours
def test_who_is_not_let_in_is_told_once(flavour: str, own_redis: Start) -> None:
    """A server that answers is not out of reach."""
    server = own_redis(None, "--requirepass", "right")
    said = str(failure(server.url, flavour))
    assert said.count(str(server.port)) == 1 and "cannot be reached" not in said


@both_flavours
@every_kind
def test_a_client_that_is_not_let_in(kind: str, flavour: str, own_redis: Start) -> None:
    """The same for the settings of a client."""
    server, make = own_redis(None, "--requirepass", "right", "--databases", "4"), KINDS[kind]
    for client, words in (
        (make(port=server.port), "wants a password"),
        (make(port=server.port, password=SECRET), "does not accept"),
        (make(port=server.port, password="right", db=4), "has no database 4"),
    ):
        error = failure(client, flavour)
        assert isinstance(error, StoreUnavailable) and words in str(error) and SECRET not in repr(error)


@both_flavours
def test_nobody_is_there(flavour: str, tmp_path: Path) -> None:
    """A closed port and a missing socket are said to be out of reach, with the address."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
        for target in (f"redis://127.0.0.1:{port}", redis.Redis(port=port)):
            assert f":{port} cannot be reached" in str(failure(target, flavour))
        assert "no.sock cannot be reached" in str(failure(f"unix://{tmp_path}/no.sock", flavour))


# ---------------------------------------------------------------- whose connections


@pytest.mark.parametrize("kind", SYNC)
def test_a_client_is_never_closed(kind: str, redis_server: RedisServer, redis_url: str) -> None:
    """Its connection is the same one before and after."""
    with KINDS[kind](port=redis_server.port) as client:
        mine = client.client_id()
        with leasehold.connect(client) as hold, hold.lock("job"):
            assert client.client_id() == mine
        assert client.client_id() == mine
        until(lambda: [int(one["id"]) for one in connected(redis_server)] == [mine], "only the user's own is left")


@pytest.mark.parametrize("kind", [name for name in KINDS if name not in SYNC])
async def test_an_asyncio_client_is_never_closed(kind: str, redis_server: RedisServer, redis_url: str) -> None:
    """The same on an event loop."""
    client = KINDS[kind](port=redis_server.port)
    mine = await client.client_id()
    async with leasehold.aio.connect(client) as hold, hold.lock("job"):
        assert await client.client_id() == mine
    assert await client.client_id() == mine
    until(lambda: [int(one["id"]) for one in connected(redis_server)] == [mine], "only the user's own is left")
    await client.aclose()


def close_now(party: Party) -> None:
    """Whatever it is doing."""
    closing = party.hold.close()
    if closing is not None:
        asyncio.run_coroutine_threadsafe(closing, party.loop).result(PATIENCE)  # type: ignore[attr-defined]
    party.close()


@both_flavours
@pytest.mark.parametrize("way", ["redis", "unix", "protocol 2"])
def test_our_own_connections_are_closed(way: str, flavour: str, redis_server: RedisServer, redis_url: str) -> None:
    """close() leaves no connection on the server and no socket here, even in the middle of a wait; and when the
    coordinators are gone, no descriptor at all."""
    url = {"redis": redis_url, "unix": redis_server.unix_url, "protocol 2": f"{redis_url}?protocol=2"}[way]
    gc.collect()
    before, sockets = descriptors(), descriptors("socket:")
    holder, waiter = FLAVOURS[flavour](open_store(url)), FLAVOURS[flavour](open_store(url))
    lease = holder.do(lambda hold: hold.lock("job", ttl=60).acquire())
    waiting = waiter.start(lambda hold: hold.lock("job").acquire())
    client = redis_server.client(client_name="asks")
    until(lambda: client.llen("lock:v1:{job}:queue") == 1, "somebody waits")
    assert len(connected(redis_server)) >= 2
    close_now(waiter)
    close_now(holder)
    assert lease.state == "lost" and isinstance(waiting.exception(), StoreUnavailable)
    until(lambda: not connected(redis_server), "nobody is connected")
    redis_server.wipe()
    until(lambda: descriptors("socket:") <= sockets, "no socket is left")
    del holder, waiter, lease, waiting
    gc.collect()
    until(lambda: descriptors() <= before, "no descriptor is left")


@both_flavours
def test_who_only_looked_leaves_nothing(flavour: str, redis_server: RedisServer, redis_url: str) -> None:
    """Nobody held or waited: the connection that was used to look is closed all the same."""
    party = FLAVOURS[flavour](open_store(redis_url))
    assert party.do(lambda hold: hold.lock("job").locked()) is False and len(connected(redis_server)) == 1
    close_now(party)
    until(lambda: not connected(redis_server), "nobody is connected")


def test_a_connection_that_is_being_made_is_closed_too(own_redis: Start) -> None:
    """close() in the middle of the first words."""
    server = own_redis()
    with Proxy(server.port) as proxy, ThreadPoolExecutor() as pool:
        hold = leasehold.connect(proxy.url)
        proxy.hold_replies()
        acquiring = pool.submit(hold.lock("job").acquire)
        until(lambda: proxy.waiting > 0, "the server has answered")
        hold.close()
        proxy.release()
        assert isinstance(acquiring.exception(), StoreUnavailable)
        until(lambda: not connected(server), "nobody is connected")


def test_a_coordinator_that_is_dropped_closes_its_connections(own_redis: Start) -> None:
    """Without close() too, as soon as nobody refers to it, and without a warning."""
    server = own_redis()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hold = leasehold.connect(server.url)
        lease = hold.lock("job").acquire()
        assert lease is not None and lease.release()
        del hold, lease
        gc.collect()
        until(lambda: not connected(server), "nobody is connected")
    assert not caught
