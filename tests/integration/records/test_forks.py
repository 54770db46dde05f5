"""A process that forks with a store on records: the child has a session of its own, and disturbs nobody."""

from __future__ import annotations

import os

import leasehold
from leasehold.stores.record.requests import Server
from tests.integration.records.both import Both, look
from tests.integration.records.test_records import record_name
from tests.support.waiting import until


def in_a_child(hold: leasehold.Leasehold, lease: leasehold.Lease) -> int:
    """What the child finds, as its exit status."""
    if lease.state != "lost":
        return 1
    with hold.lock("of the child", ttl=5) as own:
        if own.fence <= 0:
            return 2
    if hold.lock("report", ttl=5).acquire(wait=0):
        return 3
    return 0


def test_a_fork(both: Both, records: Server) -> None:
    """The parent holds on, and renews; the child has lost it, and takes other locks."""
    with leasehold.connect(both.url) as hold, hold.lock("report", ttl=2) as lease:
        resource = record_name(hold)
        child = os.fork()
        if child == 0:
            status = 9
            try:
                status = in_a_child(hold, lease)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        before = look(records, resource).revision
        until(lambda: look(records, resource).revision != before, "it is renewed by the parent")
        assert lease.state == "held"
        with hold.lock("another", ttl=5) as other:
            assert other.state == "held"
