"""The pattern single_flight beside what people write by hand: a fresh value, and many callers on a cold key.

By hand is a GET, a lock of redis-py and a second GET under it. dogpile.cache does the same, with its own lock in each
process and one in Redis. None of the others fences its write."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis

import leasehold
from benchmarks.processes import together
from benchmarks.report.rows import Result, Row, compare
from benchmarks.rounds import Setup, measure, rates, repeated
from benchmarks.server import Server

VALUE = {"title": "home", "items": list(range(40)), "text": "x" * 600}  # about 800 bytes of JSON
OURS = "Leasehold, single_flight"
Get = Callable[[str], Any]


# ---------------------------------------------------------------- a fresh value


def hits(setup: Setup) -> Result:
    """One caller, and a value that is fresh all the time. Client and Redis share one core."""
    text = json.dumps(VALUE)
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        bare = {"a": text}
        rows = _hits(setup, "memory", "memory://flight", "dict and json.loads", lambda key: json.loads(bare[key]))
        with _row(f"{folder}/bare.db", text) as row:
            rows += _hits(setup, "SQLite", f"sqlite:///{folder}/leases.db", "SELECT and json.loads", row)
        with redis.Redis.from_url(server.url()) as client, server.one_core():
            client.set("a", text)
            peers = {"dogpile.cache": dogpile(server.url())(lambda _key: VALUE)}
            by_get = lambda key: json.loads(_text(client, key))  # noqa: E731  # beside the others
            rows += _hits(setup, "Redis", server.url(), "GET of redis-py and json.loads", by_get, peers)
    return Result(rows)


def _hits(setup: Setup, store: str, url: str, name: str, bare: Get, peers: dict[str, Get] | None = None) -> list[Row]:
    with leasehold.connect(url) as hold:
        page = hold.single_flight("page", "{key}", fresh="1h")(lambda key: VALUE)
        contenders: dict[str, Get] = {name: bare, OURS: page, **(peers or {})}
        for get in contenders.values():
            assert get("a") == VALUE  # what is measured must work
        runs = {one: repeated(partial(get, "a")) for one, get in contenders.items()}
        return rates(f"single_flight, a fresh value, {store}", "hits/s", measure(setup, runs), name, cpu=True)


@contextmanager
def _row(path: str, text: str) -> Iterator[Get]:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE pages (name TEXT PRIMARY KEY, text TEXT)")
    connection.execute("INSERT INTO pages VALUES ('a', ?)", (text,))
    connection.commit()
    select = "SELECT text FROM pages WHERE name = ?"
    yield lambda key: json.loads(connection.execute(select, (key,)).fetchone()[0])
    connection.close()


# ---------------------------------------------------------------- a stampede

PROCESSES, CALLERS, ROUNDS = 4, 25, 6
WORK, PERIOD = 0.02, 1.0  # seconds that a rebuild takes, and between two stampedes


def ours(url: str) -> Callable[[Get], Get]:
    """As people write it."""
    hold = leasehold.connect(url)
    return hold.single_flight("page", "{key}", ttl=10, fresh=60)


def by_hand(url: str) -> Callable[[Get], Get]:
    """Read, lock, read again, build and write."""
    client = redis.Redis.from_url(url)

    def decorate(build: Get) -> Get:
        def page(key: str) -> Any:
            if (text := _text(client, key)) is not None:
                return json.loads(text)
            with client.lock(f"lock:{key}", timeout=10):
                if (text := _text(client, key)) is not None:
                    return json.loads(text)
                value = build(key)
                client.set(key, json.dumps(value), ex=60)
                return value

        return page

    return decorate


def dogpile(url: str) -> Callable[[Get], Get]:
    """Its region, with the lock in Redis that makes it one rebuild in the fleet."""
    from dogpile.cache import make_region

    region = make_region(serializer=lambda value: json.dumps(value).encode(), deserializer=json.loads)
    arguments = {"url": url, "distributed_lock": True, "lock_timeout": 10, "thread_local_lock": False}
    region.configure("dogpile.cache.redis", expiration_time=60, arguments=arguments)
    return lambda build: lambda key: region.get_or_create(f"dogpile:{key}", lambda: build(key))


PEERS: dict[str, Callable[[str], Callable[[Get], Get]]] = {
    OURS: ours,
    "redis-py Lock, and a second GET": by_hand,
    "dogpile.cache": dogpile,
}


def stampede(setup: Setup) -> Result:
    """Callers in threads of several processes that all want a key which is not there."""
    waits: dict[str, list[float]] = {}
    counts: dict[str, dict[str, float]] = {}
    with Server() as server:
        for number, name in enumerate(PEERS):
            setup.step("contender", number + 1, len(PEERS))
            server.empty()
            before = server.usage()
            played = together(_play, [(name, server.url())] * PROCESSES)
            waits[name] = sorted(wait * 1000 for one in played for wait in one)
            used = server.usage().since(before)
            with redis.Redis.from_url(server.url()) as client:
                builds = int(_text(client, "builds") or 0)
            each = {"builds": builds, "commands": used.commands, "Redis CPU, ms": used.cpu_ms}
            counts[name] = {unit: value / ROUNDS for unit, value in each.items()}
    work = f"{PROCESSES * CALLERS} callers in {PROCESSES} processes, a cold key, {WORK * 1000:g} ms to build"
    rows = compare(work, "builds", {name: [one["builds"]] for name, one in counts.items()})
    for unit, share in {"wait p50, ms": 0.5, "p99, ms": 0.99, "longest, ms": 1}.items():
        rows += compare(work, unit, {name: [many[int((len(many) - 1) * share)]] for name, many in waits.items()})
    for unit in ("commands", "Redis CPU, ms"):
        rows += compare(work, unit, {name: [one[unit]] for name, one in counts.items()})
    return Result(rows)


def _play(name: str, url: str) -> list[float]:
    """The callers of one process, round after round: how long each call waited, in seconds."""
    begin = time.monotonic() + PERIOD
    client = redis.Redis.from_url(url)

    def build(key: str) -> Any:
        client.incr("builds")
        time.sleep(WORK)  # what is built takes that long
        return VALUE

    page = PEERS[name](url)(build)
    waits: list[float] = []

    def call() -> None:
        for number in range(ROUNDS):
            time.sleep(max(begin + number * PERIOD - time.monotonic(), 0))  # all begin a round at once
            called = time.perf_counter()
            assert page(f"round-{number}") == VALUE  # what is measured must work
            waits.append(time.perf_counter() - called)

    threads = [threading.Thread(target=call) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waits


def _text(client: Any, key: str) -> Any:
    return client.get(key)


PIECES = {"hits": hits, "stampede": stampede}
