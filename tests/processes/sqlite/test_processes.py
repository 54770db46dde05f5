"""Many processes on one file: exclusion, order, first use, forks."""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from leasehold._core import ops
from leasehold.stores.sqlite import SQLiteStore
from tests.support.sqlite import ROOM, TTL, claim, look, next_line, release, run, start, take, tell

# Takes the lock again and again; the time it holds is written down as [since, until, fence].
ROUNDS = """
print("ready", flush=True)
input()
box = store.connection()
for number in range(int(sys.argv[2])):
    owner = f"{os.getpid()}.{number}"
    beat = 1
    reply = claim(owner, address=box.address)
    while type(reply) is ops.Queued:
        box.next_push(0.3)
        beat += 1
        reply = store.execute(ops.Beat("report:42", owner, beat))
    since = time.monotonic_ns()
    time.sleep(0)
    until = time.monotonic_ns()
    assert store.execute(ops.Release("report:42", owner, reply.fence)) == ops.Released()
    print(since, until, reply.fence, flush=True)
store.close()
"""


def contend(path: Path, processes: int, rounds: int) -> list[tuple[int, int, int]]:
    """Everybody starts at once; the file does not exist yet. What each held, in order of time."""
    started = [start(ROUNDS, path, rounds) for _ in range(processes)]
    assert [next_line(process) for process in started] == ["ready"] * processes
    for process in started:
        tell(process)
    lines = [process.communicate(timeout=50)[0].split("\n") for process in started]
    assert [process.returncode for process in started] == [0] * processes
    spans = [tuple(map(int, line.split())) for one in lines for line in one if line]
    return sorted((since, until, fence) for since, until, fence in spans)


@pytest.mark.parametrize(
    ("processes", "rounds"), [(4, 25), pytest.param(8, 200, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_processes_exclude_one_another(tmp_path: Path, processes: int, rounds: int) -> None:
    """No two hold at a time (I1), fences grow strictly in that order (I2), and nothing is left behind (I16)."""
    path = tmp_path / "leases.db"
    held = contend(path, processes, rounds)
    assert len(held) == processes * rounds
    for before, after in pairwise(held):
        assert before[1] < after[0]
        assert before[2] < after[2]
    store = SQLiteStore(str(path))
    assert (look(store).holders, look(store).queue) == ((), ())
    store.close()
    assert list(tmp_path.glob("*.wake/*")) == []


def test_threads_and_stores_share_a_file(tmp_path: Path) -> None:
    """Eight threads on two store objects: every claim is answered, one winner."""
    stores = [SQLiteStore(str(tmp_path / "leases.db")) for _ in range(2)]
    replies: list[ops.Reply] = []

    def one(number: int) -> None:
        store = stores[number % 2]
        replies.extend([claim(store, f"{number}.{again}", enqueue=False) for again in range(50)])

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 400
    assert sum(isinstance(reply, ops.Granted) for reply in replies) == 1
    for store in stores:
        store.close()


def test_a_process_killed_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    """kill -9 under the write lock: the kernel frees it, and the half turn never was."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    look(store)
    code = """
class Slow(type(store.clock)):
    def instant(self):
        print("inside", flush=True)
        time.sleep(60)
store.clock = Slow()
claim("dead")
"""
    with start(code, path) as process:
        assert next_line(process) == "inside"
        killed = threading.Event()

        def kill() -> None:
            killed.set()
            process.kill()

        threading.Timer(0.1, kill).start()
        take(store, "a")
        assert killed.is_set()
    assert [grant.owner for grant in look(store).holders] == ["a"]
    store.close()


def test_importing_the_store_is_cheap(tmp_path: Path) -> None:
    """What a first lock does not need is not imported."""
    code = """
grant = claim("a")
store.execute(ops.Release("report:42", "a", grant.fence))
print([name for name in ("asyncio", "dataclasses", "logging", "subprocess", "uuid") if name in sys.modules])
"""
    assert run(code, tmp_path / "leases.db") == "[]"


# ---------------------------------------------------------------- fork


FORK = """
import threading
grant = claim("parent", ttl_ms=30_000)
box = store.connection()
assert type(claim("waits", address=box.address)) is ops.Queued
"""


def test_a_forked_child_starts_anew(tmp_path: Path) -> None:
    """It has its own connection and locks, leaves the parent's sockets in place, and may exit as it likes
    (trap 32)."""
    code = (
        FORK
        + """
store.before_fork()
if os.fork() == 0:
    store.forked()
    assert type(claim("child", enqueue=False)) is ops.Busy
    mine = store.connection()
    assert type(claim("child", address=mine.address)) is ops.Queued
    store.close()
    sys.exit(0)
assert os.wait()[1] == 0
store.after_fork()
assert os.path.exists(f"{path}.wake/{box.address}")
store.execute(ops.Release("report:42", "parent", grant.fence))
print(box.next_push(30).owner)
store.close()
"""
    )
    assert run(code, tmp_path / "leases.db") == "waits"


def test_a_child_that_outlives_its_parent_is_not_the_parent(tmp_path: Path) -> None:
    """The child must not keep the parent's socket open: the parent would look alive."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    grant = take(store, "a")
    code = """
box = store.connection()
print(claim("parent", address=box.address), flush=True)
if os.fork() == 0:
    store.forked()
    print("forked", flush=True)
    input()
    os._exit(0)
time.sleep(60)
"""
    with start(code, path) as process:
        next_line(process)
        assert next_line(process) == "forked"
        process.kill()
        process.wait()
        connection = store.connection()
        claim(store, "b", address=connection.address)
        release(store, "a", grant.fence)
        assert [one.owner for one in look(store).holders] == ["b"]
        tell(process)
    store.close()


def test_a_fork_in_the_middle_of_a_turn_of_another_thread(tmp_path: Path) -> None:
    """The child inherits a connection inside a transaction: it is refused, and never finalized, even when its
    interpreter exits, so the parent's transaction is whole."""
    code = """
inside, go_on = __import__("threading").Event(), __import__("threading").Event()
look = ops.Inspect("report:42")
store.execute(look)
real = store.clock
class Slow(type(real)):
    def instant(self):
        inside.set()
        go_on.wait(50)
        return real.instant()
store.clock = Slow()
thread = __import__("threading").Thread(target=claim, args=("parent",))
thread.start()
inside.wait(50)
if os.fork() == 0:
    store.forked()
    store.clock = real
    try:
        store.execute(look._replace(budget_ms=500))
    except LeaseholdError as error:
        assert "forked" in str(error), error
        sys.exit(0)
    sys.exit(1)
assert os.wait()[1] == 0
go_on.set()
thread.join()
store.clock = real
print(store.execute(look).holders[0].owner)
store.close()
"""
    path = tmp_path / "leases.db"
    assert run(code, path) == "parent"
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def descriptors(path: Path) -> list[str]:
    """What this process has open of the database."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.append(str(one.readlink()))
    return sorted(one for one in found if one.startswith(str(path)))


def test_a_child_inherits_no_open_file(tmp_path: Path) -> None:
    """Before a fork the file is closed, and the next op opens it again: nothing of it is shared with a child."""
    path = tmp_path / "leases.db"
    with contextlib.closing(SQLiteStore(str(path))) as store:
        take(store, "a")
        store.before_fork()
        assert descriptors(path) == []
        store.after_fork()
        assert look(store).holders[0].owner == "a"


def test_a_store_that_is_dropped_lets_go_of_its_file(tmp_path: Path) -> None:
    """Without close() the file is closed by the garbage collector."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    take(store, "a")
    assert descriptors(path)
    del store
    gc.collect()
    assert descriptors(path) == []


def test_forking_again_and_again(tmp_path: Path) -> None:
    """Children of children, each with its own turn; the parent's lease is nobody else's."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    grant = take(store, "parent")
    sys.stdout.flush()
    for _ in range(3):
        store.before_fork()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.forked()
                busy = isinstance(claim(store, "child", enqueue=False), ops.Busy)
                store.before_fork()
                grandchild = os.fork()
                if grandchild == 0:
                    store.forked()
                    os._exit(0 if isinstance(claim(store, "grandchild", enqueue=False), ops.Busy) else 1)
                status = 0 if busy and os.waitpid(grandchild, 0)[1] == 0 else 1
            finally:
                os._exit(status)
        store.after_fork()
        assert os.waitpid(child, 0)[1] == 0
    assert store.execute(ops.Renew(ROOM, "parent", grant.fence, TTL)) == ops.Renewed(TTL)
    store.close()
