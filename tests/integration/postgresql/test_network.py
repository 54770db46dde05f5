"""A bad network between clients and the server: replies that are lost, late or doubled, requests that arrive late,
connections that are cut, and notifications that nobody gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import leasehold
from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold._core import policy
from leasehold.stores.postgresql.store import PostgresStore
from tests.integration.postgresql.network import Network, rows
from tests.support.parties import FLAVOURS, Party
from tests.support.servers.database import Database
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

TTL = 600.0  # seconds: nothing that is left behind is hidden by expiry
LOST = pytest.mark.parametrize("lost", ["cut_reply", "drop_reply"])
# The same for requests that wait for their replies for five seconds.
LOST_LONG = pytest.mark.parametrize("lost", ["cut_reply", pytest.param("drop_reply", marks=pytest.mark.soak)])
Open = Callable[..., Party]


@pytest.fixture(params=FLAVOURS)
def party(request: pytest.FixtureRequest, network: Network) -> Iterator[Open]:
    """Makes parties of one flavour, behind the network unless told otherwise."""
    with ExitStack() as stack:

        def make(url: str | None = None) -> Party:
            made = FLAVOURS[request.param](PostgresStore(url or network.url))
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def other(postgres_database: Database) -> Iterator[leasehold.Leasehold]:
    """Somebody with a good network."""
    with leasehold.connect(postgres_database.url) as other:
        yield other


def acquire(hold: Any, wait: float = 0) -> Any:
    """The lease that all of these tests are about."""
    return hold.lock("job", ttl=TTL).acquire(wait=wait)


def warm(party: Party) -> None:
    """Connected, and the table is there."""
    party.do(lambda hold: hold.lock("first", ttl=TTL).acquire(wait=0))


def waiters(hold: leasehold.Leasehold) -> int:
    """How many wait for it."""
    return len(hold.inspect("job").waiters)


def waits(party: Party, other: leasehold.Leasehold) -> Future[Any]:
    """A claim that stands in the queue."""
    before = waiters(other)
    claim = party.start(lambda hold: acquire(hold, PATIENCE))
    until(lambda: waiters(other) == before + 1, "it waits")
    return claim


def free_for(other: leasehold.Leasehold, above: int = 0) -> None:
    """Nothing is held: another gets it, with a higher fence, and nobody is left in the queue."""
    lease = acquire(other, PATIENCE)
    assert lease.fence > above and lease.release() is True
    assert waiters(other) == 0


# ---------------------------------------------------------------- replies that are lost


@LOST
def test_the_reply_to_a_claim_is_lost(party: Open, network: Network, other: leasehold.Leasehold, lost: Any) -> None:
    """Whether it was granted is unknown to the caller, and soon nothing is held."""
    one = party()
    warm(one)
    network.plan("claim", lost, 1)
    with pytest.raises(OutcomeUnknown):
        one.do(acquire)
    free_for(other)


@LOST_LONG
def test_the_reply_to_a_release_is_lost(party: Open, network: Network, other: leasehold.Leasehold, lost: Any) -> None:
    """It was released once, whatever the caller hears."""
    one = party()
    warm(one)
    lease = one.do(acquire)
    network.plan("release", lost, 1)
    try:
        one.do(lambda _: lease.release())
    except OutcomeUnknown:
        pass
    free_for(other, lease.fence)


def test_the_reply_to_a_release_is_lost_and_another_has_it_by_then(
    party: Open, network: Network, other: leasehold.Leasehold
) -> None:
    """Who releases again releases nobody else."""
    one = party()
    warm(one)
    lease = one.do(acquire)
    network.plan("release", "hold_reply", 1)
    release = one.start(lambda _: lease.release())
    theirs = acquire(other, PATIENCE)
    network.heal()
    try:
        release.result(PATIENCE)
    except OutcomeUnknown:
        pass
    one.do(lambda hold: hold.lock("first").locked())
    assert theirs.release() is True


@LOST_LONG
def test_the_reply_to_a_commit_is_lost_when_a_claim_joins_the_queue(
    party: Open, network: Network, other: leasehold.Leasehold, lost: Any
) -> None:
    """It has one place in the queue, and gets the lease."""
    lease = acquire(other)
    one = party()
    warm(one)
    network.plan("commit", lost, 1)
    claim = waits(one, other)
    until(lambda: network.seen.count("lock") > 1, "it has asked again")
    assert waiters(other) == 1
    lease.release()
    granted = claim.result(PATIENCE)
    assert granted.fence > lease.fence
    assert one.do(lambda _: granted.release()) is True
    free_for(other, granted.fence)


@LOST_LONG
def test_the_reply_to_a_commit_is_lost_when_a_lease_is_handed_over(
    party: Open, network: Network, other: leasehold.Leasehold, lost: Any, postgres_database: Database
) -> None:
    """The next has it, and who released it takes it from nobody."""
    one, two = party(), party(postgres_database.url)
    warm(one)
    lease = one.do(acquire)
    claim = waits(two, other)
    network.plan("commit", lost, 1)
    try:
        one.do(lambda _: lease.release())
    except OutcomeUnknown:
        pass
    granted = claim.result(PATIENCE)
    assert granted.fence > lease.fence
    assert two.do(lambda _: granted.release()) is True
    free_for(other, granted.fence)


def test_every_reply_is_lost_for_a_while(party: Open, network: Network, other: leasehold.Leasehold) -> None:
    """A claim that cannot be withdrawn either is withdrawn when the network is good again."""
    one = party()
    warm(one)
    network.plan("claim", "cut_reply")
    network.plan("commit", "cut_request")
    with pytest.raises((OutcomeUnknown, StoreUnavailable)):
        one.do(acquire)
    assert [row for row in rows(network.database) if row[0] == "job" and row[1]], "it was granted"
    network.heal()
    free_for(other)


# ---------------------------------------------------------------- what arrives late, or twice


def test_a_claim_arrives_after_it_was_withdrawn(party: Open, network: Network, other: leasehold.Leasehold) -> None:
    """It takes nothing."""
    one = party()
    warm(one)
    network.plan("claim", "hold", 1)
    with pytest.raises(OutcomeUnknown):
        one.do(acquire)
    until(lambda: "commit" in network.seen, "it is withdrawn")
    until(lambda: rows(network.database)[-1][2], "and the database knows")
    network.heal()
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
    with psycopg.connect(network.database.dsn, autocommit=True) as look:
        until(lambda: look.execute(sessions).fetchone() == (1,), "what was late is done")
    assert other.inspect("job").holder is None
    free_for(other)


def test_a_reply_comes_twice(party: Open, network: Network, other: leasehold.Leasehold) -> None:
    """Nobody takes the second for the reply to another request: a refusal is a refusal."""
    one = party()
    warm(one)
    network.plan("claim", "double_reply", 1)
    first = one.do(lambda hold: hold.lock("twice", ttl=TTL).acquire(wait=0))
    lease = acquire(other)
    assert one.do(acquire) is None
    assert lease.release() is True
    assert one.do(lambda _: first.release()) is True
    assert other.lock("twice").try_acquire() is not None


# ---------------------------------------------------------------- a network that is gone for a while


@pytest.mark.parametrize("trouble", ["cut", "blackhole", "refuse"])
def test_a_waiter_is_granted_after_healing(
    party: Open, network: Network, other: leasehold.Leasehold, trouble: str
) -> None:
    """It keeps its place, or takes it again, and is granted what was released meanwhile."""
    lease = acquire(other)
    one = party()
    warm(one)
    claim = waits(one, other)
    getattr(network, trouble)()
    if trouble == "refuse":
        network.cut()
    lease.release()
    network.heal()
    network.cut()
    network.accept()
    granted = claim.result(PATIENCE)
    assert granted.fence > lease.fence
    try:
        one.do(lambda _: granted.release())
    except OutcomeUnknown:  # it was granted before the last cut
        pass
    free_for(other, granted.fence)


# ---------------------------------------------------------------- notifications


def test_every_notification_is_lost(
    party: Open, network: Network, other: leasehold.Leasehold, postgres_database: Database
) -> None:
    """A waiter that is believed to listen and hears nothing finds its grant by a beat."""
    lease = acquire(other)
    one = party(f"{postgres_database.url}?listen={network.url}")
    claim = waits(one, other)
    assert "listen" in network.seen
    network.hold_replies()
    lease.release()
    assert claim.result(PATIENCE).fence > lease.fence
    until(lambda: network.waiting > 0, "it was told, and did not hear")


def test_the_session_that_listens_is_cut(
    party: Open,
    network: Network,
    other: leasehold.Leasehold,
    postgres_database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another one listens soon, and a waiter that never asks again hears of its grant there."""
    lease = acquire(other)
    one = party(f"{postgres_database.url}?listen={network.url}")
    claim = waits(one, other)
    until(lambda: len(advisory_locks(postgres_database)) == 2, "both listen")
    before = advisory_locks(postgres_database)
    monkeypatch.setattr(policy, "beat_every_ms", lambda ttl_ms: 600_000)
    network.cut()
    until(lambda: network.seen.count("listen") == 2, "it listens again")
    until(lambda: advisory_locks(postgres_database) == before, "and others can see it")
    lease.release()
    assert claim.result(PATIENCE).fence > lease.fence


def advisory_locks(database: Database) -> list[Any]:
    """One for each session that listens."""
    with psycopg.connect(database.dsn, autocommit=True) as look:
        locks = "SELECT classid, objid FROM pg_locks WHERE locktype = 'advisory' AND granted ORDER BY 1, 2"
        return look.execute(locks).fetchall()
