"""The guard on Redis against the pure rule: any history, and stale and fresh owners at the same time."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leasehold._core.types import owner_digest
from leasehold.errors import StaleOwner
from leasehold.guards.fence import MAX_FENCE, UNKNOWN_OWNER, accept
from leasehold.guards.redis import Awaited, FenceGuard
from tests.support.guards.redis_race import RESOURCE, add_one
from tests.support.guards.redis_stage import A, B
from tests.support.servers.redis import RedisServer

pytestmark = pytest.mark.slow

# ---------------------------------------------------------------- any history

near = st.sampled_from([1, 9, 10, 99, 100, 2**53 - 1, 2**53, 2**53 + 1, 10**18, MAX_FENCE - 1, MAX_FENCE])
attempts = st.tuples(near | st.integers(1, MAX_FENCE), st.sampled_from([A, B, None]), st.booleans())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(attempts, min_size=1, max_size=12))
def test_the_script_keeps_the_rule(history: list[tuple[int, str | None, bool]], redis_server: RedisServer) -> None:
    """Every history of fences, owners and readers is judged by Lua as by the rule, to the last digit."""
    with redis.Redis(port=redis_server.port) as client:
        client.delete("guard:v1:{differential}", "k")
        guard = FenceGuard(client)
        last: tuple[int | None, str] = (None, UNKNOWN_OWNER)
        for number, (fence, owner, shared) in enumerate(history):
            mine = owner_digest(owner) if owner else UNKNOWN_OWNER
            who: dict[str, Any] = {"resource": "differential", "owner": owner}
            found: object = "accepted"
            try:
                guard.get("k", fence, shared=True, **who) if shared else guard.set("k", number, fence, **who)
            except StaleOwner as error:
                found = error.seen
            assert found == ("accepted" if accept(*last, fence, mine) else last[0])
            if found == "accepted" and not shared:
                last = (fence, mine)
        assert last[0] is None or client.get("guard:v1:{differential}") == f"{last[0]} {last[1] or '-'}".encode()


# ---------------------------------------------------------------- at the same time


def lanes(rounds: int, width: int, seed: int) -> list[list[int]]:
    """For each worker the fences that it presents: all of them grow, and each is soon overtaken by others."""
    chance = random.Random(seed)
    numbers = sorted(chance.sample(range(1, rounds * width * 10), rounds * width))
    found: list[list[int]] = [[] for _ in range(width)]
    for number in numbers:
        found[chance.randrange(width)].append(number)
    return found


def judge(data: Any, accepted: list[int], tried: int) -> None:
    """No update is lost, and what was written was written in the order of fences; some were refused."""
    written = [int(fence) for fence in data.lrange("written", 0, -1)]
    assert written == sorted(accepted)
    assert int(data.hget("counter", "count") or 0) == len(accepted)
    assert 0 < len(accepted) < tried
    assert data.get("guard:v1:{report-export:42}") is not None


def race_threads(server: RedisServer, rounds: int, seed: int) -> None:
    """Six threads, one client."""
    accepted: list[int] = []
    guard = FenceGuard(server.client())
    work = lanes(rounds, 6, seed)

    def run(fences: list[int]) -> None:
        accepted.extend([fence for fence in fences if add_one(guard, fence, f"host:{fence}:secret.1")])

    threads = [threading.Thread(target=run, args=(fences,)) for fences in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    judge(server.client(), accepted, sum(map(len, work)))


@pytest.mark.parametrize("seed", range(3))
def test_threads(seed: int, redis_server: RedisServer, redis_url: str) -> None:
    """Stale and fresh owners read and write in a race, hundreds of times."""
    race_threads(redis_server, 60, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 110))
def test_threads_for_long(seed: int, redis_server: RedisServer, redis_url: str) -> None:
    """The same, thousands of times."""
    race_threads(redis_server, 800, seed)


async def test_tasks(redis_server: RedisServer, redis_url: str) -> None:
    """Tasks of one loop, stale and fresh, at one counter."""
    accepted: list[int] = []
    async with redis.asyncio.Redis(port=redis_server.port) as client:
        guard: FenceGuard[Awaited] = FenceGuard(client)

        async def run(fences: list[int]) -> None:
            for fence in fences:
                who: dict[str, Any] = {"resource": RESOURCE, "owner": f"host:{fence}:secret.1"}
                try:
                    count = int(await guard.get("count", fence, **who) or 0)
                    await guard.set("count", count + 1, fence, **who)
                except StaleOwner:
                    continue
                accepted.append(fence)

        await asyncio.gather(*map(run, lanes(60, 6, 9)))
        assert int(await client.get("count") or 0) == len(accepted)
    assert 0 < len(accepted) < 360


WORKER = """
import json, sys
import redis
from tests.support.guards.redis_race import add_one
from leasehold.guards.redis import FenceGuard

guard = FenceGuard(redis.Redis(port=int(sys.argv[1])))
print(json.dumps([fence for fence in json.loads(sys.argv[2]) if add_one(guard, fence, f"host:{fence}:secret.1")]))
"""


def race_processes(server: RedisServer, rounds: int, seed: int) -> None:
    """Four processes, each with a client of its own."""
    work = lanes(rounds, 4, seed)
    command = [sys.executable, "-W", "ignore", "-c", WORKER, str(server.port)]
    workers = [subprocess.Popen([*command, json.dumps(one)], stdout=subprocess.PIPE, text=True) for one in work]
    accepted = [fence for worker in workers for fence in json.loads(worker.communicate(timeout=100)[0])]
    assert [worker.returncode for worker in workers] == [0] * 4
    judge(server.client(), accepted, sum(map(len, work)))


def test_processes(redis_server: RedisServer, redis_url: str) -> None:
    """Four processes present fences in a race: no update is lost."""
    race_processes(redis_server, 100, 4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200, 205))
def test_processes_for_long(seed: int, redis_server: RedisServer, redis_url: str) -> None:
    """The same, thousands of times."""
    race_processes(redis_server, 2000, seed)
