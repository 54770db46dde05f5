"""Fork (trap 32): the child has nothing of its parent's and new sockets of its own; the parent notices nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import leasehold
from tests.support.redis.crew import RedisCrew
from tests.support.redis.stage import Look
from tests.support.servers.redis import RedisServer
from tests.support.waiting import until
from tests.support.workers.scenes import fork_many, holding, judge_child, renewed, still_renews

pytestmark = pytest.mark.slow

SOURCE = Path(leasehold.__file__).parent.parent


@pytest.fixture
def crew(tmp_path: Path, redis_server: RedisServer, redis_url: str) -> Iterator[RedisCrew]:
    """Processes that share an empty server, whose connections can be told from the test's own."""
    crew = RedisCrew(tmp_path, redis_server)
    crew.url += "?client_name=app"
    yield crew
    crew.close()


def connections(look: Look) -> set[int]:
    """The ids of theirs, as the server numbers them."""
    clients: Any = look.client.client_list()
    return {int(one["id"]) for one in clients if one["name"] == "app"}


def settled(crew: RedisCrew) -> set[int]:
    """Those of one process that holds: its own and its watchdog's."""
    until(lambda: len(connections(crew.look)) == 2, "both are there")
    return connections(crew.look)


# ---------------------------------------------------------------- while holding


@pytest.mark.parametrize("leave", ["sys.exit", "os._exit"])
def test_a_forked_child_holds_nothing(crew: RedisCrew, leave: str) -> None:
    """os.fork: it can work at once, and its end disturbs neither the lease nor the connections of its parent."""
    worker, lease = holding(crew)
    before = settled(crew)
    judge_child(worker.ask("fork", other="other", leave=leave))
    until(lambda: len(connections(crew.look)) == 2, "the child's are gone")
    still_renews(crew, worker, lease)
    assert connections(crew.look) == before


def test_a_forked_process_holds_nothing(crew: RedisCrew) -> None:
    """multiprocessing, by fork."""
    worker, lease = holding(crew)
    before = settled(crew)
    judge_child(worker.ask("child", method="fork", other="other"))
    still_renews(crew, worker, lease)
    assert connections(crew.look) == before


def test_fork_while_other_threads_are_busy(crew: RedisCrew) -> None:
    """Forks in the middle of other threads' calls: every child can work, and the parent's connections are the same."""
    worker, lease = holding(crew)
    before = settled(crew)
    fork_many(worker)
    renewed(crew, lease)
    assert worker.ask("state") == {"state": "held", "owned": True}
    assert connections(crew.look) >= before


# ---------------------------------------------------------------- scripts


def script(code: str, url: str) -> list[str]:
    """What a program prints, which must end well and quietly."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, url],
        capture_output=True,
        text=True,
        timeout=50,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    return done.stdout.splitlines()


MIXED = """
import os, sys, threading, time
import leasehold, redis

hold = leasehold.connect(sys.argv[1])
wrong, rounds, begun = [], [], time.monotonic()
children = 0

def work(kind, number, go_on):
    server = redis.Redis.from_url(sys.argv[1])
    while go_on():
        with hold.lock(kind, number, ttl=10) as lease:
            if lease.fence != int(server.get(f"lock:v1:{{{lease.resource}}}:fence")):
                wrong.append(lease.resource)
        rounds.append(number)
    server.close()

work("warm", 0, lambda: not rounds)  # everything that is imported late is there: see the last test

def go_on():  # for a second; on a busy machine until there is something to judge
    spent = time.monotonic() - begun
    return spent < 1 or (spent < 20 and (len(rounds) <= 100 or children <= 5))

threads = [threading.Thread(target=work, args=("parent", n, go_on)) for n in range(4)]
for thread in threads:
    thread.start()
bad = 0
while go_on():
    child = os.fork()
    if child == 0:
        rounds.clear(), wrong.clear()
        code = 1
        try:
            work("child", os.getpid(), lambda: len(rounds) < 5)
            code = 1 if wrong else 0
        finally:
            os._exit(code)
    bad += os.waitpid(child, 0)[1] != 0
    children += 1
for thread in threads:
    thread.join()
assert len(rounds) > 100 and children > 5, (len(rounds), children)
print(len(wrong), bad)
hold.close()
"""


def test_replies_are_not_mixed_up(redis_url: str) -> None:
    """Parent and children work on at the same time: every fence is the one that the server gave for that name."""
    assert script(MIXED, redis_url) == ["0 0"]


WAITING = """
import os, sys, threading, time
import leasehold

hold, other = leasehold.connect(sys.argv[1] + "?client_name=app"), leasehold.connect(sys.argv[1])
first = other.lock("job", ttl=30).acquire()
leasehold._core.policy.beat_every_ms = lambda _: 60_000  # nobody finds a grant by its own beat
got = []
waiter = threading.Thread(target=lambda: got.append(hold.lock("job", ttl=30).acquire(wait=30)))
waiter.start()
while not other._engine.store.execute(leasehold._core.ops.Inspect("job")).queue:
    time.sleep(0.01)
time.sleep(0.1)
child = os.fork()
if child == 0:
    mine = hold.lock("child", ttl=30).acquire(wait=30)
    print("child", mine is not None and mine.release(), first.state, hold.lock("job").try_acquire(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
assert first.release()
waiter.join()
print("parent", got[0].state, got[0].fence > first.fence)
hold.close(), other.close()
"""


def test_fork_while_waiting(redis_url: str) -> None:
    """A thread of the parent waits in the queue: it keeps its place and its push; the child does not wait."""
    assert script(WAITING, redis_url) == ["child True lost None", "parent held True"]


TASKS = """
import asyncio, os, sys, time
import leasehold, leasehold.aio

async def main():
    hold = leasehold.aio.connect(sys.argv[1])
    lease = await hold.lock("held", ttl=3).acquire()
    first_end = lease.deadline
    other = leasehold.connect(sys.argv[1])
    first = other.lock("job", ttl=30).acquire()
    leasehold._core.policy.beat_every_ms = lambda _: 60_000  # nobody finds a grant by its own beat
    waiter = asyncio.create_task(hold.lock("job", ttl=30).acquire(wait=30))
    while not other._engine.store.execute(leasehold._core.ops.Inspect("job")).queue:
        await asyncio.sleep(0.01)
    child = os.fork()
    if child == 0:
        async def work():
            mine = await hold.lock("child", ttl=30).acquire(wait=30)
            return await mine.release(), await hold.lock("held").try_acquire()
        print("child", lease.state, *asyncio.run(work()), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    assert first.release()
    got = await waiter
    print("parent", got.state, got.fence > first.fence)
    while lease.deadline == first_end and lease.state != "lost":
        await asyncio.sleep(0.01)
    print("still", lease.state, await lease.release())
    await got.release()
    await hold.close()
    other.close()

asyncio.run(main())
"""


def test_fork_inside_a_loop(redis_url: str) -> None:
    """Tasks of the parent hold and wait: both go on. The child works on a loop of its own, with new sockets."""
    assert script(TASKS, redis_url) == ["child lost True None", "parent held True", "still held True"]


BODY = """
import os, sys, leasehold

hold = leasehold.connect(sys.argv[1])
try:
    with hold.lock("job", ttl=30) as lease:
        child = os.fork()
except leasehold.LeaseLost as error:
    os.write(1, f"child {error.reason}\\n".encode())
    os._exit(0)
os.waitpid(child, 0)
print("parent", lease.state, hold.lock("job").locked())
hold.close()
"""


def test_a_child_that_leaves_the_body(redis_url: str) -> None:
    """A child that runs out of its parent's ``with`` gets LeaseLost (forked) and releases nothing."""
    assert sorted(script(BODY, redis_url)) == ["child forked", "parent released False"]


IMPORTS = """
import sys, leasehold

hold = leasehold.connect(sys.argv[1])
before = set(sys.modules)
with hold.lock("job"):
    pass
print(*sorted(set(sys.modules) - before))
hold.close()
"""


def test_the_first_connect_imports_nothing(redis_url: str) -> None:
    """A child that is forked while another thread imports something waits for that for ever when it needs it too."""
    assert script(IMPORTS, redis_url) == [""]
