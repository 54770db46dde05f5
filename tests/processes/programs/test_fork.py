"""os.fork in every situation (trap 32): a child holds nothing of its parent's, takes nothing away, and can work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import play, run

pytestmark = pytest.mark.slow
NOT_REDIS = pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)  # that one: processes/redis

HOLDING = """
import os, sys, time
import leasehold

url = sys.argv[1]
shared = not url.startswith("memory")
hold = leasehold.connect(url)

def child(leave):
    with hold.lock("mine", ttl=30) as mine:
        assert mine.owner.partition(".")[0] != lease.owner.partition(".")[0], "the secret is its own"
        assert f":{os.getpid()}:" in mine.owner
    assert lease.state == "lost" and lease.remaining() == 0 and not lock.owned()
    same = hold.lock("job").try_acquire()
    assert (same is None) == shared, "memory is each process's own"
    kept = hold.lock("kept", leave, ttl=600).acquire(wait=30)
    if leave == "os._exit":
        os._exit(3)
    if leave == "exec":
        os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(3)"])
    if leave == "sys.exit":
        sys.exit(3)
    raise ValueError("what the child raised")

codes = {}
with (lock := hold.lock("job", ttl=1.5)) as lease:
    first = lease.deadline
    for leave in ("os._exit", "exec", "sys.exit", "raise"):
        pid = os.fork()
        if pid == 0:
            child(leave)
        codes[leave] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    while lease.deadline < first + 1.5 or lease.state == "unsure":  # longer than the ttl
        time.sleep(0.01)
        lease.check()
    print(lease.state, lock.locked(), lock.owned())
for leave, code in codes.items():
    print(leave, code, hold.lock("kept", leave).locked())
assert not lock.locked()
"""


def test_children_that_leave(url: str, tmp_path: Path) -> None:
    """However a child ends inside its parent's body, that lease goes on; the child's own are given back, if it can."""
    done = run(HOLDING, tmp_path, url)
    left = not url.startswith("memory")
    assert done.stdout.splitlines() == [
        "held True True",
        f"os._exit 3 {left}",
        f"exec 3 {left}",
        "sys.exit 3 False",
        "raise 1 False",
    ], done.stderr
    assert done.returncode == 0
    assert done.stderr.count("Traceback") == 1
    assert "what the child raised" in done.stderr and "lost (forked)" in done.stderr


FAMILY = """
import os, sys
import leasehold

url, path = sys.argv[1:]
hold = leasehold.connect(url)

def count():
    for _ in range(15):
        with hold.lock("counter", ttl=30) as lease, open(path, "r+") as file:
            number = int(file.read())
            file.seek(0)
            file.write(str(number + 1))
    os.write(1, (lease.owner.partition(".")[0] + "\\n").encode())

children = []
for generation in range(2):
    child = os.fork()
    if child:
        children.append(child)
        break
count()
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_three_generations(shared_url: str, tmp_path: Path) -> None:
    """A coordinator that was made before the forks and is first used after them, in all three at once."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    owners = play(FAMILY, tmp_path, shared_url, counter)
    assert counter.read_text() == "45"
    assert len(set(owners)) == 3


BUSY = """
import os, sys, threading, time
import leasehold

hold, other = leasehold.connect(sys.argv[1]), leasehold.connect(sys.argv[1])
first = other.lock("job", ttl=30).acquire()
got, rounds, end = [], [], threading.Event()

def waits():
    got.append(hold.lock("job", ttl=30).acquire(wait=30))

def works(number):
    while not end.is_set():
        with hold.lock("busy", number, ttl=30):
            rounds.append(number)

def renews():
    lease = hold.lock("renewed", ttl=20).acquire()
    while not end.wait(0.01):
        lease.extend(20)
        lease.check()
    lease.release()

waits, renews = threading.Thread(target=waits), threading.Thread(target=renews)
works = [threading.Thread(target=works, args=(number,)) for number in range(2)]
for thread in (waits, renews, *works):
    thread.start()
while len(rounds) < 4 or not other._engine.store.execute(leasehold._core.ops.Inspect("job")).queue:
    time.sleep(0.01)
bad = 0
for number in range(12):
    time.sleep(0.003 * number)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(3):
                with hold.lock("child", os.getpid(), ttl=30, wait=30) as lease:
                    lease.extend(20)
            code = 0 if first.state == "lost" else 2
        finally:
            os._exit(code)
    bad += os.waitpid(child, 0)[1] != 0
before = len(rounds)
while len(rounds) < before + 4:  # they go on
    time.sleep(0.01)
end.set()
assert first.release()
for thread in (waits, renews, *works):
    thread.join(30)
print(bad, got[0].state, got[0].fence > first.fence, threading.active_count() <= 3)
hold.close(), other.close()
"""


def test_fork_while_other_threads_are_at_it(url: str, tmp_path: Path) -> None:
    """Threads wait, acquire, release and renew while another forks: every child can work, and they all go on."""
    assert play(BUSY, tmp_path, url) == ["0 held True True"]


THREAD = """
import os, sys, threading
import leasehold

hold = leasehold.connect(sys.argv[1])
lock, got = hold.lock("job", ttl=30), []

def forks():
    with lock as lease:
        child = os.fork()
        if child == 0:  # the only thread there is, with the body of its parent around it
            try:
                with hold.rlock("mine", ttl=30), hold.rlock("mine", ttl=30):
                    code = 5 if lock.owned() or not lease.lost.is_set() else 0
            finally:
                os._exit(code)
        got.append(os.waitpid(child, 0)[1])
        lease.check()

thread = threading.Thread(target=forks)
thread.start()
thread.join()
print(got, lock.locked())
hold.close()
"""


def test_fork_in_a_thread(url: str, tmp_path: Path) -> None:
    """A thread that holds forks: in the child it is the main thread, and holds nothing."""
    assert play(THREAD, tmp_path, url) == ["[0] False"]


BODY = """
import os, sys
import leasehold

hold = leasehold.connect(sys.argv[1])
said = []
try:
    with hold.lock("job", ttl=30) as lease:
        lease.on_lost(said.append)
        child = os.fork()
except leasehold.LeaseLost as error:
    with hold.lock("mine"):
        os.write(1, f"child {error.reason} {said}\\n".encode())
    os._exit(0)
os.waitpid(child, 0)
print("parent", lease.state, hold.lock("job").locked(), said)
hold.close()
"""


@NOT_REDIS
def test_a_child_that_leaves_the_body(url: str, tmp_path: Path) -> None:
    """A child that runs out of its parent's ``with`` gets LeaseLost (forked); the parent's callbacks are not its."""
    assert sorted(play(BODY, tmp_path, url)) == ["child forked []", "parent released False []"]


TASKS = """
import asyncio, os, sys
import leasehold

async def main():
    hold = leasehold.aio.connect(sys.argv[1])
    lease = await hold.lock("held", ttl=1.5).acquire()
    end = lease.deadline
    other = leasehold.connect(sys.argv[1])
    first = other.lock("job", ttl=30).acquire()
    waiter = asyncio.create_task(hold.lock("job", ttl=30).acquire(wait=30))
    while not other._engine.store.execute(leasehold._core.ops.Inspect("job")).queue:
        await asyncio.sleep(0.01)
    child = os.fork()
    if child == 0:
        async def work():
            async with hold.lock("mine", ttl=30):
                found = await hold.lock("held").try_acquire()
                return found is None or not await found.release()  # one that is dropped may be warned of
        os.write(1, f"child {lease.state} {asyncio.run(work())}\\n".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert first.release()
    got = await waiter
    while lease.state != "lost" and (lease.deadline < end + 1.5 or lease.state == "unsure"):  # longer than the ttl
        await asyncio.sleep(0.01)
    print("parent", got.state, lease.state, await lease.release())
    await hold.close()
    other.close()

asyncio.run(main())
"""


@NOT_REDIS
def test_fork_inside_a_loop(url: str, tmp_path: Path) -> None:
    """Tasks of the parent hold and wait: both go on. The child works on a loop of its own."""
    shared = not url.startswith("memory")
    assert play(TASKS, tmp_path, url) == [f"child lost {shared}", "parent held held True"]


NO_DESCRIPTORS = """
import os, resource, sys
import leasehold

idle = [leasehold.connect(url) for url in sys.argv[1:] for _ in range(5)]
hold = leasehold.connect("memory://")
with hold.lock("job", ttl=30) as lease:
    most = len(os.listdir("/proc/self/fd")) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass
    leasehold.connect(sys.argv[-1])  # sends nothing, and opens nothing
    pid = os.fork()
    if pid == 0:
        os._exit(0 if lease.state == "lost" and hold.lock("job").try_acquire() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), lease.state)
"""


def test_no_descriptors_left(sqlite_url: str, tmp_path: Path) -> None:
    """Where the process may open nothing more, a child forgets what its parent holds, and one can connect."""
    assert play(NO_DESCRIPTORS, tmp_path, sqlite_url, "redis://localhost:1") == ["0 held"]


BELL = """
import resource
from leasehold._runtime.wakeups import DroppedLeases

class Silent:
    polled, address = True, "nowhere"
    def fileno(self, ready):
        return -1

early = DroppedLeases(Silent())
early.wake()
early.wait(60)  # it rang before there was anything to hear it with
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
late = DroppedLeases(Silent())
resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
late.wait(60)  # nothing can be opened
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
late.wake()
late.wait(60)
print("heard")
"""


def test_a_bell_without_descriptors(tmp_path: Path) -> None:
    """A watchdog looks often where nothing can be opened for it, and hears every ring."""
    assert play(BELL, tmp_path) == ["heard"]


CHURN = """
import os, signal, sys, threading, time
import leasehold

over = threading.Event()

def open_and_close(number):
    while not over.is_set():
        with leasehold.connect(sys.argv[1]) as mine, mine.lock("opened", number, ttl=30):
            pass

with leasehold.connect(sys.argv[1]) as hold, hold.lock("first"):
    pass  # whatever is imported is imported now
threads = [threading.Thread(target=open_and_close, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
codes = []
for _ in range(40):
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # one that hangs inside SQLite hears nothing else
        with leasehold.connect(sys.argv[1]) as hold, hold.lock("child", ttl=30):
            pass
        os._exit(0)
    stalled = time.monotonic() - began >= 4  # a fork gives up on a store that stays busy after 5 s
    codes.append((os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), stalled))
    if codes[-1] != (0, False):
        break
over.set()
for thread in threads:
    thread.join()
print(set(codes))
"""


def test_forks_while_databases_are_opened_and_closed(sqlite_url: str, tmp_path: Path) -> None:
    """A fork neither waits for another thread's opening or closing, nor leaves a child that hangs in SQLite."""
    assert play(CHURN, tmp_path, sqlite_url) == ["{(0, False)}"]


AT_THE_GRANT = """
import os, sys, threading
import leasehold
from leasehold._core.claims import immediate_grant
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease

url, name = sys.argv[1:]
where = {"reply": immediate_grant, "holding": HeldLease.__init__, "registration": Engine.register}[name].__code__
child = -1

def fork(frame, event, _):
    global child
    if event == "call" and frame.f_code is where:
        sys.settrace(None)
        thread = threading.Thread(target=hold_the_lock)  # as the watchdog may at any time
        thread.start()
        held.wait()
        child = os.fork()
        over.set()

def hold_the_lock():
    with hold._engine.watchdog.transitions:
        held.set()
        over.wait()

held, over = threading.Event(), threading.Event()
hold = leasehold.connect(url)
with hold.lock("first"):
    pass
sys.settrace(fork)
try:
    with hold.lock("job", ttl=600) as lease:
        if child == 0:
            os._exit(9)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(code, lease.state, leasehold.connect(url).lock("job").locked())
except leasehold.StoreUnavailable:
    if child == 0:
        hold.close()
        os._exit(3)
    raise
"""


@pytest.mark.parametrize("where", ["reply", "holding", "registration"])
def test_a_signal_handler_that_forks_when_a_lease_is_granted(where: str, sqlite_url: str, tmp_path: Path) -> None:
    """The parent holds it. The child gets an error, and gives nothing back."""
    assert play(AT_THE_GRANT, tmp_path, sqlite_url, where) == ["3 held True"]
