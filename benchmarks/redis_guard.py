"""What a guarded command on Redis costs beside a bare one: ``python -m benchmarks.redis_guard``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import redis
import redis.asyncio

from benchmarks.measure import Run, interleave, show, sized
from benchmarks.server import Server
from leasehold.guards.redis import FenceGuard

BARE = "bare SET"
WHO: dict[str, Any] = {"resource": "report-export:42", "owner": "host:1:secret.1"}
BODY = "return redis.call('SET', KEYS[1], ARGV[1])"


def repeated(call: Callable[[], object]) -> Run:
    """The same again and again."""

    def run(count: int) -> None:
        for _ in range(count):
            call()

    return run


def awaited(runner: asyncio.Runner, call: Callable[[], Awaitable[object]]) -> Run:
    """The same on an event loop."""

    async def run(count: int) -> None:
        for _ in range(count):
            await call()

    return lambda count: runner.run(run(count))


def blocking(server: Server) -> None:
    with redis.Redis.from_url(server.url()) as client:
        guard = FenceGuard(client)
        calls: dict[str, Callable[[], object]] = {
            BARE: lambda: client.set("k", "value"),
            "a script that sets": lambda: client.eval(BODY, 1, "k", "value"),
            "guard.set": lambda: guard.set("k", "value", 10, **WHO),
            "guard.get": lambda: guard.get("k", 10, **WHO),
            "guard.check": lambda: guard.check(10, **WHO),
            "guard.eval": lambda: guard.eval(BODY, 10, keys=["k"], args=["value"], **WHO),
        }
        runs = {name: repeated(call) for name, call in calls.items()}
        with server.one_core():
            show("redis-py, one thread, one core", "calls/s", interleave(runs, sized(runs, 0.15), 11), BARE, cpu=True)
        print(f"\n  {'':<44}{'round trips':>14}{'commands':>12}")
        for name, call in calls.items():
            before = server.usage()
            for _ in range(100):
                call()
            used = server.usage().since(before)
            print(f"  {name:<44}{used.requests / 100:>14.2f}{used.commands / 100:>12.2f}")


def on_a_loop(server: Server) -> None:
    with asyncio.Runner() as runner:
        client = redis.asyncio.Redis.from_url(server.url())
        guard = FenceGuard(client)
        runs = {
            BARE: awaited(runner, lambda: client.set("k", "value")),
            "guard.set": awaited(runner, lambda: guard.set("k", "value", 10, **WHO)),
        }
        with server.one_core():
            show("asyncio, one task, one core", "calls/s", interleave(runs, sized(runs, 0.15), 11), BARE, cpu=True)
        runner.run(client.aclose())


def main() -> None:
    with Server() as server:
        blocking(server)
        on_a_loop(server)


if __name__ == "__main__":
    main()
