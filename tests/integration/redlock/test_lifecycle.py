"""From the first connection to the last: what is open, and what a fork and an interrupt leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import leasehold
from tests.integration.redlock.stage import OWNER, Stage, acquire, aged
from tests.support.parties import mostly
from tests.support.servers.certificates import Certificates
from tests.support.servers.redis import EVERY
from tests.support.servers.redlock import RedlockServers
from tests.support.sockets import open_sockets
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow


def clients(stage: Stage) -> list[int]:
    """How many connections each node has, without ours."""
    return [
        len([one for one in node.server.client().client_list() if one["id"] != str(node.server.client().client_id())])
        for node in stage.nodes
    ]


def test_close_leaves_no_socket_and_no_thread(three: Stage) -> None:
    """Whatever was under way: a lease that is held, a refused claim, a node that is cut off."""
    threads = set(threading.enumerate())
    one, two = three.party(), three.party()
    before = open_sockets()
    acquire(one)
    assert acquire(two) is None
    three.nodes[2].cut_off()
    assert acquire(two) is None
    for party in (one, two):
        party.close()
    three._parties.clear()
    three.nodes[2].heal()
    three._cut.clear()
    until(lambda: open_sockets() <= before, "all sockets are closed")
    names = ("leasehold-watchdog", "leasehold-withdrawals")
    until(lambda: not [one for one in set(threading.enumerate()) - threads if one.name in names], "all threads ended")
    until(lambda: not any(three.owners()[:2]), "the lease was given back")


def test_no_key_is_without_an_end(three: Stage) -> None:
    """Held, refused, released, withdrawn: every key of ours has a TTL, the marker too."""
    one, two = three.party(), three.party()
    lease = acquire(one, meta={"run": 1}, delay=1)
    assert acquire(two) is None
    one.do(lambda _: lease.release())
    assert one.do(lambda hold: hold.leaks("*")) in ([], ["lock:v1:redlock"])  # the test has written that one itself
    assert acquire(two, at_least=0.2) is not None


def test_a_fork_in_the_middle_of_a_lease() -> None:
    """The child has nothing and can acquire by itself; the parent goes on."""
    with aged(RedlockServers(3)) as servers, leasehold.connect(servers.url) as hold:
        lease: Any = hold.lock("job", ttl=30).acquire()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                lost = lease.state == "lost"
                other = hold.lock("other", ttl=30).acquire(wait=5)
                status = 0 if lost and other is not None and other.release() else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lease.extend(20)
        assert lease.release() is True


class Rung(Exception):
    """Raised by a signal handler."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """A signal that raises, as Ctrl-C does."""

    def ring(*_: object) -> None:
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket that was not stored yet
def test_an_interrupt_leaves_nothing(alarm: None) -> None:
    """At many moments of an acquire: nothing stays on any node, and the next acquire succeeds."""
    with aged(RedlockServers(3)) as servers, leasehold.connect(servers.url) as hold:
        stage = Stage(servers, "sync")
        for number in range(40):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + number * 0.00004)
                with hold.lock("job", ttl=30, wait=5):
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Rung:
                continue
        stage.nothing_left()
        lease = hold.lock("job", ttl=30).acquire(wait=5)
        assert lease is not None and lease.release() is True


def test_a_cancelled_acquire_leaves_nothing() -> None:
    """At many moments: before a node has replied, between the rounds, and while it waits."""

    async def main(url: str) -> None:
        async with leasehold.aio.connect(url) as hold:
            for number in range(40):
                task = asyncio.create_task(hold.lock("job", ttl=30).acquire(wait=5))
                await asyncio.sleep(number * 0.0001)
                task.cancel()
                try:
                    lease = await task
                except asyncio.CancelledError:
                    continue
                assert lease is not None
                await lease.release()

    with aged(RedlockServers(3)) as servers:
        stage = Stage(servers, "asyncio")
        asyncio.run(main(servers.url))
        stage.nothing_left()


def test_a_hundred_tasks_share_one_connection_to_each_node() -> None:
    """Each gets the lock of its own, and the replies of one never go to another."""

    async def work(hold: Any, number: int) -> int:
        async with hold.lock("row", number, ttl=30, wait=20) as lease:
            await asyncio.sleep(0)
            return int(lease.fence)

    async def main(url: str) -> list[int]:
        async with leasehold.aio.connect(url) as hold:
            return await asyncio.gather(*[work(hold, number) for number in range(100)])

    with aged(RedlockServers(3)) as servers:
        assert len(asyncio.run(main(servers.url))) == 100
        assert all(node.link.count <= 3 for node in servers.nodes)


def test_a_hundred_threads_one_winner() -> None:
    """All try at the same time, and nobody twice at the same moment: exactly one gets it. A single try promises less:
    three threads may get one node each, and then none of them has a majority, so they try until one has."""
    with aged(RedlockServers(3)) as servers, leasehold.connect(servers.url) as hold:
        won: list[Any] = []
        barrier = threading.Barrier(100)
        give_up = time.monotonic() + PATIENCE

        def run() -> None:
            barrier.wait()
            while not won and time.monotonic() < give_up:
                with contextlib.suppress(leasehold.StoreUnavailable):  # a hundred at once are too much for it
                    lease = hold.lock("job", ttl=120).acquire(wait=0)
                    if lease is not None:
                        won.append(lease)
                time.sleep(random.uniform(0.02, 0.5))

        threads = [threading.Thread(target=run) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1 and won[0].state == "held"


def test_no_thread_is_started_for_a_node(five: Stage) -> None:
    """One poll serves all nodes, whoever waits: while an acquire waits for five nodes there are no threads but those of
    the party, of the coordinator and of what is withdrawn later."""
    party = five.party()
    lease = acquire(party)
    party.do(lambda _: lease.release())
    before = set(threading.enumerate())
    for node in five.nodes:
        node.link.blackhole()
    waiting = party.start(lambda hold: hold.lock("job", ttl=30).acquire(wait=0))
    seen: set[threading.Thread] = set()
    while not waiting.done():
        seen |= set(threading.enumerate())
        time.sleep(0.01)
    with pytest.raises(leasehold.StoreUnavailable):
        waiting.result()
    assert {thread.name for thread in seen - before} <= {"leasehold-watchdog", "leasehold-withdrawals"}


@pytest.mark.parametrize("silent", [3, 5])
def test_a_claim_waits_for_a_tenth_of_the_ttl(five: Stage, silent: int) -> None:
    """Not longer for nodes that say nothing, and not less: they are given that time. A majority is not there."""
    party = five.party()
    lease = acquire(party)
    party.do(lambda _: lease.release())
    for node in five.nodes[:silent]:
        node.link.blackhole()
    took = []
    for _ in range(5):
        begun = time.monotonic()
        with pytest.raises((leasehold.StoreUnavailable, leasehold.OutcomeUnknown)):
            acquire(party, ttl=2)
        took.append(time.monotonic() - begun)
    assert 0.19 < min(took) < 0.8, took  # a call may take a second and more; the quickest is not that of a busy machine


@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_tls_and_a_password(flavour: str, certificates: Certificates) -> None:
    """For all nodes, by the options and the login of the URL."""
    with aged(RedlockServers(3, login=("secret",), tls=certificates)) as servers:
        hosts = ",".join(f"localhost:{node.link.port}" for node in servers.nodes)
        options = "&".join(f"{name}={value}" for name, value in certificates.arguments().items())
        stage = Stage(servers, flavour, f"redlock://:secret@{hosts}?tls=true&{options}")
        lease = acquire(stage.party())
        assert sum(bool(node.server.client().exists(OWNER)) for node in servers.nodes) >= 2
        assert lease.state == "held"
        stage.close()


@mostly("asyncio")
def test_seven_nodes(flavour: str) -> None:
    """Four decide: three may be lost while a lease is held, and with a fourth nothing is granted."""
    with aged(RedlockServers(7)) as servers:
        stage = Stage(servers, flavour)
        party = stage.party()
        lease = until(lambda: acquire(party), "it is granted")
        until(lambda: all(stage.owners()), "every node has granted it")
        stage.only(0, 1, 2, 3)
        until(lambda: _extended(party, lease), "a majority renews it")
        assert party.do(lambda _: lease.release()) is True
        stage.only(0, 1, 2)
        with pytest.raises(leasehold.StoreUnavailable, match="4 of 7 Redlock nodes do not count, and 4 must"):
            acquire(party)
        stage.close()


def _extended(party: Any, lease: Any) -> bool:
    """A node that gave another fence gets that of the lease with the first renewal, and confirms the next."""
    try:
        party.do(lambda _: lease.extend(20))
    except leasehold.OutcomeUnknown:
        return False
    return True


@mostly("sync")
@pytest.mark.parametrize("program", EVERY, ids=lambda program: program.__name__)
def test_every_kind_of_server_can_be_a_node(program: Callable[[], str], flavour: str) -> None:
    """A lease is granted, renewed, refused to another, given its fence and released; a node that restarted does not
    count."""
    with aged(RedlockServers(3, executable=program())) as servers:
        stage = Stage(servers, flavour)
        one, two = stage.party(), stage.party()
        lease = acquire(one)
        assert acquire(two) is None
        one.do(lambda _: lease.extend(20))
        servers.nodes[0].clock.set_off(0.3)  # its next fence is ahead of the others
        assert one.do(lambda _: lease.release()) is True
        stage.nothing_left()
        stage.only(0, 1)
        again = acquire(two)
        assert again.fence > lease.fence and two.do(lambda _: again.release()) is True
        stage.only(0, 1, 2)
        servers.nodes[0].restart(keep=False)
        servers.nodes[1].restart(keep=False)
        with pytest.raises(leasehold.StoreUnavailable, match="it was started"):
            acquire(stage.party())
        stage.close()


def test_renewals_of_many_leases_travel_together() -> None:
    """A hundred leases outlive their ttl, and each node gets few writes for them."""
    with aged(RedlockServers(3)) as servers, leasehold.connect(servers.url) as hold:
        leases: list[Any] = [hold.lock("row", number, ttl=1.5).acquire() for number in range(100)]
        counts = [0, 0, 0]
        for place, node in enumerate(servers.nodes):

            def count(chunk: bytes, place: int = place) -> str:
                counts[place] += 1
                return "pass"

            node.link.on_request = count  # type: ignore[assignment]  # a verdict
        time.sleep(2)
        assert {lease.state for lease in leases} == {"held"}
        assert max(counts) < 100
