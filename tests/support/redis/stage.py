"""What the fault tests share: parties in both flavours, a network that singles out ops, and a look round it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import redis

from leasehold import Leasehold, LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold._core.ops import Reply, StoreOp
from leasehold.stores.redis import RedisStore
from leasehold.stores.redis.protocol import SCRIPTS, keys
from tests.support.parties import FLAVOURS, Party
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.servers.redis import RedisServer
from tests.support.waiting import PATIENCE, until

HASTE = 0.3  # seconds that a call may take where calls are hasty
SLACK = 10.0  # seconds that a busy machine may add to a bound of the protocol
# For tests of what the watchdog does, which is the same for tasks.
THREADS_ONLY = pytest.mark.parametrize("stage", ["sync"], indirect=True)
OWN_THREADS_ONLY = pytest.mark.parametrize("own_stage", ["sync"], indirect=True)
MARKS = [(script.name, script.sha.encode(), script.text.encode()) for script in SCRIPTS]


def ask(hold: Any, op: StoreOp) -> Reply | Awaitable[Reply]:
    """One op, past the flows, on the way that this flavour takes to its store."""
    if not isinstance(hold, Leasehold):
        awaited: Awaitable[Reply] = hold._driver.connection(asyncio.get_running_loop()).execute(op)
        return awaited
    connection = hold._engine.connections.borrow()
    try:
        return connection.execute(op)
    finally:
        hold._engine.connections.give_back(connection)


def now() -> float:
    """Seconds on the clock that leases use."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def insist(call: Callable[[], Any]) -> Any:
    """What it returns, as soon as it is confirmed: where calls are hasty, a busy machine may need some tries."""
    end = now() + PATIENCE
    while True:
        try:
            return call()
        except (OutcomeUnknown, StoreUnavailable):
            if now() > end:
                raise


def give_back(party: Party, lease: Any) -> None:
    """Release; again where that was not confirmed."""
    assert insist(lambda: party.do(lambda _: lease.release())) is True


def extend(party: Party, lease: Any, seconds: float) -> None:
    """Extend; again where that was not confirmed."""
    insist(lambda: party.do(lambda _: lease.extend(seconds)))


def losses(lease: Any) -> list[tuple[float, LeaseLost]]:
    """When the loss is told, and how: at most one of them, as soon as anybody knows."""
    told: list[tuple[float, LeaseLost]] = []
    lease._held.listen(lambda: told.append((now(), lease._held.loss())))
    return told


class Aim:
    """What becomes of requests, by the scripts that they call. The others pass."""

    def __init__(self, proxy: Proxy) -> None:
        self.seen: Counter[str] = Counter()
        self._plans: dict[str, list[Verdict]] = {}
        self._always: dict[str, Verdict] = {}
        proxy.on_request = self._judge

    def lose(self, op: str, times: float = 1) -> None:
        """The next of these are done, and nobody hears of it."""
        self._plan(op, "drop_reply", times)

    def hold(self, op: str, times: float = 1) -> None:
        """The next of these wait in the network, with whatever else comes on their connections."""
        self._plan(op, "hold", times)

    def relent(self) -> None:
        """No more of it."""
        self._plans, self._always = {}, {}

    def _plan(self, op: str, verdict: Verdict, times: float) -> None:
        if times == math.inf:
            self._always[op] = verdict
        else:
            self._plans.setdefault(op, []).extend([verdict] * int(times))

    def _judge(self, chunk: bytes) -> Verdict:
        verdict: Verdict = "pass"
        for name in called(chunk):
            plan = self._plans.get(name)
            verdict = plan.pop(0) if plan else self._always.get(name, verdict)
            self.seen[name] += 1  # last: whoever waits for it finds the verdict spoken
        return verdict


def ready(store: RedisStore) -> list[str]:
    """The channels of its connections that have said their first words and heard the answers."""
    connections: list[Any] = [*store._connections, store._watchdog._connection, *store._loop_connections]
    return [connection.address for connection in connections if connection._socket is not None]


def called(chunk: bytes) -> list[str]:
    """The scripts that a request calls. A renewal is one, whether it travels alone or with others."""
    return [name.removesuffix("_many") for name, sha, text in MARKS if sha in chunk or text in chunk]


class Look:
    """The server's own view, past every proxy: a look that advances nothing."""

    def __init__(self, server: RedisServer) -> None:
        self.client: redis.Redis = server.client(decode_responses=True)

    def run(self, command: str) -> Any:
        """A command, as one types it."""
        execute: Any = self.client.execute_command
        return execute(*command.split())

    def holder(self, resource: str = "job") -> str | None:
        """The owner token of whoever holds."""
        record: Any = self.client.get(keys(resource)[0])
        return (record.split(" ")[1] if " " in record else str(record)) if record else None

    def fence(self, resource: str = "job") -> int:
        """The last fence that was given."""
        return int(self.client.get(keys(resource)[1]) or 0)

    def queue(self, resource: str = "job") -> list[str]:
        """The owners who wait, in order."""
        owners: Any = self.client.lrange(keys(resource)[2], 0, -1)
        return list(owners)

    def ended(self, resource: str = "job") -> dict[str, str]:
        """Tombstones: how owners ended."""
        found: Any = self.client.hgetall(keys(resource)[3])
        outcomes = {owner: raw.split(" ")[1] for owner, raw in found.items() if not owner.startswith(":")}
        return {owner: outcome for owner, outcome in outcomes.items() if outcome != "waiting"}

    def left_ms(self, resource: str = "job") -> int:
        """What remains of the holder's time."""
        left: Any = self.client.pttl(keys(resource)[0])
        return int(left)

    def served(self) -> int:
        """How many scripts the server has run."""
        stats: Any = self.client.info("commandstats")
        return sum(int(stats.get(name, {}).get("calls", 0)) for name in ("cmdstat_evalsha", "cmdstat_eval"))

    def settle(self) -> None:
        """What has reached the server until now is done."""
        for _ in range(2):  # the first may be answered before what was ready together with it
            self.client.ping()

    def connections(self, name: str) -> int:
        """How many clients of that name the server has."""
        clients: Any = self.client.client_list()
        return sum(one["name"] == name for one in clients)

    def leftovers(self) -> list[str]:
        """Every key but fences and tombstones; those must have an end as well."""
        found: Any = list(self.client.scan_iter(count=1000))
        assert all(self.client.pttl(key) != -1 for key in found), "a key without an end"
        return sorted(key for key in found if not key.endswith(":fence") and not self._only_ended(key))

    def nothing_left(self, resource: str = "job") -> bool:
        """Nobody holds, nobody waits, nothing is kept for them."""
        found: Any = [key for key in keys(resource) if self.client.exists(key)]
        return all(key.endswith(":fence") or self._only_ended(key) for key in found)

    def _only_ended(self, key: str) -> bool:
        """True for the key of what is rare when it has nothing but tombstones and times."""
        values: Any = self.client.hvals(key) if key.endswith(":more") else [" waiting "]
        return not any(" waiting " in value for value in values)

    def honest(self, lease: Any) -> None:
        """What the holder believes ends no later than what the server granted (traps 23, 41, 42)."""
        believed = lease.deadline
        left = self.left_ms(lease.resource)
        assert believed <= now() + (left + 2) / 1000, "it believes in more than it was given"


def arrive(proxy: Proxy, look: Look) -> None:
    """What waits in the network arrives now, and is done."""
    assert proxy.waiting > 0, "nothing is late"
    proxy.release()
    until(lambda: proxy.waiting == 0, "it arrives")
    look.settle()


class Turn:
    """Somebody's time inside: whose, with which fence, and since when."""

    def __init__(self, lease: Any) -> None:
        self.owner: str = lease.owner
        self.fence: int = lease.fence
        self.at = now()


class Stage:
    """Parties in one flavour. ``party()`` goes through the network where there is one, ``other()`` never does."""

    def __init__(self, flavour: str, server: RedisServer, proxy: Proxy | None = None) -> None:
        self.flavour = flavour
        self.server = server
        self.url = proxy.url if proxy else server.url
        self.look = Look(server)
        self.look.client.config_resetstat()
        for script in SCRIPTS:
            self.look.client.script_load(script.text)
        self._parties = ExitStack()
        self._stores: list[RedisStore] = []
        self._users: list[str] = []
        if proxy is not None:
            self.proxy = proxy
            self.aim = Aim(proxy)

    def party(self, url: str | None = None, flavour: str | None = None, **options: Any) -> Party:
        """Somebody, with a coordinator of his own."""
        store = RedisStore(url or self.url)
        self._stores.append(store)
        party = FLAVOURS[flavour or self.flavour](store, **options)
        self._parties.callback(party.close)
        return party

    def connected(self, url: str | None = None) -> Party:
        """The same, who is connected: the time of the next call is for the call alone."""
        party = self.party(url)
        insist(lambda: party.do(lambda hold: hold.lock("job").locked()))
        return party

    def user(self, line: str) -> None:
        """A user of the server, by the ACL line that makes it, for the time of the test."""
        self.look.run(line)
        self._users.append(line.split()[2])

    def acquire(self, **options: Any) -> tuple[Party, Any]:
        """Somebody, and a lease of his."""
        party = self.party()
        return party, party.do(lambda hold: hold.lock("job", **options).acquire(wait=PATIENCE))

    def other(self) -> Party:
        """Somebody with a good network."""
        return self.party(self.server.url)

    def queue(self, count: int, resource: str = "job", **options: Any) -> list[Future[Turn]]:
        """So many more parties wait for the resource, in this order, and hand it on at once. Their turns."""
        turns = []
        for _ in range(count):
            place = len(self.look.queue(resource)) + 1
            turns.append(self.party().within(lambda hold: hold.lock(resource, wait=PATIENCE, **options), Turn))
            until(partial(self._waiting, resource, place), f"{place} wait for {resource}")
        return turns

    def _waiting(self, resource: str, count: int) -> bool:
        return len(self.look.queue(resource)) == count

    def listening(self, count: int) -> bool:
        """Do so many connections of the parties hear pushes, and know it? The server knows a moment before they do."""
        known: Any = self.look.client.pubsub_channels("lock:v1:push:*")
        return len({one for store in self._stores for one in ready(store)} & set(known)) >= count

    def without_reply(self, op: str, begin: Callable[[], Future[Any]], done: bool = True) -> Future[Any]:
        """Begin something whose next op of that kind gets no reply: the connection breaks when the server has done it,
        or before the server hears of it. Either way the client cannot tell."""
        asked = self.aim.seen[op]
        (self.aim.lose if done else self.aim.hold)(op)
        future = begin()
        until(lambda: self.aim.seen[op] > asked, f"a {op} is under way")
        if done:
            self.proxy.settle()
            self.look.settle()
        self.proxy.cut()
        return future

    def deliver(self) -> None:
        """What waits in the network arrives now, and is done."""
        self.aim.relent()
        arrive(self.proxy, self.look)

    def close(self) -> None:
        """Everybody goes home, on a good network."""
        if hasattr(self, "proxy"):
            self._heal()
        self._parties.close()
        for user in self._users:
            self.look.run(f"ACL DELUSER {user}")

    def _heal(self) -> None:
        self.aim.relent()
        self.proxy.release()
