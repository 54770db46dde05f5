"""Requests that arrive after their sender gave up, and replies that arrive after nobody waits for them."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import leasehold
from leasehold import OutcomeUnknown
from leasehold._core.ops import Claim, Granted, Inspect, View
from leasehold.stores.redis import RedisStore
from tests.support.parties import Party
from tests.support.redis.stage import SLACK, Stage, ask, extend, give_back, now
from tests.support.waiting import PATIENCE, until, until_async

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hasty")]


def gives_up(party: Party, ttl: float, wait: float) -> None:
    """It waits in vain; where a busy machine answers its last question too late, it cannot know that."""
    with contextlib.suppress(OutcomeUnknown):
        assert party.do(lambda hold: hold.lock("job", ttl=ttl).acquire(wait=wait)) is None


# ---------------------------------------------------------------- claims


@pytest.mark.parametrize("wait", [0, 0.2])
def test_a_late_claim_takes_nothing(stage: Stage, wait: float) -> None:
    """It finds a tombstone, whether it would have been granted or put into the queue."""
    party = stage.connected()
    stage.aim.hold("claim", 9)
    with pytest.raises(OutcomeUnknown):
        party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=wait))
    until(lambda: "withdrawn" in stage.look.ended().values(), "it is withdrawn on another connection")
    stage.deliver()
    assert stage.look.leftovers() == []


def test_a_late_claim_does_not_queue(stage: Stage) -> None:
    """Others hold and wait: whoever gave up does not come back among them."""
    party, other = stage.connected(), stage.other()
    lease = other.do(lambda hold: hold.lock("job", ttl=30).acquire())
    stage.aim.hold("claim", 9)
    with pytest.raises(OutcomeUnknown):
        party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=0.2))
    until(lambda: "withdrawn" in stage.look.ended().values(), "it is withdrawn")
    stage.deliver()
    assert stage.look.queue() == [] and stage.look.holder() == lease.owner


def test_a_late_claim_after_the_same_owner_has_released(stage: Stage) -> None:
    """The second try was granted and given back; then the first arrives. An owner has one grant in its life."""
    party = stage.party()
    stage.aim.hold("claim")
    lease = party.do(lambda hold: hold.lock("job", ttl=1.5).acquire(wait=PATIENCE))
    assert stage.aim.seen["claim"] >= 2
    give_back(party, lease)
    stage.deliver()
    assert stage.look.leftovers() == [] and stage.look.ended() == {lease.owner: "released"}


def test_a_late_claim_while_the_same_owner_holds(stage: Stage) -> None:
    """It changes nothing: neither fence nor time."""
    party = stage.party()
    stage.aim.hold("claim")
    lease = party.do(lambda hold: hold.lock("job", ttl=30, renew=False).acquire(wait=PATIENCE))
    before = stage.look.left_ms()
    stage.deliver()
    assert stage.look.holder() == lease.owner and stage.look.fence() == lease.fence
    assert stage.look.left_ms() <= before
    stage.look.honest(lease)


async def test_a_cancelled_claim_that_is_late(async_stage: Stage) -> None:
    """The task is cancelled while its claim is in the network (trap 9); the claim arrives after the withdrawal."""
    stage = async_stage
    async with leasehold.aio.connect(stage.proxy.url) as hold:
        stage.aim.hold("claim")
        task = asyncio.create_task(hold.lock("job", ttl=30).acquire())
        await until_async(lambda: stage.aim.seen["claim"] >= 1, "it is under way")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_async(lambda: "withdrawn" in stage.look.ended().values(), "it is withdrawn")
        stage.deliver()
        assert stage.look.leftovers() == []


# ---------------------------------------------------------------- endings


def test_a_late_release_frees_nobody_else(stage: Stage) -> None:
    """Given up, repeated and confirmed; somebody else holds when the first one arrives (traps 8, 11)."""
    party, other = stage.party(), stage.other()
    lease = party.do(lambda hold: hold.lock("job", ttl=30).acquire())
    stage.aim.hold("release")
    with pytest.raises(OutcomeUnknown):
        party.do(lambda _: lease.release())
    give_back(party, lease)
    mine = other.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=PATIENCE))
    stage.deliver()
    assert stage.look.holder() == mine.owner
    give_back(other, mine)


def test_a_late_release_after_the_body(stage: Stage) -> None:
    """The same at the end of ``with``: the release in the background was first, and a successor is safe."""
    party, other = stage.party(), stage.other()
    stage.aim.hold("release")
    party.within(lambda hold: hold.lock("job", ttl=30), lambda lease: None).result(PATIENCE)
    mine = other.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=PATIENCE))
    assert mine is not None
    stage.deliver()
    assert stage.look.holder() == mine.owner
    give_back(other, mine)


def test_a_late_withdrawal_removes_nobody_else(stage: Stage) -> None:
    """Whoever gave up comes back as a new owner before its withdrawal arrives: the new place stays."""
    party, other = stage.party(), stage.other()
    lease = other.do(lambda hold: hold.lock("job", ttl=30).acquire())
    stage.aim.hold("withdraw")
    gives_up(party, 30, 0.1)
    gone = set(stage.look.queue())
    again = party.start(lambda hold: hold.lock("job", ttl=30).acquire(wait=PATIENCE))
    until(lambda: bool(set(stage.look.queue()) - gone), "it is back")
    stage.deliver()
    until(lambda: len(stage.look.queue()) == 1, "with one place")
    give_back(other, lease)
    assert again.result(PATIENCE).owner == stage.look.holder()


# ---------------------------------------------------------------- signs of life


def test_a_late_beat_brings_nobody_back(stage: Stage) -> None:
    """A beat never creates (trap 26): it arrives after the withdrawal, and the queue stays empty."""
    party, other = stage.party(), stage.other()
    lease = other.do(lambda hold: hold.lock("job", ttl=30).acquire())
    stage.aim.hold("beat")
    gives_up(party, 0.6, 0.7)
    until(lambda: stage.look.queue() == [], "it is withdrawn")
    stage.deliver()
    assert stage.look.queue() == [] and stage.look.holder() == lease.owner


def test_a_late_renewal_helps_nobody(stage: Stage) -> None:
    """Tried again and confirmed, then given back: the late one neither revives it nor touches the successor."""
    party, other = stage.party(), stage.other()
    lease = party.do(lambda hold: hold.lock("job", ttl=3).acquire())
    stage.aim.hold("renew")
    until(lambda: stage.aim.seen["renew"] >= 2 and lease.state == "held", "the second try is confirmed")
    give_back(party, lease)
    mine = other.do(lambda hold: hold.lock("job", ttl=30, renew=False).acquire(wait=PATIENCE))
    before = stage.look.left_ms()
    stage.deliver()
    assert stage.look.holder() == mine.owner and stage.look.left_ms() <= before


def test_trap_44_a_late_extend_shortens_nothing(stage: Stage) -> None:
    """A shorter end, given up and replaced by a longer one: when it arrives it is too old to count."""
    party = stage.party()
    lease = party.do(lambda hold: hold.lock("job", ttl=10).acquire())
    stage.aim.hold("renew")
    with pytest.raises(OutcomeUnknown):
        party.do(lambda _: lease.extend(5))
    extend(party, lease, 30)
    stage.deliver()
    assert stage.look.left_ms() > 25_000 and lease.remaining() > 20
    stage.look.honest(lease)


def test_a_late_extend_is_not_outlived(stage: Stage) -> None:
    """A shorter end that arrives late and still counts: it was believed from the moment it was sent."""
    party = stage.party()
    lease = party.do(lambda hold: hold.lock("job", ttl=10, renew=False).acquire())
    stage.aim.hold("renew")
    with pytest.raises(OutcomeUnknown):
        party.do(lambda _: lease.extend(2))
    believed = lease.deadline
    stage.deliver()
    assert stage.look.left_ms() <= 2_000 and lease.deadline == believed
    stage.look.honest(lease)


# ---------------------------------------------------------------- replies


async def test_late_replies_are_not_mixed_up(async_stage: Stage) -> None:
    """Many tasks share a connection; some give up. When the replies come after all, each goes to its own question."""
    stage = async_stage
    store = RedisStore(f"{stage.proxy.url}?client_name=app")
    connection = store.listen(lambda push: None)
    try:
        first = await connection.execute_async(Claim("job:0", "host:1:a", 30_000))
        assert isinstance(first, Granted)
        stage.proxy.hold_replies()
        asked = [
            asyncio.create_task(connection.execute_async(Claim(f"job:{number}", "host:1:a", 30_000, budget_ms=budget)))
            for number, budget in enumerate([50, 30_000] * 20, start=1)
        ]
        await until_async(lambda: stage.look.served() == 41, "all are done")
        await asyncio.wait(asked[::2])  # those that give up
        stage.proxy.release()
        replies = await asyncio.gather(*asked, return_exceptions=True)
        for number, reply in enumerate(replies, start=1):
            if number % 2:
                assert isinstance(reply, OutcomeUnknown)
            else:
                assert isinstance(reply, Granted) and reply.fence == stage.look.fence(f"job:{number}")
        for number in range(1, 41):
            view = await connection.execute_async(Inspect(f"job:{number}"))
            assert isinstance(view, View) and view.holders[0].fence == stage.look.fence(f"job:{number}")
        await until_async(lambda: stage.look.connections("app") == 1, "the connection that was in doubt is closed")
    finally:
        store.close()
        await until_async(lambda: stage.look.connections("app") == 0, "the other one, too")


async def test_a_connection_in_doubt_is_closed_with_the_others(async_stage: Stage) -> None:
    """One request was given up and another is still waited for: close() ends that connection at once."""
    stage = async_stage
    store = RedisStore(f"{stage.proxy.url}?client_name=app")
    connection = store.listen(lambda push: None)
    await connection.execute_async(Inspect("job"))
    stage.proxy.hold_replies()
    asked = [asyncio.create_task(connection.execute_async(Inspect("job", budget_ms=budget))) for budget in (50, 50_000)]
    assert isinstance((await asyncio.gather(asked[0], return_exceptions=True))[0], OutcomeUnknown)
    store.close()
    begun = now()
    assert isinstance((await asyncio.gather(asked[1], return_exceptions=True))[0], OutcomeUnknown)
    assert now() - begun < SLACK


def test_a_late_reply_is_not_taken_for_another(stage: Stage) -> None:
    """A reply that comes after its question was given up does not answer the next one."""
    party = stage.party()
    party.do(lambda hold: ask(hold, Claim("one", "host:1:a", 30_000)))
    stage.proxy.hold_replies()
    with pytest.raises(OutcomeUnknown):
        party.do(lambda hold: ask(hold, Claim("two", "host:1:a", 30_000, budget_ms=50)))
    stage.proxy.release()
    reply = party.do(lambda hold: ask(hold, Claim("three", "host:1:a", 30_000)))
    assert isinstance(reply, Granted) and reply.fence == stage.look.fence("three")
