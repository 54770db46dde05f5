"""Forks, threads and the end: a child leaves the parent alone, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable

from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.record.requests import Change, Look, Part, Record, Tell
from tests.integration.etcd.flavours import Connect, in_loop, in_thread, join, look, owners, write
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.proxy import Proxy
from tests.support.waiting import PATIENCE, until


def in_child(work: Callable[[], bool]) -> bool:
    """Fork, and tell whether the work went well there."""
    child = os.fork()
    if not child:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def test_a_forked_child(records: EtcdRecords, etcd: EtcdServer) -> None:
    """It works with connections and a lease of its own; the parent keeps its place, its watch and its news."""
    first = write(records, "a", "one")
    join(records, "a", "parent")
    fired: list[Record | None] = []
    heard: list[str] = []
    records.watch_record(look(records, "a"), fired.append)
    records.hear("parent", heard.append)
    until(lambda: in_thread(records, Tell("parent", "one")), "it listens")

    def child() -> bool:
        records.forked()
        assert look(records, "a").text == "one"
        assert [place.ours for place in look(records, "a").places or ()] == [False]
        assert join(records, "a", "child").ours
        assert in_loop(records, Look(("a",))).records[0].text == "one"
        seen: list[Record | None] = []
        records.watch_record(look(records, "b"), seen.append)
        write(records, "b", "new")
        until(lambda: seen, "the child's watch fires")
        records.close()
        return not fired

    assert in_child(child)
    assert owners(records, "a") == ["parent"]
    assert fired == []
    second = write(records, "a", "two", first.revision)
    until(lambda: fired == [second], "the parent's watch fires")
    assert in_thread(records, Tell("parent", "two"))
    until(lambda: heard == ["one", "two"], "the parent hears")
    assert len(etcd.leases()) == 1


def test_a_child_sends_nothing_on_the_connections_of_its_parent(
    proxy: Proxy, etcd: EtcdServer, connect: Connect
) -> None:
    """Neither when it drops them nor afterwards."""
    records = connect(etcd.url_at(proxy.port))
    join(records, "a", "parent")
    records._lease._wake.wait(0.2)
    before = proxy.count

    def child() -> bool:
        records.forked()
        return owners(records, "a") == ["parent"]

    assert in_child(child)
    proxy.settle()
    assert proxy.count == before + 1
    assert owners(records, "a") == ["parent"]


def test_a_fork_in_the_middle_of_a_call(proxy: Proxy, etcd: EtcdServer, connect: Connect) -> None:
    """The thread that waits is the parent's, and gets its reply; the child's connection is another one."""
    records = connect(etcd.url_at(proxy.port))
    write(records, "a", "one")
    proxy.hold_replies()
    replies: list[Record] = []
    waiting = threading.Thread(target=lambda: replies.append(look(records, "a")))
    waiting.start()
    until(lambda: proxy.waiting, "the reply is on its way")

    def child() -> bool:
        records.forked()
        return in_thread(records, Look(("a",)), seconds=0.2) is not None

    assert in_child(child)
    proxy.release()
    waiting.join(PATIENCE)
    assert [record.text for record in replies] == ["one"]


def test_nothing_is_left(etcd: EtcdServer) -> None:
    """After close there is no thread, socket or lease."""
    before = etcd.connections()  # its gateway has some to itself
    records = EtcdRecords.from_url(etcd.url)
    for _ in range(3):
        join(records, "a", "me")
        records.hear("me", lambda _: None)
        until(lambda: in_thread(records, Tell("me", "hello")), "it listens")
        records.watch_record(look(records, "a"), lambda _: None)
        in_loop(records, Look(("a",)), Change((Part("b", 0, "text"),)))
        records.close()
    until(lambda: etcd.connections() <= before, "all connections are closed")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("leasehold-etcd")]
    assert etcd.leases() == [] and list(etcd.keys()) == ["leasehold/r/b"]


def test_event_loops_that_come_and_go(records: EtcdRecords) -> None:
    """Connections belong to no loop: neither a closed loop nor a new one disturbs."""
    for number in range(5):

        async def several(number: int = number) -> None:
            give_up = time.monotonic() + PATIENCE
            change = Change((Part(f"k:{number}", 0, "one"),))
            await asyncio.gather(*(records.perform_async([Look((f"k:{one}",))], give_up) for one in range(5)))
            [outcome] = await records.perform_async([change], give_up)
            assert outcome.done

        asyncio.run(several())


def test_the_wall_clock(records: EtcdRecords) -> None:
    """That of this machine, as long as etcd agrees."""
    before = time.time_ns() // 1000
    look(records, "a")
    assert before <= records.wall_us() <= time.time_ns() // 1000
