"""What happens to a job, on every database, by every driver, on threads and event loops."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold import Backoff, LeaseLost, StaleOwner
from tests.support.patterns.jobs.shops import Shop, got, write

RETRY = Backoff(base=60, cap=60, attempts=2)


@pytest.fixture
async def jobs(shop: Shop) -> Any:
    """A table that we made."""
    jobs = shop.jobs(retry=RETRY)
    await got(jobs.create())
    return jobs


async def test_from_enqueue_to_done(jobs: Any, shop: Shop) -> None:
    """A job is claimed once, with its payload, and is done with its result."""
    payload = {"report": 42, "name": "Übersicht 日本", "parts": [1, 2.5, None, True]}
    job_id = await got(jobs.enqueue(payload))
    job = await got(jobs.claim())
    assert (job.id, job.payload, job.version, job.attempts, job.state) == (job_id, payload, 1, 1, "running")
    assert await got(jobs.claim()) is None
    await got(job.complete({"pages": 3}))
    assert await got(jobs.counts()) == {"ready": 0, "running": 0, "done": 1, "dead": 0, "expired": 0}
    assert (await got(jobs.get(job_id))).result == {"pages": 3}


async def test_many_in_the_order_in_which_they_are_due(jobs: Any, shop: Shop) -> None:
    """Enqueued and claimed together, oldest first."""
    ids = await got(jobs.enqueue_many([{"n": n} for n in range(5)]))
    assert len(set(ids)) == 5 and await got(jobs.enqueue_many([])) == []
    first = await got(jobs.claim_many(3))
    rest = await got(jobs.claim_many(3))
    assert [job.payload["n"] for job in [*first, *rest]] == [0, 1, 2, 3, 4]


async def test_a_key_is_enqueued_once(jobs: Any, shop: Shop) -> None:
    """Again gives the same id, also when the job has ended."""
    first = await got(jobs.enqueue(1, key="report:42"))
    assert await got(jobs.enqueue(2, key="report:42")) == first
    assert await got(jobs.enqueue(2, key="report:43")) != first
    job = await got(jobs.claim())
    assert (job.key, job.payload) == ("report:42", 1)
    await got(job.complete())
    assert await got(jobs.enqueue(3, key="report:42")) == first


async def test_not_before_it_is_due(jobs: Any, shop: Shop) -> None:
    """A delay and a moment are kept, by the clock of the database."""
    await got(jobs.enqueue("later", delay="1h"))
    await got(jobs.enqueue("tomorrow", run_at=datetime.now(UTC) + timedelta(days=1)))
    await got(jobs.enqueue("yesterday", run_at=datetime.now(UTC) - timedelta(days=1)))
    job = await got(jobs.claim())
    assert job.payload == "yesterday"
    assert await got(jobs.claim()) is None


async def test_a_late_worker_is_refused(jobs: Any, shop: Shop) -> None:
    """After a takeover the first owner can do nothing: no heartbeat, no completion, no failure (trap 39)."""
    await got(jobs.enqueue("work"))
    late = await got(jobs.claim())
    shop.expire()
    job = await got(jobs.claim())
    assert (job.id, job.version, job.attempts) == (late.id, 2, 2)
    for attempt in (late.heartbeat, late.complete, lambda: late.fail("late"), late.release):
        with pytest.raises(StaleOwner) as refused:
            await got(attempt())
        assert (refused.value.fence, refused.value.seen) == (1, 2)
    with pytest.raises(LeaseLost, match="taken"):
        late.check()
    assert late.lost.is_set()
    await got(job.complete("by the second"))
    with pytest.raises(StaleOwner):
        await got(late.complete("by the first"))
    assert (await got(jobs.get(job.id))).result == "by the second"


async def test_effect_and_completion_are_one_step(jobs: Any, shop: Shop) -> None:
    """In the user's own transaction: both or neither."""
    shop.execute("CREATE TABLE effects (job_id BIGINT)")
    await got(jobs.enqueue("work"))
    late = await got(jobs.claim())
    shop.expire()
    job = await got(jobs.claim())

    async def finish(mine: Any) -> None:
        async with shop.transaction() as tx:
            await write(tx, f"INSERT INTO effects VALUES ({mine.id})")
            await got(mine.complete(tx=tx))

    with pytest.raises(StaleOwner):
        await finish(late)
    assert shop.execute("SELECT * FROM effects") == []
    await finish(job)
    assert len(shop.execute("SELECT * FROM effects")) == 1
    assert (await got(jobs.counts()))["done"] == 1


async def test_enqueued_only_if_the_transaction_commits(jobs: Any, shop: Shop) -> None:
    """With ``tx`` a job is there when the user's own rows are."""

    async def change_of_mind() -> None:
        async with shop.transaction() as tx:
            await got(jobs.enqueue("never", tx=tx))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await change_of_mind()
    async with shop.transaction() as tx:
        await got(jobs.enqueue("really", tx=tx))
        await got(jobs.enqueue_many(["too"], tx=tx))
    assert (await got(jobs.counts()))["ready"] == 2


async def test_the_first_call_may_be_in_a_transaction(jobs: Any, shop: Shop) -> None:
    """A program that has done nothing yet looks at the table through the user's own connection."""
    fresh = shop.jobs()
    async with shop.transaction() as tx:
        await got(fresh.enqueue("work", key="once", tx=tx))
        assert await got(fresh.enqueue("work", key="once", tx=tx)) == 1
