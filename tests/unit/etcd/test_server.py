"""etcd as a server of records, before anything is sent."""

from __future__ import annotations

import threading
import time

from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.record.requests import Place, Record, Server
from tests.support.waiting import until


def test_it_is_a_server_of_records() -> None:
    """Making one connects to nothing, and neither does closing it."""
    server: Server = EtcdRecords.from_url("etcd://nobody.invalid,somebody.invalid:1/app")
    assert server.most_parts == 60
    assert server.server == "etcd at nobody.invalid:2379,somebody.invalid:1"
    assert server.perform([], time.monotonic()) == []
    server.close()
    server.forked()
    server.close()


def test_an_absent_record_that_was_never_read() -> None:
    """There is no revision to watch it from: the caller looks again, on another thread."""
    server = EtcdRecords.from_url("etcd://127.0.0.1:1")
    fired: list[tuple[Record | None, threading.Thread]] = []
    server.watch_record(Record("a"), lambda record: fired.append((record, threading.current_thread())))
    until(lambda: fired, "it fires")
    assert fired[0][0] is None and fired[0][1] is not threading.current_thread()
    server.close()
    assert len(fired) == 1


def test_watches_where_nobody_is() -> None:
    """They fire, each once; and what is still watched when it is closed fires then."""
    server = EtcdRecords.from_url("etcd://127.0.0.1:1")
    fired: list[Record | None] = []
    server.watch_place("a", Place("me", 5, "leasehold/w/a//me", True), fired.append)
    until(lambda: fired == [None], "it fires")
    server.watch_record(Record("a", "text", 7), fired.append)
    server.close()
    assert fired == [None, None]
