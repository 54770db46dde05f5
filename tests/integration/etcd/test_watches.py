"""Watches: what happens is told once, and so is that it cannot be known any longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from leasehold.stores.etcd import streams
from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.record.requests import Change, Part, Record, Tell
from tests.integration.etcd.flavours import Connect, in_thread, join, look, write
from tests.support.servers.etcd import EtcdEnsemble, EtcdServer
from tests.support.servers.proxy import Proxy
from tests.support.waiting import until

Fired = list[Record | None]


def watched(records: EtcdRecords, *resources: str) -> Fired:
    """What is told about the records as they are now. etcd knows the watches."""
    fired: Fired = []
    for resource in resources:
        records.watch_record(look(records, resource), fired.append)
    settle(records)
    return fired


def settle(records: EtcdRecords) -> None:
    """All watches that were set are known to etcd."""
    reader = records._watches._reader
    assert reader is not None
    until(lambda: not reader._new and reader._stream and not reader._stream._unconfirmed, "all watches are created")


def live(records: EtcdRecords) -> int:
    """How many watches etcd has."""
    reader = records._watches._reader
    return len(reader._stream.watches) if reader and reader._stream else 0


def test_a_change_comes_with_the_new_record(records: EtcdRecords) -> None:
    """Once, however often the record changes afterwards."""
    first = write(records, "a", "one")
    fired = watched(records, "a")
    second = write(records, "a", "two", first.revision)
    until(lambda: fired, "it fires")
    write(records, "a", "three", second.revision)
    time.sleep(0.2)
    assert fired == [second]


def test_a_record_that_is_made_or_removed(records: EtcdRecords) -> None:
    """Both are changes."""
    fired = watched(records, "a")
    first = write(records, "a", "one")
    until(lambda: fired == [first], "it fires")
    fired = watched(records, "a")
    in_thread(records, Change((Part("a", first.revision, ""),)))
    until(lambda: fired == [Record("a", places=None)], "it fires")


def test_a_change_before_the_watch_was_set(records: EtcdRecords, etcd: EtcdServer, connect: Connect) -> None:
    """It is told at once: a watch begins behind what was read."""
    first = write(records, "a", "one")
    seen = look(records, "a")
    second = write(connect(etcd.url), "a", "two", first.revision)
    fired: Fired = []
    records.watch_record(seen, fired.append)
    until(lambda: fired == [second], "it fires")


def test_a_change_that_another_thread_has_read(records: EtcdRecords) -> None:
    """The watch goes by the revision that it was given, not by the newest one that is known."""
    first = write(records, "a", "one")
    seen, gone = look(records, "a"), look(records, "b")
    second = write(records, "a", "two", first.revision)
    write(records, "b", "new")
    look(records, "a"), look(records, "b")
    fired: Fired = []
    records.watch_record(seen, fired.append)
    until(lambda: fired == [second], "it fires")
    records.watch_record(gone, fired.append)
    until(lambda: len(fired) == 2, "it fires")


def test_a_place_that_is_gone(records: EtcdRecords) -> None:
    """Its end is told, and nothing else: no other place, no change of the record."""
    first = write(records, "a", "held")
    one, two = join(records, "a", "one"), join(records, "a", "two")
    fired: Fired = []
    records.watch_place("a", one, fired.append)
    settle(records)
    second = write(records, "a", "renewed", first.revision)
    in_thread(records, Change((Part("a", second.revision, leave=(two,)),)))
    join(records, "a", "three")
    time.sleep(0.2)
    assert fired == []
    in_thread(records, Change((Part("a", second.revision, leave=(one,)),)))
    until(lambda: fired == [None], "it fires")


def test_a_place_that_was_gone_before(records: EtcdRecords, etcd: EtcdServer, connect: Connect) -> None:
    """Also when it was made again since, and when others have read that."""
    place = join(records, "a", "me")
    other = connect(etcd.url)
    in_thread(other, Change((Part("a", 0, leave=(place,)),)))
    join(other, "a", "me")
    look(records, "a")
    fired: Fired = []
    records.watch_place("a", place, fired.append)
    until(lambda: fired == [None], "it fires")


def test_a_closed_watch_is_silent(records: EtcdRecords) -> None:
    """etcd forgets it as well."""
    first = write(records, "a", "one")
    fired: Fired = []
    watch = records.watch_record(look(records, "a"), fired.append)
    settle(records)
    watch.close()
    watch.close()
    until(lambda: not live(records), "it is canceled")
    write(records, "a", "two", first.revision)
    time.sleep(0.1)
    assert fired == []


def test_a_watch_after_a_compaction(records: EtcdRecords, etcd: EtcdServer) -> None:
    """A record that was not changed for long is watched all the same: no history is needed."""
    first = write(records, "a", "one")
    place = join(records, "a", "me")
    old = look(records, "a")
    for number in range(5):
        etcd.put("other", str(number))
    etcd.compact()
    fired = watched(records, "a")
    records.watch_place("a", place, fired.append)
    settle(records)
    time.sleep(0.2)
    assert fired == []
    records._seen.clear()  # as when too many resources were read since
    records.watch_record(old, fired.append)
    write(records, "a", "two", first.revision)
    until(lambda: len(fired) == 2, "both fire")


def test_a_compaction_under_a_watcher(records: EtcdRecords, etcd: EtcdServer) -> None:
    """It goes on."""
    first = write(records, "a", "one")
    fired = watched(records, "a")
    etcd.put("other", "x")
    etcd.compact()
    second = write(records, "a", "two", first.revision)
    until(lambda: fired == [second], "it fires")


def test_many_watches_need_one_connection(proxy: Proxy, etcd: EtcdServer, connect: Connect) -> None:
    """They are created and canceled while events arrive, and none is lost."""
    records = connect(etcd.url_at(proxy.port))
    fired: dict[str, Record | None] = {}
    made = [write(records, f"k:{number}", "one") for number in range(300)]

    def note(resource: str) -> Callable[[Record | None], None]:
        return lambda record: fired.update({resource: record})

    watches = [records.watch_record(look(records, record.resource), note(record.resource)) for record in made]
    settle(records)
    assert proxy.count == 2  # one for requests, one for watches; the probe comes later
    for watch in watches[:100]:
        watch.close()
    for record in made:
        write(records, record.resource, "two", record.revision)
    until(lambda: len(fired) == 200, "all fire")
    assert all(record is not None and record.text == "two" for record in fired.values())
    until(lambda: not live(records), "all are canceled")


def test_close_tells_everybody(records: EtcdRecords) -> None:
    """Whoever watched looks again; no thread is left."""
    write(records, "a", "one")
    fired = watched(records, "a")
    records.watch_record(look(records, "a"), fired.append)
    records.close()
    assert fired == [None, None]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("leasehold-etcd")]


def test_the_thread_ends_when_nothing_is_watched(records: EtcdRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """And another one begins with the next watch."""
    monkeypatch.setattr(streams, "LINGER", 0.1)
    first = write(records, "a", "one")
    watched(records, "a")
    second = write(records, "a", "two", first.revision)
    reader = records._watches._reader
    assert reader is not None
    until(lambda: not reader._thread.is_alive(), "the thread ends")
    fired = watched(records, "a")
    third = write(records, "a", "three", second.revision)
    until(lambda: fired == [third], "it fires")


# ---------------------------------------------------------------- when it cannot be known any longer


def test_a_lost_connection(proxy: Proxy, etcd: EtcdServer, connect: Connect) -> None:
    """All watches fire, once; those who listen go on."""
    records = connect(etcd.url_at(proxy.port))
    heard: list[str] = []
    records.hear("me", heard.append)
    until(lambda: in_thread(records, Tell("me", "one")), "it listens")
    until(lambda: heard == ["one"], "it arrives")
    fired = watched(records, "a", "b")
    proxy.cut()
    until(lambda: fired == [None, None], "both fire")
    assert in_thread(records, Tell("me", "two"))
    until(lambda: heard == ["one", "two"], "it arrives")


def test_nobody_to_watch_at(proxy: Proxy, etcd: EtcdServer, connect: Connect) -> None:
    """A watch that cannot be set fires, after a while that keeps one from trying too often."""
    records = connect(etcd.url_at(proxy.port))
    seen = look(records, "a")
    proxy.refuse()
    proxy.cut()
    fired: Fired = []
    records.watch_record(seen, fired.append)
    until(lambda: fired == [None], "it fires")


def test_a_stream_that_never_begins(
    proxy: Proxy, etcd: EtcdServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something on the way collects the whole request first: a watch that is not confirmed in time fires."""
    monkeypatch.setattr(streams, "CREATE_WITHIN", 0.5)
    records = connect(etcd.url_at(proxy.port))
    seen = look(records, "a")
    proxy.on_request = lambda chunk: "hold" if b"/v3/watch" in chunk else "pass"
    fired: Fired = []
    records.watch_record(seen, fired.append)
    until(lambda: fired == [None], "it fires")


def test_a_member_that_was_killed(ensemble: EtcdEnsemble, connect: Connect) -> None:
    """The watch fires, and is set again at another member."""
    follower = ensemble.followers()[0]
    records = connect(ensemble.url_from(follower))
    first = write(records, "a", "one")
    fired = watched(records, "a")
    follower.kill()
    until(lambda: fired == [None], "it fires")
    fired = watched(records, "a")
    second = write(records, "a", "two", first.revision)
    until(lambda: fired == [second], "it fires at another member")


@pytest.mark.parametrize("how", ["frozen", "cut off"])
def test_a_member_that_says_nothing(
    ensemble: EtcdEnsemble, connect: Connect, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its streams stay open and are silent, whatever happens: that is noticed by asking it now and then."""
    monkeypatch.setattr(streams, "PROBE_EVERY", 0.5)
    monkeypatch.setattr(streams, "PROBE_WITHIN", 1.0)
    follower = ensemble.followers()[0]
    records = connect(ensemble.url_from(follower))
    first = write(records, "a", "one")
    fired = watched(records, "a")
    if how == "frozen":
        follower.freeze()
    else:
        ensemble.cut_off(follower)
    other = connect(ensemble.leader().url)
    write(other, "a", "two", first.revision)
    until(lambda: fired == [None], "it fires")
    fired = watched(records, "a")
    write(other, "a", "three", look(other, "a").revision)
    until(lambda: len(fired) == 1, "it fires at another member")


def test_a_quiet_watch_is_probed_and_stays(records: EtcdRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that answers is left alone, however long nothing happens."""
    monkeypatch.setattr(streams, "PROBE_EVERY", 0.05)
    first = write(records, "a", "one")
    fired = watched(records, "a")
    time.sleep(1.0)
    assert fired == []
    second = write(records, "a", "two", first.revision)
    until(lambda: fired == [second], "it fires")


def test_watches_leave_no_connection(records: EtcdRecords, etcd: EtcdServer) -> None:
    """Hundreds of them, a few at a time, use the same connection."""
    before = etcd.connections()  # its gateway has some to itself
    record = write(records, "a", "one")
    fired: Fired = []

    def turn() -> None:
        nonlocal record
        fired.clear()
        for _ in range(5):
            records.watch_record(look(records, "a"), fired.append)
        record = write(records, "a", "x", record.revision)
        until(lambda: len(fired) == 5, "all fire")

    turn()
    for _ in range(40):
        turn()
    until(lambda: not live(records), "all are canceled")
    assert etcd.connections() <= before + 3  # one for requests, one for watches, one for the probe


@pytest.mark.parametrize("line", [b'{"error":{"message":"no"}}', b"[]", b'{"result":{"watch_id":"x"}}', b"not json"])
def test_a_stream_that_says_something_else(proxy: Proxy, etcd: EtcdServer, connect: Connect, line: bytes) -> None:
    """It is left, and the watch fires."""
    records = connect(etcd.url_at(proxy.port))
    seen = look(records, "a")
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\n\r\n" % (len(line) + 1, line)
    proxy.on_request = lambda chunk: reply if b"/v3/watch" in chunk else "pass"
    fired: Fired = []
    records.watch_record(seen, fired.append)
    until(lambda: fired == [None], "it fires")
