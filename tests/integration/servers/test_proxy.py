"""Each way in which the network can be bad, seen from the client and from the server."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.servers.proxy import Proxy, Verdict
from tests.support.servers.redis import RedisServer, impatient
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

NEVER = Retry(NoBackoff(), 0)


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    """A client that goes through the proxy and tries nothing twice."""
    with redis.Redis(port=proxy.port, socket_timeout=PATIENCE, retry=NEVER, client_name="through") as client:
        client.ping()
        yield client


@pytest.fixture
def direct(redis_server: RedisServer, redis_url: str) -> redis.Redis:
    """A client that goes round the proxy, to see what happened."""
    return redis_server.client()


def gives_up(client: redis.Redis, key: str) -> None:
    """It counts, and hears nothing. It closes its connection, as redis-py does after every such error."""
    with impatient(client), pytest.raises(redis.TimeoutError):
        client.incr(key)


def comes_true(direct: redis.Redis, key: str, value: bytes) -> None:
    """The server has, or gets, the request."""
    until(lambda: direct.get(key) == value, f"{key} is {value!r}")


def seen(direct: redis.Redis) -> int:
    """How many connections through the proxy the server has."""
    return [one["name"] for one in direct.client_list()].count("through")


def test_a_good_network(client: redis.Redis, direct: redis.Redis) -> None:
    """Everything goes through, large things too."""
    large = b"x" * 3_000_000
    client.set("key", large)
    assert client.get("key") == direct.get("key") == large


def test_connections_are_counted(client: redis.Redis, proxy: Proxy) -> None:
    """One for each that a client makes."""
    assert proxy.count == 1
    client.connection_pool.disconnect()
    client.ping()
    assert proxy.count == 2


def test_held_requests_come_late(client: redis.Redis, direct: redis.Redis, proxy: Proxy) -> None:
    """They reach the server after the client has given up and closed its connection."""
    proxy.hold_requests()
    gives_up(client, "key")
    assert proxy.waiting > 0 and direct.get("key") is None
    proxy.release()
    comes_true(direct, "key", b"1")
    until(lambda: proxy.waiting == 0, "nothing waits any more")
    assert client.incr("key") == 2


def test_held_replies_come_late(direct: redis.Redis, proxy: Proxy) -> None:
    """The server has done it, the client learns it at the release, on the same connection."""
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as line:
        proxy.hold_replies()
        line.sendall(b"INCR key\r\n")
        comes_true(direct, "key", b"1")
        until(lambda: proxy.waiting > 0, "the reply waits")
        line.setblocking(False)
        with pytest.raises(BlockingIOError):
            line.recv(100)
        line.settimeout(PATIENCE)
        proxy.release()
        assert line.recv(100) == b":1\r\n"


def test_delayed_requests_are_on_their_way(client: redis.Redis, direct: redis.Redis, proxy: Proxy) -> None:
    """The server has not heard of them. A network that is good again delivers them at once."""
    proxy.delay(requests=PATIENCE)
    gives_up(client, "count")
    assert proxy.waiting and direct.get("count") is None
    proxy.release()
    comes_true(direct, "count", b"1")


def test_delayed_replies_are_on_their_way(client: redis.Redis, direct: redis.Redis, proxy: Proxy) -> None:
    """The server has done it, the client does not know."""
    proxy.delay(replies=PATIENCE)
    gives_up(client, "count")
    assert direct.get("count") == b"1"


def test_what_is_delayed_arrives_in_order(client: redis.Redis, proxy: Proxy) -> None:
    """Also when the delay changes while something is on its way; then nothing is left there."""
    with socket.create_connection(("127.0.0.1", proxy.port)) as line:
        for delay in (0.1, 0.05, 0.0):
            proxy.delay(requests=delay, replies=delay)
            line.sendall(b"INCR count\r\n")
            proxy.settle()
        with line.makefile("rb") as replies:
            assert [replies.readline() for _ in range(3)] == [b":1\r\n", b":2\r\n", b":3\r\n"]
    assert client.get("count") == b"3"
    proxy.settle()
    assert not proxy.waiting


def test_a_delayed_connection_ends_after_its_last_byte(proxy: Proxy, direct: redis.Redis) -> None:
    """A client that has left is still heard."""
    proxy.delay(requests=0.1)
    with socket.create_connection(("127.0.0.1", proxy.port)) as line:
        line.sendall(b"SET key value\r\n")
    comes_true(direct, "key", b"value")


def test_new_connections_are_held_too(direct: redis.Redis, proxy: Proxy) -> None:
    """Who comes while requests are held waits like the others."""
    proxy.hold_requests()
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as line:
        line.sendall(b"INCR key\r\n")
        until(lambda: proxy.waiting > 0, "the request waits")
    assert direct.get("key") is None
    proxy.release()
    comes_true(direct, "key", b"1")


def test_dropped_replies_never_come(client: redis.Redis, direct: redis.Redis, proxy: Proxy) -> None:
    """The request is done; so many replies are lost, and the next is not."""
    proxy.drop_replies(1)
    gives_up(client, "key")
    comes_true(direct, "key", b"1")
    assert client.incr("key") == 2


def test_a_reply_that_is_cut(client: redis.Redis, direct: redis.Redis, proxy: Proxy) -> None:
    """The request is done; its connection ends in place of the reply, and the next one is good."""
    proxy.cut_replies(1)
    with pytest.raises(redis.ConnectionError):
        client.incr("key")
    assert direct.get("key") == b"1"
    assert client.incr("key") == 2


def test_all_replies_are_dropped(proxy: Proxy, direct: redis.Redis) -> None:
    """Without a count: until the release, which brings none of them back."""
    proxy.drop_replies()
    for turn in (b"1", b"2", b"3"):
        with socket.create_connection(("127.0.0.1", proxy.port), 0.1) as line:
            line.sendall(b"INCR key\r\n")
            comes_true(direct, "key", turn)
            with pytest.raises(TimeoutError):
                line.recv(100)
            if turn == b"3":
                proxy.release()
                with pytest.raises(TimeoutError):
                    line.recv(100)


def test_certain_requests_only(client: redis.Redis, direct: redis.Redis, proxy: Proxy) -> None:
    """The hook picks: one reply is lost, one request is late, the others pass."""

    def pick(chunk: bytes) -> Verdict:
        return "drop_reply" if b"deaf" in chunk else "hold" if b"late" in chunk else "pass"

    proxy.on_request = pick
    gives_up(client, "deaf")
    gives_up(client, "late")
    assert client.incr("key") == 1
    comes_true(direct, "deaf", b"1")
    assert direct.get("late") is None
    proxy.release()
    comes_true(direct, "late", b"1")


def test_cut(proxy: Proxy) -> None:
    """Every connection breaks at once; a new one works."""
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as line:
        line.sendall(b"PING\r\n")
        assert line.recv(100) == b"+PONG\r\n"
        proxy.cut()
        assert line.recv(100) == b""
    with redis.Redis(port=proxy.port) as client:
        assert client.ping()


def test_a_cut_reaches_the_server(client: redis.Redis, direct: redis.Redis, proxy: Proxy) -> None:
    """The server learns that its clients are gone."""
    assert client.ping() and seen(direct) == 1
    proxy.cut()
    until(lambda: seen(direct) == 0, "none is left")


def test_a_client_that_leaves_is_seen_to_leave(client: redis.Redis, direct: redis.Redis) -> None:
    """A good network hides nothing: the server's connection ends with the client's."""
    client.close()
    until(lambda: seen(direct) == 0, "none is left")


def test_refuse(client: redis.Redis, proxy: Proxy) -> None:
    """New connections are refused, the old one lives; afterwards new ones are welcome at the same port."""
    proxy.refuse()
    assert client.ping()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE)
    proxy.cut()
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            client.ping()
    proxy.accept()
    assert client.ping()


def test_blackhole(client: redis.Redis, direct: redis.Redis, proxy: Proxy) -> None:
    """Nothing goes through, old or new, and nobody is told: the server still sees the client that has left."""
    proxy.blackhole()
    gives_up(client, "key")
    with redis.Redis(port=proxy.port, socket_timeout=0.1, retry=NEVER) as other, pytest.raises(redis.TimeoutError):
        other.incr("key")
    assert proxy.count == 2 and direct.get("key") is None and seen(direct) == 1
    proxy.release()
    assert client.incr("key") == 1
    assert direct.get("key") == b"1"


def test_a_dead_server_closes_connections() -> None:
    """What the server does to its connections, the proxy does to its own."""
    with RedisServer() as server, Proxy(server.port) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as line:
            server.kill()
            assert line.recv(100) == b""
        with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as line:
            assert line.recv(100) == b""
        server.start()
        with redis.Redis(port=proxy.port) as client:
            assert client.ping()


def test_a_full_pipe() -> None:
    """What a frozen server does not take waits in the proxy, and all of it arrives when it goes on."""
    payload = b"SET key " + b"x" * 1_000 + b"\r\n"
    with RedisServer() as server, Proxy(server.port) as stuck:
        server.freeze()
        with socket.create_connection(("127.0.0.1", stuck.port), PATIENCE) as line:
            line.sendall(payload * 10_000)
            until(lambda: stuck.waiting > 0, "the rest waits")
            server.thaw()
            until(lambda: stuck.waiting == 0, "it is delivered")
            replies = b""
            while len(replies) < 5 * 10_000:
                replies += line.recv(65_536)
        assert replies == b"+OK\r\n" * 10_000
