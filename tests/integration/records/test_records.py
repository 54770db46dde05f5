"""What the store does with records on real servers, below what the contract sees."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from typing import Any

import pytest

import leasehold
import leasehold.aio
from leasehold import StoreUnavailable, Unsupported
from leasehold.stores.record import drafts, turns
from leasehold.stores.record.requests import Server
from leasehold.stores.record.text import EMPTY, encode
from tests.integration.records.both import Both, join, look, write
from tests.support.servers.proxy import Proxy
from tests.support.waiting import until


def record_name(hold: Any) -> str:
    """How the store calls what is held now."""
    (found,) = [one.resource for one in hold.scan("*")]
    return str(found)


def test_a_record_that_is_none_of_ours(both: Both, records: Server) -> None:
    """Nothing is granted, the error says where it is, and an operator sees it."""
    with leasehold.connect(both.url) as hold:
        with hold.lock("report", ttl=5):
            resource = record_name(hold)
        write(records, resource, "by somebody else")
        with pytest.raises(StoreUnavailable, match="record that is none of ours, or is damaged"):
            hold.lock("report", ttl=5).acquire(wait=0)
        assert hold.inspect("report").unreadable
        assert [one.unreadable for one in hold.scan("*")]


def test_at_most_sixty_at_once(both: Both) -> None:
    """A change has its limits."""
    with leasehold.connect(both.url) as hold:
        with hold.all(*[hold.lock("part", number, ttl=5) for number in range(60)]) as leases:
            assert len({lease.fence for lease in leases}) >= 1
        with pytest.raises(Unsupported, match="at most 60"):
            hold.all(*[hold.lock("part", number, ttl=5) for number in range(61)]).acquire()


def test_a_withdrawal_is_repeated_until_it_is_answered(both: Both, proxy: Proxy, records: Server) -> None:
    """A place that nobody uses would keep others out for as long as its process lives."""
    with ExitStack() as stack:
        holder = stack.enter_context(leasehold.connect(both.url))
        hold = stack.enter_context(leasehold.connect(both.through(proxy.port)))
        stack.enter_context(holder.lock("report", ttl=30))
        resource = record_name(holder)
        failures: list[Exception] = []

        def wait() -> None:
            try:
                hold.lock("report", ttl=5).acquire(wait=1.5)
            except Exception as error:
                failures.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        until(lambda: look(records, resource).places, "it waits")
        proxy.hold_requests()
        waiter.join()
        assert isinstance(failures[0], leasehold.LeaseholdError)
        proxy.release()
        until(lambda: not look(records, resource).places, "its place is gone")


def test_a_first_place_that_takes_nothing_is_removed(
    both: Both, records: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever waits behind it, when the resource has been free for long."""
    monkeypatch.setattr(drafts, "OVERDUE_MS", 500)
    monkeypatch.setattr(turns, "LOOK_EVERY_MS", 200)
    with leasehold.connect(both.url) as hold:
        with hold.lock("report", ttl=5):
            resource = record_name(hold)
        join(records, resource, "0" * 32)
        with hold.lock("report", ttl=5):
            assert not look(records, resource).places


def test_one_try_does_not_overtake_a_place(both: Both, records: Server) -> None:
    """Although nobody holds."""
    with leasehold.connect(both.url) as hold:
        with hold.lock("report", ttl=5):
            resource = record_name(hold)
        join(records, resource, "0" * 32)
        assert not hold.lock("report", ttl=5).acquire(wait=0)


def test_old_records_are_removed(both: Both, records: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever comes by; those of today stay."""
    old = EMPTY._replace(last=1_600_000_000_000_000)
    write(records, "default/old", encode(old))
    monkeypatch.setattr("leasehold.stores.record.store.SWEEP_EVERY", 4)

    def is_removed() -> bool:
        """ZooKeeper: a few of 256 buckets at a time."""
        with hold.lock("report", ttl=5):
            return look(records, "default/old").text is None

    with leasehold.connect(both.url) as hold:
        until(is_removed, "it is removed")
        with hold.lock("report", ttl=5):
            assert look(records, record_name(hold)).text is not None


def test_old_records_are_removed_beside_batches(both: Both, records: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a program that takes nothing but batches: each op of one counts."""
    write(records, "default/old", encode(EMPTY._replace(last=1_600_000_000_000_000)))
    monkeypatch.setattr("leasehold.stores.record.store.SWEEP_EVERY", 4)
    with leasehold.connect(both.url) as hold:

        def is_removed() -> bool:
            hold.release_many(hold.acquire_many([hold.lock("report", number) for number in range(8)]))
            return look(records, "default/old").text is None

        until(is_removed, "it is removed")


async def test_thirty_tasks_of_two_coordinators(both: Both) -> None:
    """Each gets its turn, and fences grow."""
    fences: list[int] = []

    async def work(hold: Any) -> None:
        async with hold.lock("report", ttl=10) as lease:
            fences.append(lease.fence)

    async with leasehold.aio.connect(both.url) as one, leasehold.aio.connect(both.url) as two:
        await asyncio.gather(*[work(hold) for hold in (one, two) for _ in range(15)])
    assert fences == sorted(fences) and len(set(fences)) == 30
