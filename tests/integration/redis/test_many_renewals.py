"""Ten thousand leases of one process, renewed in bulk by a real server: stolen, deleted, unanswered, and beside a
server that hangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

import leasehold
from leasehold._runtime.schedule import FEW
from leasehold.stores.redis import protocol
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.servers.redis import RedisServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

COUNT = 10_000
TTL = 60


class Holder:
    """Holds many leases. The test does the rounds of its watchdog."""

    def __init__(self, hold: leasehold.Leasehold, count: int) -> None:
        self.watchdog = hold._engine.watchdog
        self.watchdog.pause()
        taken = [hold.lock("many", number, ttl=TTL).acquire() for number in range(count)]
        self.leases: list[Any] = [lease for lease in taken if lease is not None]

    def renew(self) -> None:
        """One round over all of them."""
        with self.watchdog.transitions:
            leases = self.watchdog.leases()
            for held in leases:
                held.renew_at = 0.0
            self.watchdog._schedule.move(leases, self.watchdog._clock.now())
        self.watchdog._round()

    def states(self) -> Counter[str]:
        """How many leases are in which state."""
        return Counter(lease.state for lease in self.leases)


@contextmanager
def holding(url: str, count: int) -> Iterator[Holder]:
    """Until the end of the block."""
    with leasehold.connect(url) as hold:
        yield Holder(hold, count)


def left_ms(client: redis.Redis, numbers: range) -> list[int]:
    """How long the store keeps each of them."""
    with client.pipeline(transaction=False) as pipe:
        for number in numbers:
            pipe.pttl(f"lock:v1:{{many:{number}}}:owner")
        found: list[int] = pipe.execute()
    return found


def shorten(client: redis.Redis, numbers: range) -> None:
    """As if most of their time had passed."""
    with client.pipeline(transaction=False) as pipe:
        for number in numbers:
            pipe.pexpire(f"lock:v1:{{many:{number}}}:owner", TTL * 500)
        pipe.execute()


def delete(client: redis.Redis, number: int) -> None:
    """Everything that is stored of it."""
    client.delete(*client.keys(f"lock:v1:{{many:{number}}}:*"))


def test_all_are_renewed_but_for_those_that_were_stolen_or_deleted(redis_server: RedisServer, redis_url: str) -> None:
    """The reply names only these, and each of them learns why; of ten thousand others none is lost."""
    client = redis_server.client()
    stolen, deleted = (3, FEW - 1, 5_000, COUNT - 1), (0, FEW, 7_777)
    with holding(redis_url, COUNT) as holder, leasehold.connect(redis_url) as thief:
        holder.renew()  # the server knows the script
        shorten(client, range(COUNT))
        for number in (*stolen, *deleted):
            delete(client, number)
        kept = [thief.lock("many", number, ttl=TTL).acquire(wait=0) for number in stolen]
        before = [lease.deadline for lease in holder.leases]
        client.config_resetstat()
        holder.renew()
        calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert calls <= COUNT // FEW + 2 * len((*stolen, *deleted))
        assert holder.states() == {"held": COUNT - 7, "lost": 7}
        assert {holder.leases[number]._held.reason for number in stolen} == {"taken"}
        assert {holder.leases[number]._held.reason for number in deleted} == {"deleted"}
        assert all(lease.lost.is_set() == (lease.state == "lost") for lease in holder.leases)
        moved = [lease.deadline > old for lease, old in zip(holder.leases, before, strict=True)]
        assert moved == [lease.state == "held" for lease in holder.leases]
        ours = [at for at, lease in enumerate(holder.leases) if lease.state == "held"]
        left = left_ms(client, range(COUNT))
        assert min(left[at] for at in ours) > TTL * 500
        assert [lease.state for lease in kept if lease is not None] == ["held"] * len(stolen)


def test_a_lost_reply_leaves_each_deadline_as_it_was(redis_server: RedisServer, proxy: Proxy) -> None:
    """Batches that were answered before count; the others are unsure, and renewed in the next round."""
    marks = [protocol.RENEW_MANY.sha.encode(), b"local function script"]
    seen: list[bytes] = []

    def after_a_few(chunk: bytes) -> Verdict:
        if any(mark in chunk for mark in marks):
            seen.append(chunk)
        return "drop_reply" if len(seen) > 3 else "pass"

    count = 16 * FEW
    with holding(proxy.url, count) as holder:
        holder.renew()  # the server knows the script, and the connection is there
        assert holder.states() == {"held": count}
        before = [lease.deadline for lease in holder.leases]
        proxy.on_request = after_a_few
        holder.renew()
        states = holder.states()
        assert states["unsure"] >= FEW and states["held"] + states["unsure"] == count
        for lease, old in zip(holder.leases, before, strict=True):
            assert lease.deadline == old if lease.state == "unsure" else lease.deadline > old
        proxy.on_request = None
        proxy.release()
        holder.renew()
        assert holder.states() == {"held": count}
        assert all(lease.deadline > old for lease, old in zip(holder.leases, before, strict=True))


def test_a_script_that_the_server_forgot_is_sent_again(redis_server: RedisServer, redis_url: str) -> None:
    """After a restart, say: once for all batches of a round."""
    count = 10 * FEW
    with holding(redis_url, count) as holder:
        before = [lease.deadline for lease in holder.leases]
        redis_server.client().script_flush()
        holder.renew()
        assert holder.states() == {"held": count}
        assert all(lease.deadline > old for lease, old in zip(holder.leases, before, strict=True))


def test_a_server_that_hangs_delays_no_other_coordinator(
    own_redis: Callable[[], RedisServer], redis_server: RedisServer, redis_url: str
) -> None:
    """Thousands of renewals wait for a frozen server; the leases of another coordinator of this process are renewed
    meanwhile, again and again."""
    frozen = own_redis()
    with leasehold.connect(frozen.url) as slow, leasehold.connect(redis_url) as fast:
        many = [slow.lock("many", number, ttl=TTL).acquire() for number in range(3_000)]
        lease = fast.lock("job", ttl=2).acquire()
        assert lease is not None
        watchdog = slow._engine.watchdog
        frozen.freeze()
        with watchdog.transitions:
            for held in watchdog.leases():
                held.renew_at = 0.0
                watchdog.check_again(held)
        until(lambda: all(one is not None and one.state == "unsure" for one in many), "none is answered")
        for _ in range(3):
            before = lease.deadline
            until(lambda before=before: lease.deadline > before, "it is renewed")  # type: ignore[misc]
        assert lease.state == "held"
        assert {one.state for one in many if one is not None} == {"unsure"}
        frozen.thaw()
        until(lambda: all(one is not None and one.state == "held" for one in many), "all are renewed")


def test_a_lease_that_is_acquired_while_others_hang_is_renewed_in_time(proxy: Proxy) -> None:
    """The thread that waits for thousands of replies comes back before a short lease needs it."""
    with leasehold.connect(proxy.url) as hold:
        many = [hold.lock("many", number, ttl=TTL).acquire() for number in range(1_000)]
        short = hold.lock("short", ttl=2).acquire()
        assert short is not None
        watchdog = hold._engine.watchdog
        seen: list[bytes] = []

        def lose_one(chunk: bytes) -> Verdict:
            if protocol.RENEW_MANY.sha.encode() in chunk and not seen:
                seen.append(chunk)
                return "drop_reply"
            return "pass"

        proxy.on_request = lose_one
        with watchdog.transitions:
            for held in watchdog.leases():
                held.renew_at = 0.0
                watchdog.check_again(held)
        before = short.deadline
        until(lambda: short.deadline > before, "the short one is renewed")
        until(lambda: all(one is not None and one.state == "held" for one in many), "all are")
        assert seen and short.state == "held"
