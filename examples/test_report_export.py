import asyncio
import sqlite3

import pytest
from report_export import export, main, make_tables, serve

from leasehold import LeaseLost, NotAcquired, StaleOwner, StoreUnavailable
from leasehold.testing import expire, freeze, outage


@pytest.fixture
def db():
    db = sqlite3.connect(":memory:")
    make_tables(db)
    return db


def saved(db):
    return db.execute("SELECT id, content FROM reports").fetchall()


def test_a_report_is_saved(hold, db):
    export(hold, db, 42, render=lambda report_id: "ours")
    assert saved(db) == [(42, "ours")]
    assert not hold.lock("report-export", 42).locked()


def test_another_worker_is_exporting_it(hold, connect_leasehold, db):
    other = connect_leasehold()  # another process
    with other.lock("report-export", 42), pytest.raises(NotAcquired):
        export(hold, db, 42, render=lambda report_id: "ours")  # waits 5 s, which pass at once here
    assert saved(db) == []


def test_a_worker_that_died_is_replaced(hold, connect_leasehold, leasehold_clock, db):
    lease = connect_leasehold().lock("report-export", 42, ttl="30s").acquire()
    freeze(lease)  # and never thawed
    leasehold_clock.advance("26s")
    export(hold, db, 42, render=lambda report_id: "ours")  # 4 s later
    assert saved(db) == [(42, "ours")]


def test_a_late_write_is_refused(hold, connect_leasehold, leasehold_clock, db):
    def render(report_id):
        with freeze(hold):  # our worker is paused here, and another one takes over
            leasehold_clock.advance("31s")
            export(connect_leasehold(), db, report_id, render=lambda report_id: "theirs")
        return "ours, too late"

    with pytest.raises(StaleOwner):
        export(hold, db, 42, render)
    assert saved(db) == [(42, "theirs")]


def test_a_slow_report_keeps_its_lease(hold, leasehold_clock, db):
    def render(report_id):
        leasehold_clock.advance("10m")  # renewed all the time
        return "ours"

    export(hold, db, 42, render)
    assert saved(db) == [(42, "ours")]


def test_the_store_is_away(hold, db):
    with outage(hold), pytest.raises(StoreUnavailable):
        export(hold, db, 42, render=lambda report_id: "ours")


def test_code_that_connects_by_itself(leasehold_url, connect_leasehold, db):
    main(db)
    assert saved(db) == [(42, "report 42")]
    with connect_leasehold().lock("report-export", 42), pytest.raises(NotAcquired):
        main(db)


def test_a_server_stops_when_its_lease_is_lost(async_hold):
    handled = []

    async def handle(lease):
        handled.append(lease.fence)
        if len(handled) == 3:
            expire(lease)  # the server is interrupted at its next await

    with pytest.raises(LeaseLost):
        asyncio.run(serve(async_hold, handle))
    assert len(handled) == 3


def test_the_next_server_takes_over(async_hold, connect_async_leasehold, leasehold_clock):
    handled = []

    async def first(lease):
        handled.append("first")
        await asyncio.sleep(3600)

    async def second(lease):
        handled.append("second")
        await asyncio.sleep(3600)

    async def fleet():
        servers = [serve(async_hold, first), serve(connect_async_leasehold(), second)]
        tasks = [asyncio.create_task(server) for server in servers]
        await leasehold_clock.advance_async("10m")
        assert handled == ["first"]
        with freeze(async_hold):
            await leasehold_clock.advance_async("11s")
        assert handled == ["first", "second"]
        with pytest.raises(LeaseLost):
            await tasks[0]
        tasks[1].cancel()

    asyncio.run(fleet())
