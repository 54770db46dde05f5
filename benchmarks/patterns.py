"""The patterns beside what people write by hand: ``python -m benchmarks.patterns [part ...]``.

The parts: hits (a fresh value of single_flight), stampede (many callers on a cold key). By hand is a GET, a lock of
redis-py and a second GET under it. dogpile.cache does the same, with its own lock in each process and one in Redis.
None of the others fences its write."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis
from dogpile.cache import make_region

import leasehold
from benchmarks.measure import interleave, parse_parts, repeated, show
from benchmarks.server import Server

VALUE = {"title": "home", "items": list(range(40)), "text": "x" * 600}  # about 800 bytes of JSON
OURS = "single_flight"
Get = Callable[[str], Any]


# ---------------------------------------------------------------- a fresh value


def hits() -> None:
    """One caller, and a value that is fresh all the time."""
    text = json.dumps(VALUE)
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        bare = {"a": text}
        _hits("memory", "memory://flight", "dict and json.loads", lambda key: json.loads(bare[key]))
        with _row(f"{folder}/bare.db", text) as row:
            _hits("SQLite", f"sqlite:///{folder}/leases.db", "SELECT and json.loads", row)
        with redis.Redis.from_url(server.url()) as client, server.one_core():
            client.set("a", text)
            peers = {"dogpile.cache": dogpile(server.url())(lambda _key: VALUE)}
            title = "Redis, client and server on one core"
            _hits(
                title, server.url(), "GET of redis-py and json.loads", lambda key: json.loads(_text(client, key)), peers
            )


def _hits(title: str, url: str, name: str, bare: Get, peers: dict[str, Get] | None = None) -> None:
    with leasehold.connect(url) as hold:
        page = hold.single_flight("page", "{key}", fresh="1h")(lambda key: VALUE)
        contenders: dict[str, Get] = {name: bare, OURS: page, **(peers or {})}
        for get in contenders.values():
            assert get("a") == VALUE  # what is measured must work
        runs = {one: repeated(partial(get, "a")) for one, get in contenders.items()}
        show(f"A fresh value: {title}", "hits/s", interleave(runs, 500, 15), name, cpu=True)


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
    region = make_region(serializer=lambda value: json.dumps(value).encode(), deserializer=json.loads)
    arguments = {"url": url, "distributed_lock": True, "lock_timeout": 10, "thread_local_lock": False}
    region.configure("dogpile.cache.redis", expiration_time=60, arguments=arguments)
    return lambda build: lambda key: region.get_or_create(f"dogpile:{key}", lambda: build(key))


PEERS: dict[str, Callable[[str], Callable[[Get], Get]]] = {
    OURS: ours,
    "redis-py Lock, and a second GET": by_hand,
    "dogpile.cache": dogpile,
}


def stampede() -> None:
    """Callers in threads of several processes that all want a key which is not there."""
    total = PROCESSES * CALLERS
    print(f"\n{total} callers in {PROCESSES} processes on a cold key, which takes {WORK * 1000:g} ms to build: Redis")
    print(
        f"  {'':<36}{'builds each':>12}{'wait p50 ms':>13}{'p99':>8}{'longest':>9}{'commands':>10}{'server CPU ms':>15}"
    )
    spawn = multiprocessing.get_context("spawn")
    with Server() as server:
        for name in PEERS:
            server.empty()
            before = server.usage()
            with ProcessPoolExecutor(PROCESSES, mp_context=spawn) as pool:
                begin = time.monotonic() + 3
                futures = [pool.submit(_play, name, server.url(), begin) for _ in range(PROCESSES)]
                waits = sorted(wait * 1000 for one in futures for wait in one.result())
            used = server.usage().since(before)
            with redis.Redis.from_url(server.url()) as client:
                builds = int(_text(client, "builds") or 0)
            print(f"  {name:<36}{builds / ROUNDS:>12.1f}{statistics.median(waits):>13.1f}", end="")
            print(f"{waits[int(len(waits) * 0.99)]:>8.1f}{waits[-1]:>9.1f}", end="")
            print(f"{used.commands / ROUNDS:>10.0f}{used.cpu_ms / ROUNDS:>15.2f}")


def _play(name: str, url: str, begin: float) -> list[float]:
    """The callers of one process, round after round: how long each call waited, in seconds."""
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


PARTS: dict[str, Callable[[], None]] = {"hits": hits, "stampede": stampede}


def main() -> None:
    """Everything, in about a minute; progress goes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patterns", description="Every pattern, compared.")
    for part in parse_parts(parser, PARTS).part:
        print(f"{part} ...", file=sys.stderr)
        PARTS[part]()


if __name__ == "__main__":
    main()
