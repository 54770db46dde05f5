"""Batches on a real Redis: one write, and what becomes of those whose replies never come."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.redis import RedisStore
from tests.integration.redis.test_durability import brief, records
from tests.support.parties import FLAVOURS, Party
from tests.support.scene import fails
from tests.support.servers.process import reserve
from tests.support.servers.redis import RedisServer
from tests.support.servers.replicas import RedisReplicas
from tests.support.waiting import until

pytestmark = pytest.mark.slow
Make = Callable[..., Party]


@pytest.fixture(params=FLAVOURS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes parties of one flavour, closed at the end."""
    parties: list[Party] = []

    def party(url: str, **options: Any) -> Party:
        parties.append(FLAVOURS[request.param](RedisStore(url), **options))
        return parties[-1]

    yield party
    for one in parties:
        one.close()


def take(party: Party, count: int, **options: Any) -> Any:
    """One try at so many locks."""
    return party.do(lambda hold: hold.acquire_many([hold.lock("job", number, **options) for number in range(count)]))


def calls(server: RedisServer, command: str) -> int:
    """How often the server was sent this."""
    client: Any = server.client()
    return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


class Relay:
    """Passes everything between clients and the server. When it is armed, so many bytes of the replies to the next
    script pass, and then that connection breaks."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = reserve()
        self._listener.listen(16)
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.armed = 0
        self._left: dict[socket.socket, int] = {}  # by the server's side of a connection: bytes that may still pass
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                threading.Thread(target=self._pass_requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass_replies, args=(client, server), daemon=True).start()

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.armed and b"EVALSHA" in data:
                    self._left[server], self.armed = self.armed, 0
                with suppress(OSError):  # after a break it is read all the same: else replies would be lost, too
                    server.sendall(data)
        _end(client, server)

    def _pass_replies(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                left = self._left.get(server)  # once: it may be armed as soon as the client has this reply
                client.sendall(data[:left])
                if left is not None:
                    self._left[server] = left - len(data)
                    if left <= len(data):
                        break
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """No more clients."""
        self._listener.close()


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@pytest.fixture
def relay(redis_server: RedisServer, redis_url: str) -> Iterator[Relay]:
    """Before the shared server, which is empty."""
    with closing(Relay(redis_server.port)) as relay:
        yield relay


def test_a_reply_that_breaks_off(relay: Relay, redis_server: RedisServer, make: Make) -> None:
    """The grants that arrived count. What came after them is unknown, and is given back although it was granted."""
    party = make(relay.url)
    first = take(party, 1)
    assert party.do(lambda _: first.release()) is True
    relay.armed = 400  # of about 30 bytes for each grant
    batch = take(party, 40, ttl=600)
    assert 5 < len(batch.acquired) < 35 and len(batch.acquired) + len(batch.failed) == 40
    assert all(isinstance(error, OutcomeUnknown) for error in batch.failed.values())
    until(lambda: len(records(redis_server)) == len(batch.acquired), "what is unknown is given back")
    held = {f"lock:v1:{{{lease.resource}}}:owner".encode() for lease in batch.acquired}
    assert set(records(redis_server)) == held and all(lease.state == "held" for lease in batch.acquired)
    assert party.do(lambda _: batch.release()) is True and records(redis_server) == []


def test_replies_to_releases_that_break_off(relay: Relay, redis_server: RedisServer, make: Make) -> None:
    """Which releases were confirmed is known, the rest goes on in the background, and all are given back."""
    party = make(relay.url)
    batch = take(party, 40, ttl=600)
    relay.armed = 100  # of 12 bytes for each
    error = fails(OutcomeUnknown, party.start(lambda hold: hold.release_many(batch)))
    assert "of 40 releases" in str(error)
    until(lambda: records(redis_server) == [], "all are given back")
    assert {lease.state for lease in batch.acquired} == {"released"}


def test_the_server_is_killed_in_between(own_redis: Callable[..., RedisServer], make: Make) -> None:
    """Releases are not confirmed, new claims are an error and not a refusal; with the server all of it is back."""
    server = own_redis()
    party = make(f"{server.url}?socket_timeout=1")
    batch = take(party, 20, ttl=5, renew=False)
    server.kill()
    fails(OutcomeUnknown, party.start(lambda hold: hold.release_many(batch)))
    fails(
        StoreUnavailable,
        party.start(lambda hold: hold.acquire_many([hold.lock("job", number) for number in range(20)])),
        OutcomeUnknown,
    )
    server.restart()
    again = take(party, 20)
    assert again.complete and all(new.fence > old.fence for new, old in zip(again, batch, strict=True))


def test_a_server_that_has_forgotten_the_scripts(redis_server: RedisServer, redis_url: str, make: Make) -> None:
    """Each script is sent in full once, whatever the size of the batch (trap 18)."""
    party = make(redis_url)
    warm = take(party, 2)
    client: Any = redis_server.client()
    client.script_flush()
    before = calls(redis_server, "eval")
    assert party.do(lambda _: warm.release()) is True
    assert calls(redis_server, "eval") == before + 1
    client.script_flush()
    batch = take(party, 100)
    assert batch.complete and calls(redis_server, "eval") == before + 2
    client.script_flush()
    assert party.do(lambda hold: hold.release_many(batch)) == [True] * 100
    assert calls(redis_server, "eval") == before + 3


def test_one_write(redis_server: RedisServer, redis_url: str, make: Make) -> None:
    """A hundred claims are read by the server in one or two pieces, not in a hundred."""
    party = make(redis_url)
    first = take(party, 1)
    assert party.do(lambda _: first.release()) is True
    client: Any = redis_server.client()
    before = int(client.info("stats")["total_reads_processed"])
    batch = take(party, 50)
    after = int(client.info("stats")["total_reads_processed"])
    assert batch.complete and after - before < 10
    assert party.do(lambda _: batch.release()) is True


def test_a_record_that_is_no_lease(redis_server: RedisServer, redis_url: str, make: Make) -> None:
    """It is the failure of that one alone."""
    client: Any = redis_server.client()
    client.rpush("lock:v1:{job:1}:owner", "no lease")
    batch = take(make(redis_url), 3)
    assert [lease is not None for lease in batch] == [True, False, True]
    assert isinstance(batch.failed["job:1"], StoreUnavailable) and "no lease" in str(batch.failed["job:1"])


def test_replicas_confirm_a_batch(redis_replicas: RedisReplicas, make: Make) -> None:
    """When it returns, the replicas have all of them; when they do not confirm, all are given back."""
    party = make(redis_replicas.url)
    batch = take(party, 10, durability="replicas:2", ttl=20)
    assert batch.complete
    assert all(len(records(replica)) == 10 for replica in redis_replicas.replicas)
    assert party.do(lambda _: batch.release()) is True
    with brief():
        error = fails(
            StoreUnavailable,
            party.start(
                lambda hold: hold.acquire_many(
                    [hold.lock("job", number, durability="replicas:3", ttl=20) for number in range(3)]
                )
            ),
            OutcomeUnknown,
        )
    assert "replicas" in str(error)
    until(lambda: not records(redis_replicas.primary), "they are given back")
