"""Programs that gevent has patched: greenlets wait without blocking others, own by greenlet, renew and fork."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import play

pytestmark = pytest.mark.slow

BEGIN = """
from gevent import monkey
monkey.patch_all()
import os, sys, threading, time
import gevent
import leasehold
import leasehold._core.policy

leasehold._core.policy.beat_every_ms = lambda _: 10_000  # a wait that blocks others blocks them for that long
hold = leasehold.connect(sys.argv[1])
ticks = []

def tick():
    while True:
        ticks.append(time.monotonic())
        gevent.sleep(0.01)

def gap():
    return max(later - sooner for sooner, later in zip(ticks, ticks[1:]))

gevent.spawn(tick)
"""

WAITING = """
inside, most, served = 0, 0, []

def work(number):
    global inside, most
    with hold.lock("job", ttl=5) as lease:
        inside += 1
        most = max(most, inside)
        gevent.sleep(0.02)
        inside -= 1
        served.append(lease.fence)

gevent.joinall([gevent.spawn(work, number) for number in range(10)], timeout=50, raise_error=True)
print(most, len(served), served == sorted(served))

with hold.lock("renewed", ttl=1.5) as lease:
    first = lease.deadline
    while lease.state != "lost" and (lease.deadline < first + 0.9 or lease.state == "unsure"):
        gevent.sleep(0.01)
    print(lease.state, threading.active_count() > 1)

def refused(release):
    try:
        return release()
    except leasehold.NotHeld:
        return "not this greenlet's"

def impatient():
    try:
        with gevent.Timeout(0.1):
            return lock.acquire()
    except gevent.Timeout:
        return "out of time"

lock = hold.lock("job", ttl=60)
again = hold.rlock("again", ttl=60)
with lock, again:
    theirs = gevent.spawn(lambda: (lock.owned(), lock.try_acquire(), again.try_acquire()))
    print(lock.owned(), theirs.get(timeout=30))
    print(gevent.spawn(refused, lock.release).get(timeout=30))

with lock:
    killed = gevent.spawn(lock.acquire)
    gevent.sleep(0.1)
    killed.kill(timeout=30)
    print(gevent.spawn(impatient).get(timeout=30))
lease = lock.acquire(wait=30)
print(lease.release(), ticks[-1] - ticks[0] > 1, gap() < 5)
lost = hold.lock("short", ttl=0.2, renew=False).acquire()
heard = gevent.event.Event()
lost.on_lost(lambda error: heard.set())
print(heard.wait(30), lost.lost.is_set())
hold.close()
"""


def test_greenlets(url: str, tmp_path: Path) -> None:
    """One inside at a time, the others wait and block nobody; who is killed or out of time leaves the queue."""
    quiet = "import logging; logging.getLogger('leasehold').setLevel(logging.ERROR)\n"  # one is lost on purpose
    assert play(BEGIN + "import gevent.event\n" + quiet + WAITING, tmp_path, url) == [
        "1 10 True",
        "held True",
        "True (False, None, None)",
        "not this greenlet's",
        "out of time",
        "True True True",
        "True True",
    ]


FORKED = """
def wait():  # gevent copies it into the child, where it must not go on
    try:
        hold.lock("job", ttl=30).acquire(wait=20)
        os._exit(3 if os.getpid() != parent else 0)
    except leasehold.StoreUnavailable as error:
        assert "forked in the middle" in str(error) and os.getpid() != parent

parent = os.getpid()
with hold.lock("job", ttl=3) as lease:
    lease.lost
    first = lease.deadline
    gevent.spawn(wait)
    while not hold.inspect("job").waiters or not hold.revoke("job"):
        gevent.sleep(0.01)
    while any(thread.name == "leasehold-news" for thread in threading.enumerate()):
        gevent.sleep(0.01)  # gevent copies threads into the child, too, and complains when they end there
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with hold.lock("mine", ttl=3) as mine:
                began = mine.deadline
                gevent.joinall([gevent.spawn(hold.lock("other", n, ttl=5).acquire) for n in range(3)], raise_error=True)
                while mine.deadline == began:
                    gevent.sleep(0.01)
                    mine.check()
            code = 0 if lease.state == "lost" and lease.lost.is_set() else 2
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    while lease.deadline == first:
        gevent.sleep(0.01)
        lease.check()
    print(code, gap() < 5, flush=True)
gevent.sleep(20)  # until the one who waits has got it
"""


def test_fork_under_gevent(shared_url: str, tmp_path: Path) -> None:
    """A child of a patched program works at once and renews; its parent goes on."""
    assert play(BEGIN + FORKED, tmp_path, shared_url) == ["0 True"]


LATE = """
import os, sys, time
import leasehold

hold = leasehold.connect(sys.argv[1])
with hold.lock("master", ttl=1.5) as lease:
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        lease.check()
        print(code)
        sys.exit()
    from gevent import monkey
    monkey.patch_all()
    import gevent
    turns = []

    def work(number):
        with hold.lock("job", ttl=1.5) as lease:
            gevent.sleep(0.3)
            lease.check()
            turns.append(time.monotonic())

    everybody = [gevent.spawn(work, number) for number in range(3)]
    gevent.sleep(0.05)
    soon = not turns  # nobody was kept from waking up while one of them slept and the others waited
    done = gevent.joinall(everybody, timeout=50, raise_error=True)
    os._exit(0 if len(turns) == 3 and soon else 1)
"""


def test_patched_after_the_fork(url: str, tmp_path: Path) -> None:
    """Made by the parent, first used when the child is patched: as the gevent worker of gunicorn does it."""
    assert play(LATE, tmp_path, url) == ["0"]
