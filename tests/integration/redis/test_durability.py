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
    """The lease is given back, and the error says how many are missing. The next one finds it free."""
    a = make(redis_replicas.url)
    lock = {"ttl": 5, "wait": 0}
    with (
        brief(),
        pytest.raises(StoreUnavailable, match=r"2 replicas that .* asks for 3: 1 replica missing"),
    ):
        a.do(lambda hold: hold.lock("job", durability="replicas:3", **lock).acquire())
    redis_replicas.cut_replication(redis_replicas.replicas[0])
    with brief(), pytest.raises(StoreUnavailable, match="1 replica that confirmed"):
        a.do(lambda hold: hold.lock("job", durability=TWO, **lock).acquire())
    until(lambda: not records(redis_replicas.primary), "it is given back")
    assert a.do(lambda hold: hold.lock("job", durability=ONE, **lock).acquire()) is not None
    redis_replicas.heal()


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
    """``fsync``: kill -9 right after the acquire, and the lease is there. Valkey writes its file every second."""
    a = make(valkey_with_file.url)
    lease = a.do(lambda hold: hold.lock("job", ttl=60, durability="fsync").acquire())
    valkey_with_file.kill()
    valkey_with_file.start()
    assert records(valkey_with_file) == [b"lock:v1:{job}:owner"]
    b = make(valkey_with_file.url)
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is None
    assert lease.state in ("held", "unsure")


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
