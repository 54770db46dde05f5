"""The session: how it ends, what goes with it, and how another begins."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from leasehold.coordinator.stores import open_store
from leasehold.stores.record.requests import Change, Join, Look, Part, Tell
from leasehold.stores.zookeeper import session as session_module
from tests.integration.zookeeper.party import Calls, Party, lose_session
from tests.support.parties import FLAVOURS
from tests.support.servers import process
from tests.support.servers.proxy import Proxy
from tests.support.servers.zookeeper import ZooKeeperServer
from tests.support.waiting import PATIENCE, until

Joining = Callable[..., Party]
TTL = 3.0  # seconds: it is renewed after one


def open_files() -> set[str]:
    """What the descriptors of this process lead to, but for the one that lists them."""
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(one.readlink()))
    return found


def connections_to(port: int) -> int:
    """How many sockets of this process lead there."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(one.name))) as copy:
            found += copy.getpeername()[1:2] == (port,)
    return found


def in_child(work: Callable[[], bool]) -> int:
    """Its process; it ends with 0 if that returns True."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def ended_well(child: int) -> bool:
    """Wait for it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_close_ends_the_session(party: Party, zookeeper_server: ZooKeeperServer) -> None:
    """Its places go with it, and no thread and no socket is left. The next request begins another."""
    party.perform()  # an event loop has sockets of its own
    threads, files = set(threading.enumerate()), open_files()
    mine = party.wait_in("a", "me")
    old = party.session
    assert old in zookeeper_server.sessions()
    party.server.close()
    party.server.close()
    assert old not in zookeeper_server.sessions()
    assert set(threading.enumerate()) <= threads
    assert open_files() <= files
    record = party.look("a")
    assert (record.text, record.places) == ("me waits", ())
    assert party.session != old
    assert party.wait_in("a", "me").key != mine.key


def test_a_session_that_the_server_has_ended(party: Party, join: Joining) -> None:
    """Its places are gone and its watches fire. Grants stay, news come on, and the next place is of a new session."""
    other, heard = join(), Calls()
    party.server.hear("me", heard)
    place = party.wait_in("a", "me")
    gone, seen, record = Calls(), Calls(), party.look("a")
    party.server.watch_record(record, gone)
    other.look("a")
    other.server.watch_place("a", place, seen)
    other.look("a")
    party.lose_session()
    gone.wait()
    seen.wait()
    assert party.look("a") == record._replace(places=())
    assert party.wait_in("a", "me").ours
    until(lambda: other.one(Tell("me", "hello")), "it listens again")
    heard.wait()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_holder_whose_session_the_server_has_ended(zookeeper_url: str, flavour: str) -> None:
    """It keeps its lease, renews it in its next session, and gives it back: a session decides who holds nothing."""
    with ExitStack() as stack:
        mine, theirs = open_store(zookeeper_url), open_store(zookeeper_url)
        one, other = FLAVOURS[flavour](mine), FLAVOURS["sync"](theirs)
        stack.callback(one.close)
        stack.callback(other.close)
        lease = one.do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=0))
        assert not other.do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=0))
        waits = other.start(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=PATIENCE))
        until(lambda: other.hold.inspect("job").waiters, "another one waits")
        lose_session(mine._server)  # type: ignore[attr-defined]
        lose_session(theirs._server)  # type: ignore[attr-defined]
        before = lease.deadline
        until(lambda: lease.deadline > before, "it is renewed")
        lease.check()
        assert not waits.done()
        one.do(lambda hold: lease.release())
        granted = waits.result(PATIENCE)
        assert granted.fence > lease.fence
        other.do(lambda hold: granted.release())


def test_a_place_of_an_earlier_session(party: Party, join: Joining) -> None:
    """It is shown until the server has ended that session, and is never taken for ours (trap 27)."""
    old = party.wait_in("a", "me")
    session = party.server._session
    before, session._client = session._client, None  # as a process does that is killed: nobody is told
    assert party.look("a").places == (old._replace(ours=False),)
    new = party.wait_in("a", "me")
    places = party.look("a").places
    assert places is not None
    assert [(place.key, place.ours) for place in places] == [(old.key, False), (new.key, True)]
    record = party.look("a")
    assert party.change(Part("a", record.revision, "cleaned", leave=places[:1])).done
    assert before is not None
    before.stop()
    before.close()


def test_a_short_break(
    join: Joining, zookeeper_server: ZooKeeperServer, chroot: str, proxy: Proxy, flavour: str
) -> None:
    """The session lives on, and so do its places. A request waits for the connection; watches fire; news are heard
    that came meanwhile."""
    party, other, heard, fired = join(flavour, f"zk://127.0.0.1:{proxy.port}{chroot}"), join(), Calls(), Calls()
    party.server.hear("me", heard)
    place, session = party.wait_in("a", "me"), party.session
    party.server.watch_record(party.look("a"), fired)
    party.look("a")
    proxy.refuse()
    proxy.cut()
    fired.wait()
    assert other.one(Tell("me", "while you were away"))
    threading.Timer(0.3, proxy.accept).start()
    record = party.look("a")
    assert record.places == (place,)
    assert party.session == session
    heard.wait()


def test_a_session_is_kept_alive(join: Joining) -> None:
    """By pings, for longer than the server keeps a silent one."""
    party = join(session="1")
    place = party.wait_in("a", "me")
    assert party.server.session_seconds == 1
    time.sleep(1.8)
    assert party.look("a").places == (place,)


def test_the_length_that_the_server_grants(join: Joining, zookeeper_server: ZooKeeperServer) -> None:
    """It bounds what was requested, and that is what counts."""
    party = join(session="60")
    party.look("a")
    assert party.server.session_seconds == int(zookeeper_server.settings["maxSessionTimeout"]) / 1000 < 60


def test_a_client_that_stands_still(join: Joining) -> None:
    """Past its session: its place goes, and nothing else. It comes back with a new session."""
    watcher = join(session="2")

    def life() -> bool:
        frozen = Party(watcher.given)
        frozen.wait_in("a", "frozen")
        # It stops itself: stopped from outside, it might not have read that it has its place, and could not know it.
        os.kill(os.getpid(), signal.SIGSTOP)
        until(lambda: frozen.look("a").places == (), "its place is gone")
        return frozen.wait_in("a", "frozen").ours

    child = in_child(life)
    try:
        until(lambda: process.status(child) == "T", "it stands still")
        until(lambda: watcher.look("a").places == (), "the server ends its session")
    finally:
        os.kill(child, signal.SIGCONT)
    assert ended_well(child)


def test_a_client_of_the_users(join: Joining, zookeeper_server: ZooKeeperServer, chroot: str) -> None:
    """Its settings are used. It is neither stopped nor started, and its session is not ours."""
    theirs = KazooClient(f"{zookeeper_server.address}{chroot}", timeout=3)
    with Party(theirs) as party:
        assert party.wait_in("a", "me").ours
        assert not theirs.connected
        theirs.start_async().wait(10)
        assert hex(theirs.client_id[0]) != party.session
    assert theirs.connected
    assert len(theirs.get_children("/r")) == 256
    theirs.stop()
    theirs.close()


def test_closed_in_the_middle(join: Joining, chroot: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is under way ends, and begins no session after the store was closed."""
    monkeypatch.setattr(session_module, "CLOSED_WITHIN", 0.5)
    party = join(url=f"zk://127.0.0.1:{proxy.port}{chroot}")
    party.look("a")
    proxy.hold_replies()
    answers: list[object] = []
    requests = (Look(("a",)), Change((Part("b", 0, "x", join=Join("me", "")),)))
    thread = threading.Thread(target=lambda: answers.extend(party.perform(*requests)))
    thread.start()
    until(lambda: proxy.waiting, "the server has answered")
    party.server.close()
    thread.join(30)
    assert [type(answer).__name__ for answer in answers] == ["StoreUnavailable", "OutcomeUnknown"]
    assert party.session == ""


@pytest.mark.parametrize("connected", [True, False])
def test_a_fork(join: Joining, connected: bool) -> None:
    """The child has a session of its own, and a copy of nothing. The parent's goes on, whatever the child does."""
    party, fired, before = join(), Calls(), open_files()
    place = party.wait_in("a", "parent") if connected else None
    session = party.session
    if connected:
        party.server.watch_record(party.look("a"), fired)
        party.look("a")

    def life() -> bool:
        party.server.forked()
        assert open_files() <= before
        assert party.session == ""
        places = party.look("a").places
        assert places == (() if place is None else (place._replace(ours=False),))
        party.wait_in("b", "child")
        assert party.session not in ("", session)
        party.server.close()
        return not fired.got

    assert ended_well(in_child(life))
    assert ended_well(in_child(lambda: True))  # it does not even know
    assert party.session == session
    assert fired.got == []
    if place is not None:
        assert party.look("a").places == (place,)
        party.write("a", "changed")
        fired.wait()


def test_a_fork_while_a_session_is_being_ended(join: Joining, chroot: str, proxy: Proxy) -> None:
    """The child has no copy of its connection."""
    party = join(url=f"zk://127.0.0.1:{proxy.port}{chroot}")
    party.look("a")
    proxy.hold_replies()
    closing = threading.Thread(target=party.server.close)
    closing.start()
    until(lambda: proxy.waiting, "the server has confirmed the end, and the client does not know")

    def life() -> bool:
        assert connections_to(proxy.port) == 1
        party.server.forked()
        return connections_to(proxy.port) == 0

    assert ended_well(in_child(life))
    proxy.release()
    closing.join(30)


def test_a_fork_in_the_middle_of_a_request(join: Joining, chroot: str, proxy: Proxy) -> None:
    """The child's copy of the call ends at once, and what it requested is not known; the parent's is answered."""
    party = join(url=f"zk://127.0.0.1:{proxy.port}{chroot}")
    party.look("a")
    proxy.hold_replies()
    children: list[int] = []

    def fork(*_: object) -> None:
        child = os.fork()
        if child == 0:
            children.clear()
            party.server.forked()
        else:
            children.append(child)

    previous = signal.signal(signal.SIGALRM, fork)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        threading.Timer(0.8, proxy.release).start()
        (answer,) = party.perform(Change((Part("a", 0, "x"),)))
        if not children:
            os._exit(0 if type(answer).__name__ == "OutcomeUnknown" else 1)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert answer.done
    assert ended_well(children[0])
