"""The interpreter ends while others are at it: no hang, no noise, and what was held is given back."""

from __future__ import annotations

from pathlib import Path

import pytest

import leasehold
from tests.support.programs import play, run

pytestmark = pytest.mark.slow

THREADS = """
import sys, threading, time
import leasehold

url, what, daemon = sys.argv[1], sys.argv[2], sys.argv[3] == "daemon"
hold, other = leasehold.connect(url), leasehold.connect(url)
busy = other.lock("busy", ttl=60).acquire()
ready, end = threading.Semaphore(0), threading.Event()

def holds():
    with hold.lock("job", ttl=60):
        ready.release()
        end.wait()

def waits():
    ready.release()
    hold.lock("busy", ttl=60).acquire(wait=None if daemon else 0.4)

def loops():
    while not end.is_set():
        with hold.lock("job", ttl=60) as lease:
            lease.check()
        ready.release()

def checks():
    with hold.lock("job", threading.get_ident(), ttl=60) as lease:
        while not end.is_set():
            lease.check()
            ready.release()
            time.sleep(0.0001)

def extends():
    lease = hold.lock("job", threading.get_ident(), ttl=60).acquire()
    while not end.is_set():
        lease.extend(50)
        ready.release()
    lease.release()

count = 1 if what == "holds" else 3
threads = [threading.Thread(target=globals()[what], daemon=daemon) for _ in range(count)]
for thread in threads:
    thread.start()
for _ in range(count * 3 if what in ("loops", "checks", "extends") else count):
    ready.acquire()
time.sleep(0.05)
if not daemon:
    threading.Timer(0.2, end.set).start()  # while the interpreter waits for them
"""


@pytest.mark.parametrize("what", ["holds", "waits", "loops", "checks", "extends"])
def test_daemon_threads_at_the_end(url: str, what: str, tmp_path: Path) -> None:
    """They end wherever they stand, in silence, and what they held or waited for is free."""
    threads_end(url, what, "daemon", tmp_path)


@pytest.mark.parametrize("what", ["holds", "waits", "loops"])
def test_threads_at_the_end(sqlite_url: str, what: str, tmp_path: Path) -> None:
    """Those that are no daemons end first, with what they hold."""
    threads_end(sqlite_url, what, "waited for", tmp_path)


def threads_end(url: str, what: str, kind: str, folder: Path) -> None:
    """A program ends among its threads."""
    assert play(THREADS, folder, url, what, kind) == []
    if not url.startswith("memory"):
        with leasehold.connect(url) as hold:
            assert hold.lock("job", ttl=5).try_acquire() is not None
            assert hold.lock("busy", ttl=5).acquire(wait=30) is not None


JOINED = """
import atexit, sys, threading

def stop():  # registered before Leasehold's: called after it
    end.set()
    thread.join()
    print("joined")

atexit.register(stop)
import leasehold

hold = leasehold.connect(sys.argv[1])
begun, end = threading.Event(), threading.Event()

def loop():
    while not end.is_set():
        try:
            with hold.lock("job", ttl=60):
                begun.set()
        except leasehold.LeaseholdError:
            pass

thread = threading.Thread(target=loop, daemon=True)
thread.start()
begun.wait()
"""


def test_a_daemon_thread_that_is_joined(tmp_path: Path) -> None:
    """Its silence has an end: a program that stops and joins it at exit does not hang."""
    assert play(JOINED, tmp_path, "memory://") == ["joined"]


POOL = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import leasehold

hold = leasehold.connect(sys.argv[1])

def work(number):
    with hold.lock("job", ttl=60) as lease:
        time.sleep(0.02)
        lease.check()
        print(number, flush=True)

pool = ThreadPoolExecutor(3)
kept = pool.submit(hold.lock("kept", ttl=60).acquire).result()
for number in range(6):
    pool.submit(work, number)
"""


def test_an_executor_at_the_end(url: str, tmp_path: Path) -> None:
    """What a pool of threads still has to do is done before anything is closed."""
    assert sorted(play(POOL, tmp_path, url)) == ["0", "1", "2", "3", "4", "5"]
    if not url.startswith("memory"):
        with leasehold.connect(url) as hold:
            assert not hold.lock("kept").locked()


LOOPS = """
import asyncio, sys, threading
import leasehold

url, how = sys.argv[1:]
hold = leasehold.aio.connect(url)

async def main():
    global lease
    lease = await hold.lock("job", ttl=60).acquire()
    asyncio.create_task(hold.lock("job", ttl=60).acquire())
    await asyncio.sleep(0.1)
    begun.set()
    if how == "thread":
        while True:
            async with hold.lock("busy", ttl=60):
                await asyncio.sleep(0)

begun = threading.Event()
if how == "closed":
    asyncio.run(main())
elif how == "open":
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.wait(tasks))
else:
    threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
    begun.wait()
"""


@pytest.mark.parametrize("how", ["closed", "open", "thread"])
def test_loops_at_the_end(shared_url: str, how: str, tmp_path: Path) -> None:
    """A coordinator that nobody closed, and its loop closed, forgotten or still running in a daemon thread."""
    done = run(LOOPS, tmp_path, shared_url, how)
    assert (done.returncode, done.stdout) == (0, "")
    noise = [line for line in done.stderr.splitlines() if "leasehold" in line or "Fatal" in line]
    assert not noise, done.stderr  # asyncio itself warns of a loop that was never closed
    with leasehold.connect(shared_url) as hold:
        assert hold.lock("job", ttl=5).acquire(wait=30) is not None


KEPT = """
import sys, time
import leasehold

hold = leasehold.connect(sys.argv[1])
lease = hold.lock("job", ttl=60).acquire()
wakeup = hold._engine.watchdog.dropped._wakeup
while getattr(wakeup, "_in", 0) < 0:  # until its watchdog waits
    time.sleep(0.001)
leasehold._core.policy.kept = lambda: lease  # keeps everything here until Leasehold's own modules are gone
"""


def test_what_outlives_the_modules_is_silent(url: str, tmp_path: Path) -> None:
    """A lease that is dropped last of all, when modules are gone, complains about nothing."""
    assert play(KEPT, tmp_path, url) == []
