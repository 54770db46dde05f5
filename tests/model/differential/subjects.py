"""What the differential test compares: the ledger itself, and every store that must answer like it.

A new store takes part by one line in ``STORES`` or, when a server is behind it, in ``ON_SERVERS``: it runs on the
clock that it is given, so that both read the same time. Addresses differ from store to store; here they have names,
which are translated on the way in and out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psycopg

from leasehold._core import ledger, ops
from leasehold._core.names import matches
from leasehold._core.ops import WAKE
from leasehold._core.policy import NOTE_US, NOTES_KEPT, WATCH_MS
from leasehold._core.ports import Connection, Store
from leasehold._core.types import Instant, State
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from leasehold.stores.postgresql.rows import listener_key
from leasehold.stores.postgresql.schema import TABLE
from leasehold.stores.postgresql.store import PostgresStore
from leasehold.stores.redis import RedisStore
from leasehold.stores.redis.connection import RedisConnection as RedisMailbox
from leasehold.stores.redis.protocol import SCRIPTS, keys
from leasehold.stores.sqlite import SQLiteStore
from tests.support.servers.clock import OneClock
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.waiting import PATIENCE, until

MOST_PUSHES = 50  # after one step there are one or two
PUSH_WITHIN = 5.0  # seconds that a push of a server may take on a busy machine


class Subject(Protocol):
    """Somebody who is asked the same questions as everybody else."""

    name: str

    def open(self, address: str, via: int) -> None:
        """A mailbox of that name, of the client number ``via``."""
        ...

    def shut(self, address: str, killed: bool) -> None:
        """It is closed, or its process is killed: what a process leaves behind stays."""
        ...

    def ask(self, asked: Sequence[ops.StoreOp], via: int, way: str) -> list[object]:
        """One op by ``sync`` or ``asyncio``, several at once by ``batch``."""
        ...

    def heard(self, expected: Sequence[ops.Push]) -> list[ops.Push]:
        """The pushes that have arrived since the last time."""
        ...

    def tidy(self, rooms: Sequence[str], now: Instant) -> None:
        """Throw away now what is over, and would be thrown away sooner or later."""
        ...

    def close(self) -> None:
        """No more questions."""
        ...


class LedgerSubject:
    """The specification: a dictionary of states. Addresses are their own names."""

    name = "ledger"

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.states: dict[str, State] = {}
        self.alive: set[str] = set()
        self.pushes: list[ops.Push] = []

    def open(self, address: str, via: int) -> None:
        """It can be reached from now on."""
        self.alive.add(address)

    def shut(self, address: str, killed: bool) -> None:
        """Nobody is there any more, for whatever reason."""
        self.alive.discard(address)

    def ask(self, asked: Sequence[ops.StoreOp], via: int, way: str) -> list[object]:
        """One turn after the other."""
        return [self.turn(op) for op in asked]

    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """One op; pushes are heard by those who are there."""
        if isinstance(op, ops.LISTINGS):
            return self.page(op)
        if isinstance(op, ops.Group):
            return self.steps(op)
        state = self.states.get(op.resource, ledger.EMPTY)
        outcome = ledger.apply(state, self.clock.instant(), op, self.reachable)
        self.states[op.resource] = outcome.state
        self.pushes.extend(push for push in outcome.pushes if push.address in self.alive)
        return outcome.reply

    def steps(self, op: ops.Group) -> ops.Replies:
        """One after the other, until one ends it."""
        replies: list[ops.Reply] = []
        for step in op.steps:
            replies.append(self.turn(step))
            if ledger.ends_group(step, replies[-1]):
                break
        return ledger.group_reply(replies)

    def page(self, op: ops.Scan | ops.Leaks | ops.Ping) -> ops.Page:
        """Everything on one page; nothing lacks an end."""
        now = self.clock.instant()
        names = [name for name, state in self.states.items() if ledger.listed(state, now)]
        return ops.Page(tuple(filter(partial(matches, op.pattern), names)) if isinstance(op, ops.Scan) else (), "")

    def reachable(self, address: str) -> bool:
        """What the ledger asks before it grants behind somebody's back."""
        return address in self.alive

    def heard(self, expected: Sequence[ops.Push]) -> list[ops.Push]:
        """What was sent since the last time."""
        pushes, self.pushes = self.pushes, []
        return pushes

    def tidy(self, rooms: Sequence[str], now: Instant) -> None:
        """Each turn does that."""

    def close(self) -> None:
        """There is nothing to close."""


class StoreSubject:
    """A store behind its port, reached by two clients as if they were two processes."""

    def __init__(self, name: str, clients: Sequence[Store], push_within: float = 0.0) -> None:
        self.name = name
        self._clients = clients
        self._push_within = push_within  # seconds that a push may take: none where sending is delivering
        self._connections: dict[str, Connection] = {}
        self._inward: dict[str, str] = {}
        self._outward: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()

    def open(self, address: str, via: int) -> None:
        """A mailbox of that client, known here by this name."""
        connection = self._clients[via % len(self._clients)].connection()
        bind = getattr(connection, "bind", None)
        if bind is not None and address.startswith("news"):
            bind()  # nobody queues with this one, which would have bound it
        self._connections[address] = connection
        self._inward[address], self._outward[connection.address] = connection.address, address

    def shut(self, address: str, killed: bool) -> None:
        """Close it, or leave behind what a killed process does."""
        connection = self._connections.pop(address)
        forked = getattr(connection, "forked", None)
        if killed and forked is not None:
            forked()  # closes the descriptor, and the name stays
        else:
            connection.close()

    def ask(self, asked: Sequence[ops.StoreOp], via: int, way: str) -> list[object]:
        """Through the port, with addresses translated."""
        client = self._clients[via % len(self._clients)]
        sent = [self._going_in(op) for op in asked]
        replies: Sequence[object]
        if way == "batch":
            replies = client.execute_many(sent)
        elif way == "asyncio":
            replies = [self._loop.run_until_complete(client.execute_async(op)) for op in sent]
        else:
            replies = [client.execute(op) for op in sent]
        return [self._coming_out(reply) for reply in replies]

    def heard(self, expected: Sequence[ops.Push]) -> list[ops.Push]:
        """Wait for those that must come, then take what else there is."""
        found: list[ops.Push] = []
        for push in expected:
            if (connection := self._connections.get(push.address)) is not None:
                found += filter(None, [connection.next_push(self._push_within)])
        for connection in self._connections.values():
            while (
                getattr(connection, "bound", True)
                and len(found) < MOST_PUSHES
                and (more := connection.next_push(0)) is not None
            ):
                found.append(more)
        return [push._replace(address=self._outward[push.address]) for push in found]

    def tidy(self, rooms: Sequence[str], now: Instant) -> None:
        """Each turn does that."""

    def close(self) -> None:
        """Close everything, so that the next example starts with nothing."""
        for address in list(self._connections):
            self.shut(address, killed=False)
        for client in self._clients:
            client.close()
        self._loop.run_until_complete(asyncio.sleep(0.001))  # for what is closed on the loop
        self._loop.close()

    def _going_in(self, op: ops.StoreOp) -> ops.StoreOp:
        if isinstance(op, ops.Claim):
            return op._replace(
                address=self._inward.get(op.address, ""), holder_address=self._inward.get(op.holder_address, "")
            )
        if isinstance(op, ops.Watch):
            return op._replace(address=self._inward.get(op.address, ""))
        if isinstance(op, ops.Group):
            steps: Any = tuple([self._going_in(step) for step in op.steps])
            return op._replace(steps=steps)
        return op._replace(holder_address=self._inward.get(op.holder_address, "")) if isinstance(op, ops.Adopt) else op

    def _coming_out(self, reply: object) -> object:
        if not isinstance(reply, ops.View):
            return reply
        name = self._outward.get
        holders = tuple(one._replace(holder_address=name(one.holder_address, "")) for one in reply.holders)
        queue = tuple(
            one._replace(address=name(one.address, ""), holder_address=name(one.holder_address, ""))
            for one in reply.queue
        )
        return reply._replace(holders=holders, queue=queue)


ON_TIME = (b":grant", b":closed", b":doors")  # these keep a place free, and a turn that finds them over deletes them


def notes(room: str) -> str:
    """The key of what operators did: not every script has it."""
    return f"lock:v1:{{{room}}}:notes"


class RedisSubject(StoreSubject):
    """Two clients of a server that sees the same clock. A closed socket is noticed by the server a moment later."""

    def __init__(self, server: RedisServer, clock: OneClock) -> None:
        super().__init__(
            "redis", [RedisStore(server.url, clock), RedisStore(server.url, clock)], push_within=PUSH_WITHIN
        )
        self._server: Any = server.client()
        for script in SCRIPTS:  # one that is missing is sent again, after the others of its batch
            self._server.script_load(script.text)

    def open(self, address: str, via: int) -> None:
        """Listening from now on."""
        super().open(address, via)
        connection = self._connections[address]
        assert isinstance(connection, RedisMailbox)
        connection.connect(time.monotonic() + 5)

    def ask(self, asked: Sequence[ops.StoreOp], via: int, way: str) -> list[object]:
        """And look for what no reply shows: a view is cut to the last notes, however many are kept."""
        replies = super().ask(asked, via, way)
        for op in asked:
            if isinstance(op, ops.Evict):
                kept = self._server.llen(notes(op.resource))
                assert kept <= NOTES_KEPT, f"{self.name} keeps {kept} notes, the ledger {NOTES_KEPT}"
        return replies

    def shut(self, address: str, killed: bool) -> None:
        """And wait until the server knows."""
        channel = self._inward[address]
        super().shut(address, killed)
        until(lambda: self._server.pubsub_numsub(channel)[0][1] == 0, "the server knows that nobody listens")

    def tidy(self, rooms: Sequence[str], now: Instant) -> None:
        """Keys, and what has an end of its own inside one: tombstones, those who watched, and notes."""
        ms = now.ms
        for room in rooms:
            self._server.exists(*keys(room))  # what is over is dropped by the look
            more, watchers = (next(one for one in keys(room) if one.endswith(end)) for end in (":more", ":watchers"))
            self._drop(more, lambda owner, until: owner not in ON_TIME and until <= ms)
            self._drop(watchers, lambda owner, beat: beat < ms - WATCH_MS)
            for note in self._server.lrange(notes(room), 0, -1):
                if int(note.split()[0]) + NOTE_US <= now.wall_us:
                    self._server.lrem(notes(room), 1, note)

    def _drop(self, key: str, over: Callable[[bytes, int], bool]) -> None:
        for owner, raw in self._server.hgetall(key).items():
            if over(owner, int(raw.split()[0])):
                self._server.hdel(key, owner)

    def close(self) -> None:
        """And leave nothing on the server."""
        super().close()
        self._server.flushall()
        self._server.close()


class PostgresSubject(StoreSubject):
    """Two clients that ask, and for each mailbox a client that listens: whether a process listens is known, and not
    which of its threads do."""

    def __init__(self, server: PostgresServer, clock: OneClock) -> None:
        clients = [PostgresStore(server.url, clock), PostgresStore(server.url, clock)]
        super().__init__("postgresql", clients, push_within=PUSH_WITHIN)
        self._server, self._clock = server, clock
        self._listening: dict[str, PostgresStore] = {}
        self._observer = psycopg.connect(server.url, autocommit=True)
        self._observer.execute(f"DROP TABLE IF EXISTS {TABLE}")

    def open(self, address: str, via: int) -> None:
        """Listening from now on."""
        store = self._listening[address] = PostgresStore(self._server.url, self._clock)
        connection = store.connection()
        assert store._listener.wait(time.monotonic() + PATIENCE)
        assert connection.next_push(PATIENCE) is WAKE
        self._connections[address] = connection
        self._inward[address], self._outward[connection.address] = connection.address, address

    def shut(self, address: str, killed: bool) -> None:
        """And wait until the server knows."""
        store = self._listening.pop(address)
        channel = self._inward[address].partition(".")[0]
        del self._connections[address]
        store.close()
        until(lambda: not self._locked(channel), "the server knows that nobody listens")

    def heard(self, expected: Sequence[ops.Push]) -> list[ops.Push]:
        """What a transaction sends twice, the server sends once."""
        once = list(dict.fromkeys(expected))
        found = super().heard(once)
        again = [push for place, push in enumerate(expected) if push in expected[:place]]
        return found + [push for push in again if push in found]

    def _locked(self, channel: str) -> bool:
        key = listener_key(channel)
        assert key is not None
        high, low = key >> 32 & 0xFFFFFFFF, key & 0xFFFFFFFF
        query = "SELECT FROM pg_locks WHERE classid = %s::bigint::oid AND objid = %s::bigint::oid"
        return self._observer.execute(query, (high, low)).fetchone() is not None

    def close(self) -> None:
        """And look no more."""
        super().close()
        self._observer.close()


def memory(clock: ManualClock, folder: Path) -> Subject:
    """One space: both clients share the object."""
    return StoreSubject("memory", [MemoryStore(clock)])


def sqlite(clock: ManualClock, folder: Path) -> Subject:
    """One file, opened twice."""
    path = str(folder / "leases.db")
    return StoreSubject("sqlite", [SQLiteStore(path, clock), SQLiteStore(path, clock)])


def redis(server: RedisServer) -> Opener:
    """One server that sees the clock, two clients."""

    def opener(clock: ManualClock, folder: Path) -> Subject:
        assert isinstance(clock, OneClock), "a server needs a clock that it can see"
        return RedisSubject(server, clock)

    return opener


def postgresql(server: PostgresServer) -> Opener:
    """The same with PostgreSQL."""

    def opener(clock: ManualClock, folder: Path) -> Subject:
        assert isinstance(clock, OneClock), "a server needs a clock that it can see"
        return PostgresSubject(server, clock)

    return opener


Opener = Callable[[ManualClock, Path], Subject]
STORES: dict[str, Opener] = {"memory": memory, "sqlite": sqlite}
ON_SERVERS: dict[str, Callable[[RedisServer], Opener]] = {"redis": redis}
