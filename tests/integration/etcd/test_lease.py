"""The lease of a process: its places live and end with it, and whose a place is goes by the lease that made it."""

from __future__ import annotations

import time

import pytest

from leasehold.errors import StoreUnavailable
from leasehold.stores.etcd import lease as lease_module
from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.record.requests import Change, Join, Part, Record, Tell
from tests.integration.etcd.flavours import Connect, Perform, in_thread, join, look, owners, write
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.waiting import until


def test_there_is_none_until_it_is_needed(records: EtcdRecords, etcd: EtcdServer) -> None:
    """Records need no lease; all places of a process have the same one."""
    write(records, "a", "held")
    assert etcd.leases() == []
    join(records, "a", "one")
    join(records, "b", "two")
    assert len(etcd.leases()) == 1


def test_it_is_kept_alive(records: EtcdRecords, short_lease: int) -> None:
    """A place stays for longer than its lease would without us."""
    join(records, "a", "me")
    time.sleep(short_lease + 0.6)
    assert owners(records, "a") == ["me"]


def test_places_of_others_are_not_ours(records: EtcdRecords, etcd: EtcdServer, connect: Connect) -> None:
    """Each process sees its own as its own."""
    other = connect(etcd.url)
    join(records, "a", "mine")
    join(other, "a", "theirs")
    assert [(place.owner, place.ours) for place in look(records, "a").places or ()] == [
        ("mine", True),
        ("theirs", False),
    ]
    assert [place.ours for place in look(other, "a").places or ()] == [False, True]


def test_a_lease_that_ended_is_replaced_by_the_next_join(
    records: EtcdRecords, etcd: EtcdServer, perform: Perform
) -> None:
    """The join is tried again with a new lease: the first try has done nothing."""
    join(records, "a", "old")
    etcd.revoke(etcd.leases()[0])
    assert owners(records, "a") == []
    joined = perform(records, Change((Part("a", 0, join=Join("new", "")),)))
    assert joined.done and [(place.owner, place.ours) for place in joined.records[0].places] == [("new", True)]
    assert len(etcd.leases()) == 1


def test_joins_sent_together_are_tried_again_together(records: EtcdRecords, etcd: EtcdServer, perform: Perform) -> None:
    """None of them was done, nor anything that was sent with them."""
    join(records, "a", "old")
    etcd.revoke(etcd.leases()[0])
    replies = perform(
        records, *(Change((Part(name, 0, join=Join("new", "")),)) for name in "abc"), Change((Part("d", 0, "text"),))
    )
    assert all(reply.done for reply in replies)
    assert len(etcd.leases()) == 1 and look(records, "d").text == "text"


@pytest.mark.usefixtures("short_lease")
def test_a_place_of_an_older_lease_of_ours_is_not_ours(records: EtcdRecords, etcd: EtcdServer) -> None:
    """It has the name of our owner, and was made by a lease that we have no more: it may vanish at any time."""
    join(records, "a", "me")
    records._lease.ended(records._lease.number)  # as after a keepalive that was answered so: etcd still has the key
    assert [(place.owner, place.ours) for place in look(records, "a").places or ()] == [("me", False)]
    refused = in_thread(records, Change((Part("a", 0, join=Join("me", "")),)))
    assert not refused.done and not refused.records[0].places[0].ours
    until(lambda: owners(records, "a") == [], "the old lease ends by itself")
    assert join(records, "a", "me").ours


def test_the_end_of_a_lease_is_noticed(records: EtcdRecords, etcd: EtcdServer) -> None:
    """Whoever watches looks again, since its own place is gone."""
    record = write(records, "a", "held")
    join(records, "a", "me")
    fired: list[Record | None] = []
    records.watch_record(record, fired.append)
    etcd.revoke(etcd.leases()[0])
    until(lambda: fired, "the watch fires")
    assert fired == [None]


def test_a_process_that_listens_gets_a_new_lease(records: EtcdRecords, etcd: EtcdServer) -> None:
    """It is told of nothing until then, and of everything afterwards."""
    heard: list[str] = []
    records.hear("me", heard.append)
    until(lambda: in_thread(records, Tell("me", "one")), "it listens")
    etcd.revoke(etcd.leases()[0])
    until(lambda: in_thread(records, Tell("me", "two")), "it listens again")
    until(lambda: heard == ["one", "two"], "both arrive")


def test_it_is_given_up_when_nobody_needs_it(
    records: EtcdRecords, etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some seconds after the last place was left; the next one begins another."""
    monkeypatch.setattr(lease_module, "IDLE", 0.5)
    monkeypatch.setattr(lease_module, "EVERY", 0.1)
    place = join(records, "a", "me")
    number = etcd.leases()
    time.sleep(1.0)
    assert etcd.leases() == number
    in_thread(records, Change((Part("a", 0, leave=(place,)),)))
    until(lambda: not etcd.leases(), "it is given up")
    assert records._lease._thread is None
    join(records, "a", "me")
    assert len(etcd.leases()) == 1 and etcd.leases() != number


def test_a_place_that_others_removed_needs_no_lease(
    records: EtcdRecords, etcd: EtcdServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noticed with the next look."""
    monkeypatch.setattr(lease_module, "IDLE", 0.2)
    monkeypatch.setattr(lease_module, "EVERY", 0.1)
    place = join(records, "a", "me")
    in_thread(connect(etcd.url), Change((Part("a", 0, leave=(place,)),)))
    assert owners(records, "a") == []
    until(lambda: not etcd.leases(), "it is given up")


def test_a_join_that_failed_needs_no_lease(records: EtcdRecords, etcd: EtcdServer) -> None:
    """Neither a refused one nor one that was not sent."""
    first = write(records, "a", "held")
    assert not in_thread(records, Change((Part("a", first.revision + 5, join=Join("me", "")),))).done
    assert records._lease._places == {}
    assert etcd.leases()


def test_close_ends_it(records: EtcdRecords, etcd: EtcdServer) -> None:
    """Its places go at once, and the next request works as before."""
    join(records, "a", "me")
    records.hear("me", lambda _: None)
    records.close()
    records.close()
    assert etcd.leases() == [] and etcd.keys() == {}
    assert join(records, "a", "me").ours


def test_without_a_server_there_is_no_lease(proxy: Proxy, etcd: EtcdServer, connect: Connect) -> None:
    """A join whose lease cannot be had has done nothing."""
    records = connect(etcd.url_at(proxy.port))
    proxy.cut_replies(1)
    error = in_thread(records, Change((Part("a", 0, join=Join("me", "")),)))
    assert isinstance(error, StoreUnavailable) and owners(records, "a") == []
    assert join(records, "a", "me").ours
    assert len(etcd.leases()) == 1


def test_a_keepalive_that_something_else_answers(proxy: Proxy, etcd: EtcdServer, connect: Connect) -> None:
    """It is sent again, and the place stays."""
    records = connect(etcd.url_at(proxy.port))
    join(records, "a", "me")
    answers = [b"[]", b'{"error":{"message":"no leader"}}']
    kept: list[bytes] = []

    def judge(chunk: bytes) -> Verdict:
        if b"/lease/keepalive" not in chunk:
            return "pass"
        if answers:
            body = answers.pop()
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        kept.append(chunk)
        return "pass"

    proxy.on_request = judge
    until(lambda: kept, "it is sent again")
    assert [place.ours for place in look(records, "a").places or ()] == [True]
