"""A bad network: what was certainly not done, what may have been, and nothing is ever sent twice."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.record.requests import Change, List, Look, Part, Record, Tell
from tests.integration.etcd.flavours import Connect, Perform, in_thread, look, write
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.waiting import PATIENCE, until, until_async

SOON = 0.3  # seconds for a call that gets no reply


@pytest.fixture
def remote(proxy: Proxy, etcd: EtcdServer, connect: Connect) -> EtcdRecords:
    """The records of the shared etcd behind the bad network."""
    return connect(etcd.url_at(proxy.port))


def versions(etcd: EtcdServer) -> dict[str, int]:
    """How often each record was written."""
    return {key.removeprefix("leasehold/r/"): int(row["version"]) for key, row in etcd.keys("leasehold/r/").items()}


def test_a_lost_reply(remote: EtcdRecords, proxy: Proxy, etcd: EtcdServer, perform: Perform) -> None:
    """The outcome of a change is unknown, and it was done once; a look has simply failed."""
    proxy.cut_replies(1)
    error = perform(remote, Change((Part("a", 0, "one"),)))
    assert isinstance(error, OutcomeUnknown) and "did not answer" in str(error)
    assert versions(etcd) == {"a": 1}
    proxy.cut_replies(1)
    assert isinstance(perform(remote, Look(("a",))), StoreUnavailable)
    proxy.cut_replies(1)
    assert isinstance(perform(remote, List("", 5)), StoreUnavailable)
    proxy.cut_replies(1)
    assert isinstance(perform(remote, Tell("x", "y")), OutcomeUnknown)
    assert look(remote, "a").text == "one"


def test_a_reply_that_never_comes(remote: EtcdRecords, proxy: Proxy, perform: Perform) -> None:
    """The call ends when it must, and the connection is not used again."""
    write(remote, "a", "one")
    proxy.hold_replies()
    begun = time.monotonic()
    assert isinstance(perform(remote, Change((Part("b", 0, "one"),)), seconds=SOON), OutcomeUnknown)
    assert isinstance(perform(remote, Look(("a",)), seconds=SOON), StoreUnavailable)
    assert time.monotonic() - begun >= 2 * SOON
    proxy.release()
    assert perform(remote, Look(("c",))).records == (Record("c"),)


def test_a_batch_whose_reply_is_lost(remote: EtcdRecords, proxy: Proxy, etcd: EtcdServer, perform: Perform) -> None:
    """Each request has an error of its own, by what it is."""
    proxy.cut_replies(1)
    changed, seen = perform(remote, Change((Part("a", 0, "one"),)), Look(("b",)))
    assert isinstance(changed, OutcomeUnknown) and isinstance(seen, StoreUnavailable)
    assert versions(etcd) == {"a": 1}


def test_a_request_that_was_not_received(remote: EtcdRecords, proxy: Proxy, etcd: EtcdServer, perform: Perform) -> None:
    """The connection broke after it was sent: we cannot know, and etcd has not seen it."""
    proxy.on_request = lambda _: "cut_request"
    assert isinstance(perform(remote, Change((Part("a", 0, "one"),))), OutcomeUnknown)
    assert versions(etcd) == {}


def test_nobody_is_there(remote: EtcdRecords, proxy: Proxy, perform: Perform) -> None:
    """Nothing was done, and the error names the server."""
    proxy.refuse()
    error = perform(remote, Change((Part("a", 0, "one"),)))
    assert isinstance(error, StoreUnavailable)
    assert f"etcd at 127.0.0.1:{proxy.port} cannot be reached" in str(error)
    proxy.accept()
    assert perform(remote, Change((Part("a", 0, "one"),))).done


def test_a_name_that_is_unknown(connect: Connect, perform: Perform) -> None:
    """Nothing was done."""
    error = perform(connect("etcd://nobody.invalid"), Change((Part("a", 0, "one"),)))
    assert isinstance(error, StoreUnavailable) and "cannot be reached" in str(error)


def test_connections_that_the_server_closed(
    remote: EtcdRecords, proxy: Proxy, etcd: EtcdServer, perform: Perform
) -> None:
    """They are replaced before anything is sent: no call fails."""
    for number in range(3):
        assert perform(remote, Change((Part(f"k:{number}", 0, "one"),))).done
        proxy.cut()
    assert versions(etcd) == {"k:0": 1, "k:1": 1, "k:2": 1}


def test_a_change_that_arrives_late(remote: EtcdRecords, proxy: Proxy, etcd: EtcdServer, connect: Connect) -> None:
    """The record has moved on: it changes nothing."""
    first = write(remote, "a", "one")
    proxy.hold_requests()
    late = in_thread(remote, Change((Part("a", first.revision, "late"),)), seconds=SOON)
    assert isinstance(late, OutcomeUnknown)
    second = write(connect(etcd.url), "a", "two", first.revision)
    proxy.release()
    time.sleep(0.2)
    assert look(remote, "a") == second._replace(places=())


def test_a_reply_that_comes_twice(remote: EtcdRecords, proxy: Proxy, perform: Perform) -> None:
    """It is nobody else's: the connection is not used again."""
    write(remote, "a", "one")
    twice: list[Verdict] = ["double_reply"]
    proxy.on_request = lambda _: twice.pop() if twice else "pass"
    first = perform(remote, Look(("a",)))
    proxy.settle()
    assert first.records[0].text == "one"
    assert perform(remote, Look(("b",))).records == (Record("b"),)
    assert perform(remote, Change((Part("b", 0, "two"),))).done


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nno length",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b'HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n{"header":{"revision":"5"},"responses":[{}]}',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\nnginx",
    ],
)
def test_replies_that_are_none(remote: EtcdRecords, proxy: Proxy, perform: Perform, reply: bytes) -> None:
    """Something else listens there, or stands between: what became of a change is unknown."""
    proxy.on_request = lambda _: reply
    assert isinstance(perform(remote, Look(("a",))), StoreUnavailable)
    assert isinstance(perform(remote, Change((Part("a", 0, "one"),))), OutcomeUnknown)


# ---------------------------------------------------------------- interrupts


class Interrupt(BaseException):
    """Raised by a signal handler."""


def test_an_interrupted_call(remote: EtcdRecords, proxy: Proxy, etcd: EtcdServer) -> None:
    """Its reply is nobody else's."""
    write(remote, "a", "one")
    proxy.hold_replies()

    def interrupt(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupt):
            remote.perform([Change((Part("b", 0, "one"),))], time.monotonic() + PATIENCE)
    finally:
        signal.signal(signal.SIGALRM, before)
    sent: list[bytes] = []

    def note(chunk: bytes) -> Verdict:
        sent.append(chunk)
        return "pass"

    proxy.on_request = note
    seen: list[Record] = []
    next_call = threading.Thread(target=lambda: seen.append(look(remote, "a")))
    next_call.start()
    until(lambda: sent, "the next call has sent its request")
    proxy.release()
    next_call.join(PATIENCE)
    assert [record.text for record in seen] == ["one"]
    until(lambda: versions(etcd).get("b") == 1, "it was done, once")


async def test_a_cancelled_call(remote: EtcdRecords, proxy: Proxy) -> None:
    """Its reply is nobody else's."""
    give_up = time.monotonic() + PATIENCE
    await remote.perform_async([Change((Part("a", 0, "one"),))], give_up)
    proxy.hold_replies()
    task = asyncio.create_task(remote.perform_async([Look(("b",))], give_up))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    call = asyncio.create_task(remote.perform_async([Look(("a",))], give_up))
    await until_async(lambda: proxy.count == 2, "the next call has another connection")
    proxy.release()
    [seen] = await call
    assert seen.records[0].text == "one"


async def test_an_event_loop_is_not_blocked(remote: EtcdRecords, proxy: Proxy) -> None:
    """Other tasks run while a reply is awaited, and several calls are under way at once."""
    give_up = time.monotonic() + PATIENCE
    for number in range(5):
        write(remote, f"k:{number}", f"text {number}")
    proxy.cut()
    proxy.count = 0
    proxy.hold_replies()
    calls = [asyncio.create_task(remote.perform_async([Look((f"k:{number}",))], give_up)) for number in range(5)]
    ticks = 0
    while proxy.count < 5:
        await asyncio.sleep(0.001)
        ticks += 1
    assert ticks and not any(call.done() for call in calls)
    proxy.release()
    replies = await asyncio.gather(*calls)
    assert [reply[0].records[0].text for reply in replies] == [f"text {number}" for number in range(5)]


def test_many_threads_at_once(records: EtcdRecords, etcd: EtcdServer) -> None:
    """Each gets its own replies; of changes of one revision one wins."""
    wins: list[int] = []

    def work(number: int) -> None:
        for turn in range(20):
            own = write(records, f"k:{number}:{turn}", f"{number}")
            assert look(records, own.resource).text == f"{number}"
            if in_thread(records, Change((Part(f"shared:{turn}", 0, f"{number}"),))).done:
                wins.append(turn)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(wins) == list(range(20))
    assert set(versions(etcd).values()) == {1}


async def test_both_flavours_share_connections(remote: EtcdRecords, proxy: Proxy) -> None:
    """One that a thread has opened serves the event loop."""
    write(remote, "a", "one")
    for _ in range(3):
        [seen] = await remote.perform_async([Look(("a",))], time.monotonic() + PATIENCE)
        assert seen.records[0].text == look(remote, "a").text == "one"
    assert proxy.count == 1
