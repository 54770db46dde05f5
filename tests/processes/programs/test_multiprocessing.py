"""multiprocessing and executors, by fork, forkserver and spawn: what travels, what does not, and how children end."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import leasehold
from tests.support.programs import play

METHODS = ["fork", "forkserver", "spawn"]


# ---------------------------------------------------------------- what does not travel


@pytest.mark.parametrize(
    ("thing", "lesson"),
    [("hold", "call connect()"), ("lock", "send its kind and ids"), ("lease", "lease.transfer()")],
)
@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_stays_in_its_process(thing: str, lesson: str, send: Any) -> None:
    """A coordinator, a lock and a lease cannot be pickled or copied, and say what to do in place of that."""
    with leasehold.connect("memory://stays") as hold, hold.lock("job", 42) as lease:
        things = {"hold": hold, "lock": hold.lock("job", 42), "lease": lease}
        with pytest.raises(TypeError, match="stays in its process") as refused:
            send(things[thing])
        assert lesson in str(refused.value)
        assert lease.owner not in str(refused.value)


async def test_what_stays_in_its_process_in_asyncio() -> None:
    """The same for what is awaited."""
    async with leasehold.aio.connect("memory://stays") as hold, hold.lock("job") as lease:
        for thing in (hold, hold.lock("job"), lease):
            with pytest.raises(TypeError, match="stays in its process"):
                pickle.dumps(thing)


SENT = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import leasehold

def use(hold, lock, lease):
    assert lease.state == "lost" and not lock.owned()
    with hold.lock("mine"):
        assert lock.try_acquire() is None
    raise SystemExit(4)

def idle(thing):
    return None

if __name__ == "__main__":
    url, method = sys.argv[1:]
    context = multiprocessing.get_context(method)
    hold = leasehold.connect(url)
    lock = hold.lock("job", ttl=30)
    with lock as lease:
        try:
            process = context.Process(target=use, args=(hold, lock, lease))
            process.start()
            process.join()
            print(process.exitcode)
        except TypeError as error:
            print(error)
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            try:
                pool.submit(idle, lease).result(50)
            except TypeError as error:
                print(error)
        lease.check()
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_objects_as_arguments(method: str, sqlite_url: str, tmp_path: Path) -> None:
    """By fork a child gets them as they are, and holds nothing; else, and in a pool, the error teaches."""
    first, second = play(SENT, tmp_path, sqlite_url, method)
    assert first == "4" if method == "fork" else "a coordinator stays in its process" in first
    assert "a lease stays in its process" in second


# ---------------------------------------------------------------- what does

POOL = """
import logging, multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
import leasehold

def begin(url):
    global hold
    hold = leasehold.connect(url)
    logging.getLogger("leasehold").setLevel(logging.ERROR)  # it will lose one, and say so

def count(path):
    with hold.lock("counter", ttl=30) as lease, open(path, "r+") as file:
        number = int(file.read())
        time.sleep(0.002)
        file.seek(0)
        file.write(str(number + 1))
    return lease.fence

def refused(_):
    with hold.lock("taken", 7, wait=0):
        return "it is taken"

def lost(_):
    with hold.lock("short", ttl=0.1, renew=False) as lease:
        lease.lost.wait(50)

if __name__ == "__main__":
    url, method, path = sys.argv[1:]
    context = multiprocessing.get_context(method)
    hold = leasehold.connect(url)
    taken = hold.lock("taken", 7, ttl=60).acquire()
    with context.Pool(2, begin, (url,)) as pool:
        fences = pool.map(count, [path] * 20, chunksize=1)
        try:
            pool.map(refused, [0])
        except leasehold.NotAcquired as error:
            print(error.resource, error.holder == taken.owner.rpartition(":")[0], 0 < error.retry_in <= 60, error.fence)
        pool.close()
        pool.join()
    with ProcessPoolExecutor(2, context, begin, (url,)) as pool:
        fences += pool.map(count, [path] * 20)
        error = pool.submit(lost, 0).exception(50)
        print(type(error).__name__, error.reason, error.resource, error.fence > 0)
    print(len(set(fences)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools(method: str, sqlite_url: str, tmp_path: Path) -> None:
    """Each worker connects in its initializer; exclusion holds among them, and errors arrive with what they carry."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    assert play(POOL, tmp_path, sqlite_url, method, counter) == [
        "taken:7 True True None",
        "LeaseLost expired short True",
        "40",
    ]
    assert counter.read_text() == "40"


# ---------------------------------------------------------------- how children end

ENDS = """
import asyncio, multiprocessing, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import leasehold

kept = []

def keeps(url):
    kept.append(leasehold.connect(url).lock("kept", ttl=600).acquire())

def keeps_in_a_pool(url):
    hold = leasehold.connect(url)
    pool = ThreadPoolExecutor(2)  # its threads wait for work until the very end
    kept.extend([pool, pool.submit(hold.lock("kept", ttl=600).acquire).result()])

def works_on(url):
    hold = leasehold.connect(url)
    kept.append(hold.lock("kept", ttl=600).acquire())
    begun = threading.Event()
    def work():
        with hold.lock("work", ttl=600) as lease:
            begun.set()
            time.sleep(0.5)
            lease.check()
            kept[0].check()
        with hold.lock("more", ttl=600):
            print("worked", flush=True)
    threading.Thread(target=work).start()
    begun.wait()

def awaits(url):
    async def main():
        kept.append(await leasehold.aio.connect(url).lock("kept", ttl=600).acquire())
    asyncio.run(main())

def waits(url):
    hold = leasehold.connect(url)
    threading.Thread(target=hold.lock("taken", ttl=600).acquire, daemon=True).start()
    keeps(url)

if __name__ == "__main__":
    url, method = sys.argv[1:]
    context = multiprocessing.get_context(method)
    hold = leasehold.connect(url)
    taken = hold.lock("taken", ttl=600).acquire()
    for function in (keeps, keeps_in_a_pool, works_on, awaits, waits):
        process = context.Process(target=function, args=(url,))
        process.start()
        process.join(50)
        left = [name for name in ("kept", "work", "more") if hold.lock(name).locked()]
        print(function.__name__, process.exitcode, left)
    assert taken.release()
    with hold.lock("taken", ttl=600, wait=20):
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "shared_url"),
    [("fork", "sqlite"), ("fork", "redis"), ("forkserver", "sqlite"), ("spawn", "sqlite")],
    indirect=["shared_url"],
)
def test_the_end_of_a_child_gives_back(method: str, shared_url: str, tmp_path: Path) -> None:
    """Also where multiprocessing ends it with os._exit; not before the threads that it waits for are done."""
    assert play(ENDS, tmp_path, shared_url, method) == [
        "keeps 0 []",
        "keeps_in_a_pool 0 []",
        "worked",
        "works_on 0 []",
        "awaits 0 []",
        "waits 0 []",
    ]
