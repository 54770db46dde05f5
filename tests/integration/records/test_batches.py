"""Renewals of many leases: how many requests the watchdog makes of them, and how many are under way at once."""

from __future__ import annotations

import struct

import leasehold
from leasehold.stores.etcd.transactions import MOST_NESTED
from leasehold.stores.record.store import BATCH
from tests.integration.records.both import Both
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.waiting import until

COUNT = 120  # leases: more than one batch
TTL = 3.0  # seconds: they are due after a third of it
TRANSACTION = b"POST /v3/kv/txn "
MULTI = 14  # the type of a transaction of ZooKeeper
HEADER = struct.Struct("!iii")  # the length of what follows, the number of a request, and its type


class Traffic:
    """Counts the transactions that clients send."""

    def __init__(self, both: Both) -> None:
        self.count = 0
        self._count = self._of_etcd if both.name == "etcd" else self._of_zookeeper
        self._rest = b""

    def __call__(self, chunk: bytes) -> Verdict:
        """One chunk."""
        self.count += self._count(chunk)
        return "pass"

    def _of_etcd(self, chunk: bytes) -> int:
        return chunk.count(TRANSACTION)

    def _of_zookeeper(self, chunk: bytes) -> int:
        """All requests of a process share one connection."""
        self._rest += chunk
        found = 0
        while len(self._rest) >= HEADER.size:
            length, _, kind = HEADER.unpack_from(self._rest)
            if len(self._rest) < length + 4:
                break
            found += kind == MULTI
            self._rest = self._rest[length + 4 :]
        return found


def test_renewals_travel_together(both: Both, proxy: Proxy) -> None:
    """On etcd many are one request. On ZooKeeper each is one, and none waits for the reply to another; but no more than
    a batch is under way at a time. All are renewed."""
    at_once = 1 if both.name == "etcd" else BATCH
    fewest = len([*range(0, BATCH, MOST_NESTED), *range(BATCH, COUNT, MOST_NESTED)]) if both.name == "etcd" else COUNT
    with leasehold.connect(both.through(proxy.port)) as hold:
        locks = [hold.lock("job", number, ttl=TTL) for number in range(COUNT)]
        with hold.acquire_many(locks) as batch:
            deadlines = {lease: lease.deadline for lease in batch.acquired}
            assert len(deadlines) == COUNT
            traffic = proxy.on_request = Traffic(both)
            proxy.hold_replies()
            until(lambda: traffic.count >= at_once, "they are due")
            proxy.settle()
            assert traffic.count == at_once
            proxy.release()
            until(lambda: all(lease.deadline > before for lease, before in deadlines.items()), "all are renewed")
            assert fewest <= traffic.count <= 2 * fewest  # a slow machine may have begun another round by now
