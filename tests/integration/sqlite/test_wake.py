"""Wake-ups between processes: datagrams, mailboxes, and who is recognised as gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasehold._core import ops
from leasehold._core.ports import Connection
from leasehold.stores.sqlite import SQLiteStore
from leasehold.stores.sqlite import sockets as wake
from tests.support.sqlite import ROOM, TTL, bind, claim, look, next_line, release, start, take

SOON = 30.0  # seconds
PUSH = ops.Push("box", "granted", ROOM, "b", 7, 1, 100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database will be."""
    return tmp_path / "leases.db"


@pytest.fixture
def make(path: Path) -> Iterator[Callable[[], SQLiteStore]]:
    """Stores of the same file: as many processes, without the processes."""
    made: list[SQLiteStore] = []

    def one() -> SQLiteStore:
        made.append(SQLiteStore(str(path)))
        return made[-1]

    yield one
    for store in made:
        store.close()


def sockets(path: Path) -> list[str]:
    """The names in the folder of sockets."""
    folder = Path(f"{path}.wake")
    return [one.name for one in folder.iterdir()] if folder.exists() else []


def wait_at(store: SQLiteStore, owner: str) -> Connection:
    """Stand in the queue with a mailbox."""
    connection = store.connection()
    assert isinstance(claim(store, owner, address=connection.address), ops.Queued)
    return connection


# ---------------------------------------------------------------- pushes


def test_the_uncontended_path_makes_no_socket(make: Callable[[], SQLiteStore], path: Path) -> None:
    """A mailbox is bound only when its claim has to wait."""
    store = make()
    connection = store.connection()
    grant = take(store, "a", address=connection.address)
    assert not Path(f"{path}.wake").exists()
    assert isinstance(claim(store, "b", address=connection.address), ops.Queued)
    assert sockets(path) == [connection.address]
    assert release(store, "a", grant.fence) == ops.Released()


@pytest.mark.parametrize("same", [True, False])
def test_a_release_wakes_the_next(make: Callable[[], SQLiteStore], same: bool) -> None:
    """The push names resource, owner, fence and beat, whoever shares the store."""
    first = make()
    second = first if same else make()
    grant = take(first, "a")
    connection = wait_at(second, "b")
    assert release(first, "a", grant.fence) == ops.Released()
    push = connection.next_push(SOON)
    assert push is not None
    assert (push.address, push.event, push.resource, push.owner, push.beat) == (
        connection.address,
        "granted",
        ROOM,
        "b",
        1,
    )
    assert push.fence > grant.fence
    assert push.remaining_ms == TTL
    assert take(second, "b").fence == push.fence


def test_a_waiting_process_is_woken(make: Callable[[], SQLiteStore], path: Path) -> None:
    """The push arrives at once, long before a beat of its own would find out."""
    store = make()
    grant = take(store, "a")
    code = """
box = store.connection()
print(type(claim("b", address=box.address)).__name__, flush=True)
push = box.next_push(30)
print(push.owner, push.fence, time.monotonic(), flush=True)
"""
    with start(code, path) as process:
        assert next_line(process) == "Queued"
        time.sleep(0.2)
        released = time.monotonic()
        release(store, "a", grant.fence)
        owner, fence, woken = next_line(process).split()
    assert owner == "b"
    assert int(fence) > grant.fence
    assert float(woken) - released < 20  # nobody beats here: a push that is lost costs thirty seconds
    assert len(look(store).holders) == 1


def test_a_killed_waiter_is_passed_over_at_handoff(make: Callable[[], SQLiteStore], path: Path) -> None:
    """Its socket refuses: the next in line is granted in the same step, and nobody waits for the dead (I14)."""
    store = make()
    grant = take(store, "a")
    code = """
box = store.connection()
print(type(claim("dead", address=box.address)).__name__, flush=True)
time.sleep(60)
"""
    with start(code, path) as process:
        assert next_line(process) == "Queued"
        connection = wait_at(store, "b")
        os.kill(process.pid, signal.SIGKILL)
    release(store, "a", grant.fence)
    push = connection.next_push(SOON)
    assert push is not None
    assert push.owner == "b"
    assert [one.owner for one in look(store).holders] == ["b"]


def test_a_stopped_waiter_is_not_taken_for_dead(make: Callable[[], SQLiteStore], path: Path) -> None:
    """SIGSTOP keeps the socket: the ledger's patience decides, not the socket."""
    store = make()
    grant = take(store, "a")
    code = 'box = store.connection(); print(claim("b", address=box.address), flush=True); input()'
    with start(code, path) as process:
        next_line(process)
        os.kill(process.pid, signal.SIGSTOP)
        release(store, "a", grant.fence)
        assert [one.owner for one in look(store).holders] == ["b"]
        os.kill(process.pid, signal.SIGCONT)


def test_a_closed_mailbox_is_gone(make: Callable[[], SQLiteStore], path: Path) -> None:
    """Its waiter is passed over, also by its own store, and its name is free."""
    store = make()
    grant = take(store, "a")
    connection = wait_at(store, "b")
    connection.close()
    connection.close()
    assert sockets(path) == []
    release(store, "a", grant.fence)
    assert look(store).holders == ()


def test_a_path_longer_than_a_socket_may_have(tmp_path: Path) -> None:
    """Names are reached through the folder's descriptor: 108 bytes are enough for everybody."""
    folder = tmp_path
    while len(str(folder)) < 400:
        folder /= "a-rather-long-name-of-a-folder"
    folder.mkdir(parents=True)
    store = SQLiteStore(str(folder / "leases.db"))
    other = SQLiteStore(str(folder / "leases.db"))
    grant = take(other, "a")
    connection = wait_at(store, "b")
    release(other, "a", grant.fence)
    push = connection.next_push(SOON)
    assert push is not None
    assert push.owner == "b"
    store.close()
    other.close()


def test_where_no_socket_can_be_bound_waiters_ask(make: Callable[[], SQLiteStore], path: Path) -> None:
    """The claim is kept without an address: it keeps its place and takes the free resource with its own beat."""
    store = make()
    grant = take(store, "a")
    Path(f"{path}.wake").touch()
    connection = store.connection()
    assert isinstance(claim(store, "b", address=connection.address), ops.Queued)
    assert look(store).queue[0].address == ""
    assert connection.address != "", "the next claim tries again"
    release(store, "a", grant.fence)
    assert connection.next_push(0.01) is None
    assert look(store).holders == ()
    reply = store.execute(ops.Beat(ROOM, "b", 2))
    assert isinstance(reply, ops.Granted)


def test_without_descriptors_waiters_ask(make: Callable[[], SQLiteStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """EMFILE while binding changes nothing but the speed; while asking who is alive, nobody is declared dead."""
    store, other = make(), make()
    grant = take(store, "a")
    connection = wait_at(other, "b")

    def none_left(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(wake, "datagram_socket", none_left)
    assert isinstance(claim(store, "c", address=store.connection().address), ops.Queued)
    assert [waiter.address for waiter in look(store).queue] == [connection.address, ""]
    release(store, "a", grant.fence)
    assert [one.owner for one in look(store).holders] == ["b"]
    assert connection.next_push(0) is None
    assert isinstance(other.execute(ops.Beat(ROOM, "b", 2)), ops.Granted)


@pytest.mark.parametrize("again", [True, False])
def test_the_folder_of_sockets_is_removed(make: Callable[[], SQLiteStore], path: Path, again: bool) -> None:
    """Somebody tidied up: whoever waits from now on is reachable again, through the new folder."""
    store, other = make(), make()
    grant = take(store, "a")
    connection = wait_at(other, "b")
    (Path(f"{path}.wake") / connection.address).unlink()
    Path(f"{path}.wake").rmdir()
    if again:
        assert isinstance(claim(other, "b", address=connection.address), ops.Queued)
    else:
        other.execute(ops.Withdraw(ROOM, "b"))
        assert isinstance(claim(other, "b", address=connection.address), ops.Queued)
    release(store, "a", grant.fence)
    push = connection.next_push(SOON)
    assert push is not None
    assert push.owner == "b"


def test_a_full_mailbox_loses_hints_only(make: Callable[[], SQLiteStore]) -> None:
    """Nobody blocks because somebody else does not read."""
    store = make()
    take(store, "a")
    connection = wait_at(store, "b")
    for _ in range(2000):
        store._folder.send(PUSH._replace(address=connection.address))
    assert connection.next_push(0) is not None


def test_noise_is_ignored(make: Callable[[], SQLiteStore], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Datagrams that are no pushes are dropped; the one behind them is found."""
    store = make()
    take(store, "a")
    connection = wait_at(store, "b")
    noise: list[object] = [None, 1, [], {}, list(PUSH)[:-1], [*PUSH, 1], [*PUSH[:-1], "x"], [*PUSH[:-1], True]]
    monkeypatch.chdir(f"{path}.wake")  # a name of 108 bytes may be too short for the whole path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for data in [b"", b"\xff", b"[" * 9000, *[json.dumps(one).encode() for one in noise]][:9]:
            sender.sendto(data, connection.address)
    assert connection.next_push(0.01) is None
    for data in [json.dumps(one).encode() for one in noise]:
        assert wake.decode(data) is None
    store._folder.send(PUSH._replace(address=connection.address))
    assert connection.next_push(SOON) == PUSH._replace(address=connection.address)


def test_what_killed_processes_left_is_swept(make: Callable[[], SQLiteStore], path: Path) -> None:
    """At open: sockets that refuse and are older than a minute. Living and young ones stay."""
    living = make()
    take(living, "a")
    connection = wait_at(living, "b")
    folder = Path(f"{path}.wake")
    old, young = wake.new_name(), wake.new_name()
    for name in (old, young):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
            bind(dead, folder / name)
    for name in (old, connection.address):
        os.utime(folder / name, (0, 0))
    look(make())
    assert sorted(sockets(path)) == sorted([connection.address, young])


# ---------------------------------------------------------------- threads


def test_a_mailbox_that_is_not_bound_waits_and_says_nothing(make: Callable[[], SQLiteStore]) -> None:
    """take() is bounded whatever happens."""
    connection = make().connection()
    began = time.monotonic()
    assert connection.next_push(0.05) is None
    assert time.monotonic() - began > 0.04
    assert connection.next_push(0) is None


@pytest.mark.slow
def test_closing_wakes_whoever_takes(make: Callable[[], SQLiteStore]) -> None:
    """A thread in take() survives that its store is closed, and still returns in time."""
    store = make()
    take(store, "a")
    connection = wait_at(store, "b")
    taken: list[object] = []
    thread = threading.Thread(target=lambda: taken.append(connection.next_push(0.3)))
    thread.start()
    time.sleep(0.05)
    store.close()
    thread.join(SOON)
    assert taken == [None]


def test_addresses_are_unique_and_short(make: Callable[[], SQLiteStore]) -> None:
    """Drawn at random: two processes never meet."""
    store = make()
    addresses = {store.connection().address for _ in range(100)}
    assert len(addresses) == 100
    assert {len(one) for one in addresses} == {16}


# ---------------------------------------------------------------- asyncio


@pytest.mark.parametrize("when", ["before", "after", "in another thread"])
async def test_pushes_reach_the_loop(make: Callable[[], SQLiteStore], when: str) -> None:
    """attach() works whether the mailbox is bound already, later, or by a worker thread."""
    store, other = make(), make()
    grant = take(other, "a")
    connection = store.connection()
    arrived: asyncio.Queue[ops.Push] = asyncio.Queue()
    if when == "before":
        connection.attach(arrived.put_nowait)
        claim(store, "b", address=connection.address)
    elif when == "after":
        claim(store, "b", address=connection.address)
        connection.attach(arrived.put_nowait)
    else:
        connection.attach(arrived.put_nowait)
        await asyncio.to_thread(claim, store, "b", address=connection.address)
    release(other, "a", grant.fence)
    push = await asyncio.wait_for(arrived.get(), SOON)
    assert push.owner == "b"
    connection.close()


async def test_the_loop_follows_a_mailbox_that_is_bound_anew(make: Callable[[], SQLiteStore], path: Path) -> None:
    """After the folder was removed the loop watches the new socket, and the old one is closed."""
    store = make()
    take(store, "a")
    arrived: asyncio.Queue[ops.Push] = asyncio.Queue()
    connection = store.listen(arrived.put_nowait)
    claim(store, "b", address=connection.address)
    (Path(f"{path}.wake") / connection.address).unlink()
    claim(store, "c", address=connection.address)
    await asyncio.sleep(0)
    store._folder.send(PUSH._replace(address=connection.address))
    assert (await asyncio.wait_for(arrived.get(), SOON)).owner == "b"
    connection.close()
    await asyncio.sleep(0)


def test_a_mailbox_outlives_its_loop(make: Callable[[], SQLiteStore], path: Path) -> None:
    """The store is closed after the loop was: nothing is left, nothing is raised."""
    store = make()
    take(store, "a")

    async def wait() -> None:
        connection = store.listen(lambda push: None)
        claim(store, "b", address=connection.address)

    asyncio.run(wait())
    store.close()
    assert sockets(path) == []


async def test_another_thread_closes_the_store(make: Callable[[], SQLiteStore], path: Path) -> None:
    """The loop's reader is removed on the loop."""
    store = make()
    take(store, "a")
    connection = store.listen(lambda push: None)
    claim(store, "b", address=connection.address)
    await asyncio.to_thread(store.close)
    await asyncio.sleep(0.01)
    assert sockets(path) == []
