"""``durability=`` on real replicas and a real disk: what is confirmed survives, and what is not is not believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

import leasehold
from leasehold.errors import LeaseholdError, LeaseLost, StoreUnavailable, Unsupported
from leasehold.stores.redis import RedisStore, durable
from tests.support.crew import Crew, Hand, Loop
from tests.support.lock import look
from tests.support.parties import FLAVOURS, Party
from tests.support.servers.redis import RedisServer, redis_7, valkey
from tests.support.servers.replicas import RedisReplicas
from tests.support.servers.syncs import stalled_disk
from tests.support.waiting import until

pytestmark = pytest.mark.slow
ONE, TWO = "replicas:1", "replicas:2"
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


@contextmanager
def brief() -> Iterator[None]:
    """A server that lacks replicas answers WAIT soon, and not when most of the caller's time is over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "SHARE", 0.1)
        yield


def records(server: RedisServer) -> list[bytes]:
    """The leases that a server has."""
    client: Any = server.client()
    return sorted(client.keys("lock:v1:*:owner"))


def test_a_grant_that_the_replicas_have(redis_replicas: RedisReplicas, make: Make) -> None:
    """When the acquire returns, as many replicas have the lease as it asked for: no wait is needed to see it there."""
    a = make(redis_replicas.url)
    for number in range(20):
        lease = a.do(lambda hold, number=number: hold.lock("job", number, durability=TWO).acquire())  # type: ignore[misc]  # a lambda's default
        key = f"lock:v1:{{job:{number}}}:owner".encode()
        assert all(key in records(replica) for replica in redis_replicas.replicas)
        assert a.do(lambda _, lease=lease: lease.release()) is True  # type: ignore[misc]  # the same


def test_too_few_replicas(redis_replicas: RedisReplicas, make: Make) -> None:
    """The lease is given back, and the error says how many are missing, names those that are there and how they are
    doing, and counts those that are not. The next one finds it free."""
    a = make(redis_replicas.url)
    lock = {"ttl": 5, "wait": 0}
    with (
        brief(),
        pytest.raises(StoreUnavailable, match=r"2 replicas that .* asks for 3: 1 replica missing") as short,
    ):
        a.do(lambda hold: hold.lock("job", durability="replicas:3", **lock).acquire())
    first, second = redis_replicas.replicas
    for replica in (first, second):
        assert f"replica 127.0.0.1:{replica.port} is online, lag " in str(short.value)
    assert "1 of 3 is not connected" in str(short.value)
    redis_replicas.cut_replication(first)
    with brief(), pytest.raises(StoreUnavailable, match="1 replica that confirmed") as cut:
        a.do(lambda hold: hold.lock("job", durability=TWO, **lock).acquire())
    assert f"127.0.0.1:{second.port} is online" in str(cut.value) and "1 of 2 is not connected" in str(cut.value)
    assert str(first.port) not in str(cut.value)
    until(lambda: not records(redis_replicas.primary), "it is given back")
    assert a.do(lambda hold: hold.lock("job", durability=ONE, **lock).acquire()) is not None
    redis_replicas.heal()


def test_a_replica_that_stands_still(redis_replicas: RedisReplicas, make: Make) -> None:
    """It is connected and does not confirm: the error names it with its lag, so that nobody has to look for it."""
    a = make(redis_replicas.url)
    slow = redis_replicas.replicas[0]
    slow.freeze()
    until(lambda: any(one["port"] == slow.port and one["lag"] > 1 for one in _replicas(redis_replicas)), "it lags")
    with (
        brief(),
        pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{slow.port} is online, lag [2-9]\d* s") as short,
    ):
        a.do(lambda hold: hold.lock("job", ttl=5, wait=0, durability=TWO).acquire())
    assert "not connected" not in str(short.value)


def _replicas(replicas: RedisReplicas) -> list[dict[str, Any]]:
    client: Any = replicas.primary.client()
    return [value for name, value in client.info("replication").items() if name.removeprefix("slave").isdigit()]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_user_that_may_not_ask_for_replicas(redis_replicas: RedisReplicas, flavour: str) -> None:
    """The error says how many are missing, without their names."""
    server = redis_replicas.primary
    assert server.ask("ACL SETUSER plain on >word ~* &* +@all -info") == b"+OK\r\n"
    party = FLAVOURS[flavour](RedisStore(f"redis://plain:word@127.0.0.1:{server.port}/0"))
    try:
        with brief(), pytest.raises(StoreUnavailable, match=r"1 replica missing, or too slow$"):
            party.do(lambda hold: hold.lock("job", ttl=5, wait=0, durability="replicas:3").acquire())
    finally:
        party.close()
        server.ask("ACL DELUSER plain")


def test_a_batch_that_too_few_replicas_have(redis_replicas: RedisReplicas, make: Make) -> None:
    """The error of the lease that asks for them names the replicas, and the other lease is acquired."""
    a = make(redis_replicas.url)

    def acquire(hold: Any) -> Any:
        return hold.acquire_many([hold.lock("job", 1, ttl=5, durability="replicas:3"), hold.lock("job", 2, ttl=5)])

    with brief():
        batch = a.do(acquire)
    ((_, error),) = batch.failed.items()
    assert f"replica 127.0.0.1:{redis_replicas.replicas[0].port} is online" in str(error)


def test_only_confirmed_renewals_move_the_deadline(redis_replicas: RedisReplicas, make: Make) -> None:
    """While the replicas are cut off the primary still renews the lease, and its holder does not believe that."""
    a = make(redis_replicas.url)
    lease = a.do(lambda hold: hold.lock("job", ttl=1.5, durability=ONE).acquire())
    fence = lease.fence
    until(lambda: _renewals(redis_replicas) > 3, "it is renewed, and that is confirmed")
    assert lease.state == "held"
    redis_replicas.cut_replication()
    until(lambda: lease.state == "lost", "it is lost")
    with pytest.raises(LeaseLost) as lost:
        lease.check()
    assert lost.value.reason == "renewal_failed" and isinstance(lost.value.__cause__, LeaseholdError)
    redis_replicas.heal()
    again = a.do(lambda hold: hold.lock("job", ttl=5, durability=ONE).acquire(wait=30))
    assert again.fence > fence


def _renewals(replicas: RedisReplicas) -> int:
    client: Any = replicas.primary.client()
    return int(client.info("commandstats").get("cmdstat_wait", {}).get("calls", 0))


def test_every_change_is_confirmed(redis_replicas: RedisReplicas, make: Make) -> None:
    """``extend`` raises when it is not, and the lease is not believed for longer."""
    a = make(redis_replicas.url)
    lease = a.do(lambda hold: hold.lock("job", ttl=20, durability=TWO).acquire())
    a.do(lambda _: lease.extend(40))
    assert lease.remaining() > 20
    redis_replicas.cut_replication(redis_replicas.replicas[0])
    with brief(), pytest.raises(StoreUnavailable, match="1 replica that confirmed"):
        a.do(lambda _: lease.extend(60))
    assert lease.remaining() < 40 and lease.state == "unsure"
    redis_replicas.heal()
    a.do(lambda _: lease.extend(60))
    assert lease.remaining() > 40 and lease.state == "held"


def test_the_coordinators_durability(redis_replicas: RedisReplicas, make: Make) -> None:
    """It is that of every primitive, in place of none; a lock may ask for another."""
    a = make(redis_replicas.url, durability="replicas:3")
    asked: list[Callable[[Any], Any]] = [
        lambda hold: hold.lock("job", ttl=5).acquire(),
        lambda hold: hold.semaphore("api", limit=2, ttl=5).acquire(),
        lambda hold: hold.rwlock("config").read(ttl=5).acquire(),
        lambda hold: hold.all(hold.lock("a", ttl=5), hold.lock("b", ttl=5)).acquire(),
    ]
    for ask in asked:
        with brief(), pytest.raises(StoreUnavailable, match="'replicas:3' asks for 3"):
            a.do(ask)
    assert a.do(lambda hold: hold.lock("job", durability=TWO).acquire()) is not None


def test_scripts_that_are_forgotten(redis_replicas: RedisReplicas, make: Make) -> None:
    """A renewal that has to be sent again in full is waited for again."""
    a = make(redis_replicas.url)
    lease = a.do(lambda hold: hold.lock("job", ttl=1.5, durability=TWO).acquire())
    client: Any = redis_replicas.primary.client()
    for _ in range(3):
        client.script_flush()
        before = _renewals(redis_replicas)
        until(lambda before=before: _renewals(redis_replicas) > before + 1, "it is renewed")  # type: ignore[misc]  # a lambda's default
    client.script_flush()
    assert a.do(lambda hold: hold.lock("another", durability=TWO).acquire()) is not None
    assert lease.state == "held"


def test_what_others_do_meanwhile(redis_replicas: RedisReplicas, make: Make) -> None:
    """A lease that waits for its replicas keeps no one else from working: not even on the same event loop."""
    a, b = make(redis_replicas.url), make(redis_replicas.url)
    redis_replicas.cut_replication()
    waiting = a.start(lambda hold: hold.lock("job", ttl=30, durability=ONE).acquire())
    until(lambda: records(redis_replicas.primary), "it is granted, and waits")
    assert b.do(lambda hold: hold.lock("other", ttl=30).acquire()) is not None
    assert not waiting.done()
    redis_replicas.heal()
    try:
        assert waiting.result(60) is not None
    except StoreUnavailable:  # the replicas took longer to come back than it waits
        pass


def test_a_disk_that_confirms(valkey_with_file: RedisServer, make: Make) -> None:
    """``fsync``: the server is asked to confirm the acquire and each renewal, and only those of this lease. After a
    kill -9 it is there; but a process that is killed loses nothing that it has written, so the count is the proof."""
    a = make(valkey_with_file.url)
    assert a.do(lambda hold: hold.lock("plain", ttl=60).acquire()) and _waits_for_disk(valkey_with_file) == 0
    lease = a.do(lambda hold: hold.lock("job", ttl=60, durability="fsync").acquire())
    asked = _waits_for_disk(valkey_with_file)
    assert asked > 0
    a.do(lambda _: lease.extend(60))
    assert _waits_for_disk(valkey_with_file) > asked
    valkey_with_file.kill()
    valkey_with_file.start()
    assert b"lock:v1:{job}:owner" in records(valkey_with_file)
    b = make(valkey_with_file.url)
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is None
    assert lease.state in ("held", "unsure")


def _waits_for_disk(server: RedisServer) -> int:
    client: Any = server.client()
    return int(client.info("commandstats").get("cmdstat_waitaof", {}).get("calls", 0))


def test_a_disk_that_does_not_confirm(valkey_with_file: RedisServer, make: Make) -> None:
    """Each fdatasync of the server takes longer than anybody waits: the lease is given back. When the disk is quick
    again, so is the next lease. This Valkey confirms some writes before they are on the disk (docs/redis.md), so the
    lock is asked for until one is not confirmed."""
    a = make(valkey_with_file.url)

    def refused() -> bool:
        try:
            lease = a.do(lambda hold: hold.lock("job", ttl=5, wait=0, durability="fsync").acquire())
        except StoreUnavailable as error:
            return "did not write to its disk in time: the lease was not confirmed" in str(error)
        a.do(lambda _: lease.release())
        return False

    with stalled_disk(valkey_with_file, 600):
        with brief():
            until(refused, "a lease is not confirmed")
        until(lambda: not records(valkey_with_file), "it is given back")
        assert a.do(lambda hold: hold.lock("plain", ttl=5, wait=0).acquire()) is not None
    assert a.do(lambda hold: hold.lock("job", ttl=5, wait=0, durability="fsync").acquire()) is not None


def test_a_file_that_is_never_synced(make: Make) -> None:
    """With ``appendfsync no`` nothing is ever confirmed: neither an acquire, nor the ``extend`` of a lease that was
    confirmed before."""
    with RedisServer(None, "--appendfsync", "always", executable=valkey(), appendonly=True) as server:
        a = make(server.url)
        kept = a.do(lambda hold: hold.lock("kept", ttl=60, durability="fsync").acquire())
        server.client().config_set("appendfsync", "no")
        with brief(), pytest.raises(StoreUnavailable, match="did not write to its disk in time"):
            a.do(lambda hold: hold.lock("job", ttl=5, wait=0, durability="fsync").acquire())
        until(lambda: records(server) == [b"lock:v1:{kept}:owner"], "it is given back")
        with brief(), pytest.raises(StoreUnavailable, match="did not write to its disk in time"):
            a.do(lambda _: kept.extend(80))
        assert kept.remaining() < 60 and kept.state == "unsure"
        server.client().config_set("appendfsync", "always")
        a.do(lambda _: kept.extend(80))
        assert kept.remaining() > 60 and kept.state == "held"


@pytest.fixture
def valkey_with_file() -> Iterator[RedisServer]:
    """A Valkey with an append-only file."""
    with RedisServer(None, "--appendfsync", "everysec", executable=valkey(), appendonly=True) as server:
        yield server


@pytest.mark.parametrize(("executable", "why"), [(redis_7, "has no WAITAOF"), (valkey, "appendonly yes")])
def test_a_server_that_cannot(executable: Callable[[], str], why: str, make: Make) -> None:
    """No WAITAOF before 7.2, and none without an append-only file: Unsupported, and the lease is given back."""
    with RedisServer(executable=executable()) as server:
        a = make(server.url)
        with pytest.raises(Unsupported, match=why):
            a.do(lambda hold: hold.lock("job", durability="fsync").acquire())
        until(lambda: not records(server), "it is given back")


class Neighbours:
    """A coordinator for threads or for tasks that has the lock; others of it are to wait."""

    def __init__(self, kind: str, url: str, everywhere: str | None = None, **first: Any) -> None:
        self.store = RedisStore(url)
        self.loop = Loop() if kind == "tasks" else None
        connect: Any = leasehold.connect if self.loop is None else leasehold.aio.connect
        self.hold = connect(self.store, durability=everywhere)
        self.lease = self.do(lambda: self.hold.lock("job", ttl=30, **first).acquire())

    def do(self, step: Callable[[], Any]) -> Any:
        """A step, on this thread or in a task."""
        return step() if self.loop is None else self.loop.do(step)

    def crew(self, alike: bool, **options: Any) -> Crew:
        """Others who want it."""
        return Crew(self.hold, alike=alike, loop=self.loop, ttl=30, **options)

    def passed_to(self, hand: Hand) -> bool:
        """Has it what the store granted to another?"""
        lease = hand.has_it()
        (grant,) = look(self.store, "job").holders
        return (grant.owner, grant.fence) != (lease.owner, lease.fence)

    def end(self, *crews: Crew) -> None:
        """All of them, and the coordinator."""
        for crew in crews:
            crew.end()
        self.do(self.hold.close)
        if self.loop is not None:
            self.loop.close()


@pytest.mark.parametrize("kind", ["threads", "tasks"])
@pytest.mark.parametrize("whole", [False, True])
def test_durable_leases_do_not_pass_within_a_process(redis_replicas: RedisReplicas, kind: str, whole: bool) -> None:
    """All who wait ask for the same, by their locks or by their coordinator: each has a claim and a grant of its own,
    for each grant is confirmed by the replicas."""
    each = {} if whole else {"durability": ONE}
    neighbours = Neighbours(kind, redis_replicas.url, ONE if whole else None, **each)
    crew = neighbours.crew(alike=False, **each)
    hands = [hand for _ in range(3) for hand in crew.come()]
    assert len(look(neighbours.store, "job").queue) == 3 and not neighbours.hold._engine.cohorts
    assert neighbours.do(neighbours.lease.release)
    fences = [neighbours.lease.fence]
    for hand in hands:
        assert not neighbours.passed_to(hand)
        fences.append(hand.lease.fence)
        assert hand.let_go() is True
    assert fences == sorted(set(fences))
    neighbours.end(crew)


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_durable_lease_and_others_beside_it(redis_replicas: RedisReplicas, kind: str) -> None:
    """What is not durable passes among its like. It neither passes to one that wants a durable lease, nor does a
    durable one pass to it."""
    neighbours = Neighbours(kind, redis_replicas.url, durability=ONE)
    plain, durable = neighbours.crew(alike=True), neighbours.crew(alike=False, durability=ONE)
    usual, (careful,) = plain.come(2), durable.come()
    assert len(look(neighbours.store, "job").queue) == 2
    assert neighbours.do(neighbours.lease.release)
    assert not neighbours.passed_to(usual[0])
    assert usual[0].let_go() is True and neighbours.passed_to(usual[1])
    assert usual[1].let_go() is True
    assert not neighbours.passed_to(careful)
    (last,) = plain.come()
    assert careful.let_go() is True
    assert not neighbours.passed_to(last)
    neighbours.end(plain, durable)


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_stores_that_cannot(url: str, tmp_path: Any) -> None:
    """It is refused before anything is sent."""
    url = f"sqlite:///{tmp_path}/leases.db" if url == "sqlite" else url
    with pytest.raises(Unsupported, match="it cannot wait for replicas"):
        leasehold.connect(url, durability=ONE)
    with closing(leasehold.connect(url)) as hold, pytest.raises(Unsupported, match="it cannot wait for replicas"):
        hold.lock("job", durability=ONE)
