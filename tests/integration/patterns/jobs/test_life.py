"""The life of a job, on every database, on threads and event loops: retries, takeovers, queues, and its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leasehold import Backoff, InvalidRequest, StaleOwner
from leasehold.observe.events import JobMoved
from leasehold.patterns import Jobs
from tests.support.patterns.jobs.shops import Shop, got

RETRY = Backoff(base=60, cap=60, attempts=2)


@pytest.fixture
async def jobs(store: Shop) -> Any:
    """A table that we made."""
    jobs = store.jobs(retry=RETRY)
    await got(jobs.create())
    return jobs


async def test_queues(jobs: Any, store: Shop) -> None:
    """Who names a queue gets only what is in it; who names none gets all."""
    await got(jobs.enqueue(1, queue="mail"))
    await got(jobs.enqueue(2))
    assert await got(jobs.claim("print")) is None
    assert (await got(jobs.claim("mail"))).payload == 1
    assert (await got(jobs.claim())).payload == 2


async def test_late_but_not_replaced_is_still_the_owner(jobs: Any, store: Shop) -> None:
    """A lease that ran out lets others take over; until one does, its owner may complete."""
    await got(jobs.enqueue("work"))
    job = await got(jobs.claim())
    store.expire()
    assert (await got(jobs.counts()))["expired"] == 1
    await got(job.complete())
    assert (await got(jobs.counts()))["done"] == 1


async def test_a_heartbeat_keeps_it(jobs: Any, store: Shop) -> None:
    """Nobody takes over what was prolonged in time."""
    await got(jobs.enqueue("work"))
    job = await got(jobs.claim())
    store.expire()
    await got(job.heartbeat())
    assert await got(jobs.claim()) is None
    await got(job.heartbeat("10m"))
    assert 590 < job.remaining() <= 600


async def test_observers_are_told_what_was_taken_over(store: Shop) -> None:
    """Of several jobs that are claimed in one step, those whose worker's lease ran out are told apart."""
    told: list[Any] = []
    jobs = store.jobs(observers=[told.append])
    await got(jobs.create())
    await got(jobs.enqueue_many(range(6)))
    first, *_ = await got(jobs.claim_many(3))
    store.expire()
    assert len(await got(jobs.claim_many(5))) == 5
    with pytest.raises(StaleOwner):
        await got(first.complete())
    outcomes = [event.outcome for event in told if isinstance(event, JobMoved)]
    assert outcomes[:3] == ["claimed"] * 3 and outcomes[8:] == ["refused"]
    assert sorted(outcomes[3:8]) == ["claimed"] * 2 + ["taken_over"] * 3


async def test_repeating_the_end_is_the_same(jobs: Any, store: Shop) -> None:
    """Whoever does not know whether it was completed completes again; but nothing else comes after the end."""
    await got(jobs.enqueue("work"))
    job = await got(jobs.claim())
    await got(job.complete("first"))
    await got(job.complete("first"))
    with pytest.raises(StaleOwner, match="done already"):
        await got(job.fail("no"))
    assert (await got(jobs.get(job.id))).result == "first"


async def test_failures_are_tried_again_and_then_dead(jobs: Any, store: Shop) -> None:
    """After a pause, as often as the Backoff says; then the job is dead, with its error, until somebody revives it."""
    await got(jobs.enqueue("work"))
    job = await got(jobs.claim())
    await got(job.fail(ValueError("no paper")))
    assert await got(jobs.claim()) is None  # it is not due yet
    store.due()
    job = await got(jobs.claim())
    assert (job.attempts, job.error) == (2, "ValueError: no paper")
    await got(job.fail("still none"))
    [dead] = await got(jobs.dead())
    assert (dead.id, dead.state, dead.error, dead.attempts) == (job.id, "dead", "still none", 2)
    with pytest.raises(InvalidRequest, match="looked at"):
        await got(dead.complete())
    assert await got(jobs.retry_dead(job.id)) is True
    assert await got(jobs.retry_dead(job.id)) is False
    assert (await got(jobs.claim())).attempts == 1


async def test_fail_without_retry_is_dead_at_once(jobs: Any, store: Shop) -> None:
    """Some errors do not pass."""
    await got(jobs.enqueue("work"))
    await got((await got(jobs.claim())).fail("no such report", retry=False))
    assert (await got(jobs.counts()))["dead"] == 1


async def test_poison_is_buried(jobs: Any, store: Shop) -> None:
    """A job whose workers vanish each time is dead after the last attempt, and nobody gets it again."""
    await got(jobs.enqueue("poison"))
    await got(jobs.enqueue("good", delay="1h"))
    for attempt in (1, 2):
        job = await got(jobs.claim())
        assert (job.payload, job.attempts) == ("poison", attempt)
        store.expire()
    store.due()
    assert (await got(jobs.claim())).payload == "good"
    [dead] = await got(jobs.dead())
    assert dead.payload == "poison" and dead.attempts == 2 and "vanished" in dead.error
    with pytest.raises(StaleOwner):
        await got(job.fail("dead, but not by its word", retry=False))
    with pytest.raises(StaleOwner):
        await got(job.complete())


async def test_some_of_many_without_a_payload(jobs: Any, store: Shop) -> None:
    """Each keeps its own."""
    await got(jobs.enqueue_many([None, {"report": 1}, None, 2]))
    assert [job.payload for job in await got(jobs.claim_many(9))] == [None, {"report": 1}, None, 2]


async def test_given_back_does_not_count(jobs: Any, store: Shop) -> None:
    """Released, a job is there for others at once, with all its attempts, under another version."""
    await got(jobs.enqueue("work"))
    job = await got(jobs.claim())
    await got(job.release())
    again = await got(jobs.claim())
    assert (again.id, again.version, again.attempts) == (job.id, 2, 1)
    with pytest.raises(StaleOwner):
        await got(job.complete())


async def test_purge(jobs: Any, store: Shop) -> None:
    """What ended long enough ago goes, and its key is free again."""
    first = await got(jobs.enqueue("work", key="once"))
    await got(jobs.enqueue("stays"))
    await got((await got(jobs.claim())).complete())
    assert await got(jobs.purge("1h")) == 0
    assert await got(jobs.purge(0)) == 1
    assert await got(jobs.get(first)) is None
    assert await got(jobs.enqueue("work", key="once")) not in (first, None)


async def test_work_until_nothing_is_due(jobs: Any, store: Shop) -> None:
    """Each job once; what the function returns is kept, what it raises is the error, and the loop goes on."""
    ids = await got(jobs.enqueue_many(range(6)))

    def perform(job: Any) -> int:
        if job.payload == 3:
            raise ValueError("three")
        return int(job.payload) * 10

    async def later(job: Any) -> int:
        return perform(job)

    assert await got(jobs.work(later if store.awaited else perform, drain=True)) == 5
    assert (await got(jobs.counts()))["done"] == 5
    assert (await got(jobs.get(ids[2]))).result == 20
    assert (await got(jobs.get(ids[3]))).error == "ValueError: three"


async def test_a_deleted_row_is_nobodys(jobs: Any, store: Shop) -> None:
    """The worker of a job that somebody has deleted is told, and makes no new one."""
    await got(jobs.enqueue("work"))
    job = await got(jobs.claim())
    store.execute("DELETE FROM jobs")
    with pytest.raises(StaleOwner, match="gone"):
        await got(job.complete())
    assert store.execute("SELECT * FROM jobs") == []


async def test_create_twice(jobs: Any, store: Shop) -> None:
    """A table that is there stays, with its jobs."""
    await got(jobs.enqueue("work"))
    await got(jobs.create())
    assert (await got(jobs.counts()))["ready"] == 1


@pytest.mark.slow
async def test_many_workers_at_once(store: Shop) -> None:
    """Each job is done by one of them, while others are put in; nobody stumbles over anybody."""
    jobs, begun = store.jobs(), []
    await got(jobs.create())
    await got(jobs.enqueue_many(range(20)))

    def perform(job: Any) -> None:
        begun.append(job.payload)
        if job.payload < 10:
            Jobs(store.connect).enqueue(job.payload + 100)

    async def later(job: Any) -> None:
        await asyncio.to_thread(perform, job)

    assert await got(jobs.work(later if store.awaited else perform, drain=True, concurrency=4)) == 30
    assert sorted(begun) == [*range(20), *range(100, 110)]
    assert (await got(jobs.counts()))["done"] == 30
