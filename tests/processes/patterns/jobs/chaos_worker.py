"""A worker for the chaos: ``python -m tests.processes.patterns.jobs.chaos_worker ADDRESS SEED LEASE [--broken]``.

It writes the effect of each job and completes it in one transaction, and keeps a book of completions that were refused.
``--broken`` forgets the version: what the judge must find.
"""

from __future__ import annotations

import logging
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from leasehold import Backoff, StaleOwner
from leasehold.patterns import Job, Jobs
from leasehold.patterns.jobs.statements import JobStatements

FOR_EVER = Backoff(base=0.01, cap=0.05, attempts=10_000)  # kills count as attempts
EFFECT = "INSERT INTO effects (job_id, version) VALUES ({0}, {0})"
REFUSAL = "INSERT INTO refusals (job_id, version, seen) VALUES ({0}, {0}, {0})"


@contextmanager
def database(address: str) -> Iterator[tuple[Any, Callable[[], Any], str]]:
    """-> an engine for Jobs, what begins a transaction, how values are marked."""
    if address.startswith("postgresql://"):
        from psycopg_pool import ConnectionPool

        with ConnectionPool(address, min_size=1, max_size=3, open=True) as pool:
            yield pool, pool.connection, "%s"
        return

    @contextmanager
    def begin() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(address, timeout=20)) as connection, connection:
            yield connection

    yield lambda: sqlite3.connect(address, timeout=20), begin, "?"


def without_version(phrases: JobStatements) -> str:
    """The rule with its most important part left out. The value is still there, and compared with nothing."""
    return f"{phrases.column('id')} = {phrases.value('id')} AND {phrases.value('version')} > 0"


def main(address: str, seed: str, lease: str, *more: str) -> None:
    """Until SIGTERM."""
    if "--broken" in more:
        setattr(JobStatements, "ours", without_version)  # noqa: B010 - mypy, rightly, would not have it
    logging.disable(logging.CRITICAL)  # refusals are expected here, and counted
    stop, draw = threading.Event(), random.Random(seed)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with database(address) as (engine, begin, mark):
        jobs = Jobs(engine, lease=float(lease), retry=FOR_EVER)

        def perform(job: Job) -> None:
            time.sleep(draw.uniform(0, 0.03))
            try:
                with begin() as tx:
                    tx.execute(EFFECT.format(mark), (job.id, job.version))
                    job.complete(tx=tx)
            except StaleOwner as stale:
                with begin() as tx:
                    tx.execute(REFUSAL.format(mark), (job.id, job.version, stale.seen))
                raise

        jobs.work(perform, stop=stop, poll="50ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
