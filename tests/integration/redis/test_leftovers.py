"""Nothing is left behind: no key, place in a queue, socket, task or thread; and every key has an end."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import LeaseholdError
from leasehold._core.ops import Adopt, Claim, Evict, Granted, Renew, Resize, Watch, Withdraw
from leasehold.stores.redis import RedisStore
from leasehold.stores.redis.protocol import KEYS
from tests.support.redis.stage import Look, now
from tests.support.servers.redis import RedisServer
from tests.support.waiting import PATIENCE, until, until_async

pytestmark = pytest.mark.slow

# The kinds of keys that there are, and those of them that have no end.
CENSUS = """
local kinds, endless = {}, {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    kinds[string.match(key, '[^:]*$')] = true
    if redis.call('PTTL', key) == -1 then
        endless[#endless + 1] = key
    end
end
local names = {}
for name in pairs(kinds) do
    names[#names + 1] = name
end
return {names, endless}
"""


@pytest.fixture
def look(redis_server: RedisServer, redis_url: str) -> Look:
    """The server's own view, connected."""
    look = Look(redis_server)
    look.client.ping()
    return look


def named(url: str) -> str:
    """Connections that can be told from the test's own."""
    return f"{url}?client_name=app"


def connections(look: Look) -> int:
    """How many of them the server has."""
    clients: Any = look.client.client_list()
    return sum(one["name"] == "app" for one in clients)


OTHERS = tuple(f"leasehold-{one}" for one in ("borrowed", "cron", "jobs", "rebuild", "results", "worker"))


def descriptors() -> int:
    """Open files and sockets of this process, when what nobody refers to is gone."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def ours() -> list[str]:
    """Threads of this process that are Leasehold's. Not those of borrowed clients and of patterns, which are not used
    here and which other tests of this process may have left to the collector."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("leasehold") and not name.startswith(OTHERS)]


# ---------------------------------------------------------------- cancelled and timed out


async def test_a_thousand_cancelled_acquires(redis_url: str, look: Look) -> None:
    """At random moments, of locks that are held and of locks that are free: all that stays is tombstones and fences."""
    before, tasks = descriptors(), asyncio.all_tasks()
    async with leasehold.aio.connect(named(redis_url)) as hold, hold.lock("held", ttl=30) as holder:
        assert 0 < await cancelled(hold, 10, random.Random(1)) < 500, "too few were hit in the middle"
        await until_async(lambda: look.queue("held") == [], "nobody waits")
        await until_async(lambda: look.leftovers() == kept("held"), "only the holder's keys are left")
        assert look.holder("held") == holder.owner and connections(look) <= 2
        assert asyncio.all_tasks() == tasks
    await until_async(lambda: connections(look) == 0, "no connection is left")
    assert look.leftovers() == [] and ours() == []
    del hold, holder
    await until_async(lambda: descriptors() <= before, "no descriptor is left")


async def cancelled(hold: leasehold.AsyncLeasehold, rounds: int, chance: random.Random) -> int:
    """A hundred acquires at a time, cancelled in any order; how many were granted before."""
    granted = 0
    for _ in range(rounds):
        tasks = [
            asyncio.create_task(hold.lock("held" if number % 2 else f"free:{number}", ttl=30).acquire())
            for number in range(100)
        ]
        for task in chance.sample(tasks, len(tasks)):
            await asyncio.sleep(chance.choice([0, 0, 0, 0.0005]))
            task.cancel()
        for lease in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(lease, leasehold.AsyncLease):
                granted += 1
                assert await lease.release() is True
            else:
                assert isinstance(lease, asyncio.CancelledError), lease
    return granted


def kept(resource: str) -> list[str]:
    """The keys of a lease that is held, besides its fence."""
    return [f"lock:v1:{{{resource}}}:owner"]


def test_two_hundred_acquires_that_time_out(redis_url: str, look: Look) -> None:
    """Twenty threads, ten times each: no place in the queue, no thread, no connection more than there are threads."""
    before = descriptors()
    hold = leasehold.connect(named(redis_url))
    with hold, hold.lock("held", ttl=30):
        assert timed_out(hold, 20, 10, random.Random(2)) == [None] * 200
        assert look.queue("held") == [] and look.leftovers() == kept("held") and look.ended("held") == {}
        assert connections(look) <= 22 and ours() == ["leasehold-watchdog"]
    until(lambda: connections(look) == 0, "no connection is left")
    assert look.leftovers() == [] and ours() == []
    del hold
    assert descriptors() <= before


def timed_out(hold: leasehold.Leasehold, count: int, times: int, chance: random.Random) -> list[object]:
    """So many threads that each wait so often, and not for long."""
    results: list[object] = []

    def work(waits: list[float]) -> None:
        results.extend(hold.lock("held", ttl=30).acquire(wait=wait) for wait in waits)

    threads = [
        threading.Thread(target=work, args=[[chance.uniform(0, 0.05) for _ in range(times)]]) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return results


async def test_acquires_that_time_out_in_tasks(redis_url: str, look: Look) -> None:
    """The same for tasks, all on one connection."""
    async with leasehold.aio.connect(named(redis_url)) as hold:
        async with hold.lock("held", ttl=30):
            tried = [hold.lock("held", ttl=30).acquire(wait=number % 10 / 100) for number in range(200)]
            assert await asyncio.gather(*tried) == [None] * 200
            assert look.queue("held") == [] and look.leftovers() == kept("held") and look.ended("held") == {}
            assert connections(look) <= 2
        assert look.leftovers() == []


def come_and_go(url: str, close: bool) -> None:
    """Somebody connects, uses a lock, and leaves."""
    hold = leasehold.connect(named(url))
    lease = hold.lock("job", ttl=30).acquire(wait=0)
    assert lease is not None and lease.release()
    if close:
        hold.close()


def test_coordinators_that_come_and_go(redis_url: str, look: Look) -> None:
    """Opened, used and closed again and again: nothing piles up."""
    before = descriptors()
    for _ in range(20):
        come_and_go(redis_url, close=True)
    until(lambda: connections(look) == 0 and ours() == [], "neither connection nor thread is left")
    assert look.leftovers() == [] and descriptors() <= before


def test_coordinators_that_are_dropped(redis_url: str, look: Look) -> None:
    """Without close(): threads end and connections are closed, and nobody is warned of a socket that is not his."""
    before = descriptors()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            come_and_go(redis_url, close=False)
        until(lambda: descriptors() <= before and ours() == [], "neither connection nor thread is left")
    assert [str(one.message) for one in caught] == []


# ---------------------------------------------------------------- every key has an end


def test_every_key_has_an_end(redis_url: str, look: Look) -> None:
    """Most of a second of everything that there is, while somebody looks at every key again and again; longer, where
    that is not enough to see all of them."""
    census = look.client.register_script(CENSUS)
    begun, errors = now(), list[BaseException]()
    over = threading.Event()
    threads = [
        threading.Thread(target=busy, args=[redis_url, number, lambda: not over.is_set(), errors])
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    seen: set[str] = set()
    wanted = {*KEYS, "notes"}
    looks = 0
    while now() < begun + 0.8 or (now() < begun + PATIENCE and (seen < wanted or looks <= 50)):
        kinds, endless = census()
        assert endless == []
        seen.update(kinds)
        looks += 1
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert seen == wanted and looks > 50
    assert census()[1] == []


def busy(url: str, number: int, go_on: Callable[[], bool], errors: list[BaseException]) -> None:
    """Somebody who does a bit of everything."""
    chance, store = random.Random(number), RedisStore(url)
    try:
        with leasehold.connect(url) as hold:
            while go_on():
                at_least = chance.choice([None, None, 0.05])
                lock = hold.lock("job", chance.randrange(3), ttl=chance.choice([0.05, 5]), at_least=at_least)
                lease = lock.acquire(wait=chance.choice([0, 0.01, 0.1]))
                if lease is not None:
                    use(lease, store, chance)
                share(store, chance)
    except BaseException as error:
        errors.append(error)
    finally:
        store.close()


def share(store: RedisStore, chance: random.Random) -> None:
    """Come in beside others, stay for longer than they, turn from a writer into a reader, watch, resize."""
    name, owner = f"shared:{chance.randrange(3)}", f"host:1:{os.urandom(4).hex()}"
    rule, ttl_ms = chance.choice(["read", "read", "write", "semaphore"]), chance.choice([50, 500, 5_000])
    claim = Claim(name, owner, ttl_ms, rule=rule, limit=3, delay_ms=chance.choice([0, 0, 20]))
    if chance.random() < 0.1:
        store.execute(Watch(name, owner))
        store.execute(Resize(name, 2))
    (reply,) = store.execute_many([claim])
    if isinstance(reply, Granted):
        renewal = Renew(name, owner, reply.fence, ttl_ms * 2)
        how = chance.choice([{"shared": True}, {"closed_ms": 30}, {"exact": True}, {}])
        store.execute_many([renewal, renewal, renewal._replace(**how)])  # type: ignore[arg-type]  # fields of it
    if chance.random() < 0.7:
        store.execute(Withdraw(name, owner))


def use(lease: leasehold.Lease, store: RedisStore, chance: random.Random) -> None:
    """Keep it, lengthen it, lose it, hand it over or give it back."""
    name, owner, fence = lease.resource, lease.owner, lease.fence or 0
    how = chance.randrange(6)
    try:
        if how == 0:
            lease.extend(chance.choice([0.05, 5]))
        elif how == 1:
            store.execute(Evict(name, owner, fence, os.urandom(4).hex(), delay_ms=20, force=True))
        elif how == 2:
            store.execute(Renew(name, owner, fence, 5_000, ticket="ticket"))
            store.execute(Adopt(name, fence, "ticket", f"{owner}x", 100))
        elif how == 3:
            time.sleep(0.06)
        lease.release()
    except LeaseholdError:
        return
