"""One worker: takes a report that no other worker holds, exports it, takes the next.

Its environment names the store of the leases, LEASEHOLD_URL and LEASEHOLD_NAMESPACE, and the database of the reports,
DATABASE_URL. After SIGTERM it finishes its report, and ends.

    python -m examples.report_exports.worker REPORTS SECONDS guarded|bare
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import time

import psycopg

import leasehold
from examples.report_exports.app import Exporter, NoGuard, guard
from leasehold.guards.sql import Conflict

TTL = 0.5  # short, so that much happens in ten seconds; 30 is a good value in real life


def turn(hold: leasehold.Leasehold, exporter: Exporter, report: int) -> None:
    """Export one report, if it is our turn within a second."""
    try:
        with hold.lock("report-export", report, ttl=TTL, wait=1, protects="correctness") as lease:
            exporter.export(lease, report)
    except leasehold.NotAcquired:
        pass  # other workers hold this one: take another
    except leasehold.LeaseLost as lost:
        exporter.note("lost", lost.fence, report)  # we noticed ourselves that we were too late
    except leasehold.StaleOwner as stale:
        exporter.note("refused", stale.fence, report)  # we did not notice. The guard did, and rolled everything back
    except (Conflict, psycopg.errors.LockNotAvailable):
        pass  # another transaction was faster, and ours is rolled back: the next turn does it all again
    except (leasehold.StoreUnavailable, leasehold.OutcomeUnknown):
        time.sleep(0.1)  # Redis or PostgreSQL did not reply. We hold nothing, or it expires: try again


def main(reports: int, seconds: float, guarded: bool) -> None:
    """Work until the time is over or SIGTERM arrives."""
    logging.getLogger("leasehold").setLevel(logging.ERROR)  # it warns of each lost lease, and here they are counted
    leaving: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: leaving.append(True))
    end = time.monotonic() + seconds
    with (
        psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection,
        leasehold.connect() as hold,
    ):
        connection.execute("SET lock_timeout = '5s'")  # no worker waits for ever for one that is frozen: Conflict
        exporter = Exporter(connection, guard if guarded else NoGuard())
        while not leaving and time.monotonic() < end:
            turn(hold, exporter, random.randint(1, reports))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), guarded=sys.argv[3] == "guarded")
