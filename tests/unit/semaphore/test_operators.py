"""What operators do to those who share a resource, and what their calls find when somebody is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import leasehold
from leasehold import NotHeld
from leasehold._core.ops import Release, Revoke
from leasehold._core.types import Grant
from leasehold.primitives.inspection import inspection
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, async_scene, look, once
from tests.support.parties import FLAVOURS, Party
from tests.support.scene import fails
from tests.support.waiting import until, until_async


@pytest.fixture
def spy() -> Spy:
    """One store for all."""
    return Spy(MemoryStore())


@pytest.fixture(params=FLAVOURS)
def parties(request: pytest.FixtureRequest, spy: Spy) -> Iterator[list[Party]]:
    """Two who hold a permit each, and an operator."""
    parties: list[Party] = [FLAVOURS[request.param](spy) for _ in range(3)]
    yield parties
    for party in parties:
        party.close()


def acquire(party: Party) -> Any:
    """A permit, and the holder can be told."""
    permit = party.do(lambda hold: hold.semaphore("pool", limit=3).acquire())
    until(party.hold._engine.holder_address, "it listens")
    return permit


def release(spy: Spy, permit: Any) -> None:
    """Given back behind everybody's back."""
    spy.inner.execute(Release("pool", permit.owner, permit.fence))


def test_everybody_is_asked(parties: list[Party]) -> None:
    """Without a fence all who hold are; True when all of them can hear it."""
    a, b, operator = parties
    kept = [acquire(a), acquire(b)]
    until(lambda: operator.do(lambda hold: hold.revoke("pool")), "all can be told")
    until(lambda: all(permit._held.revocation_requested() for permit in kept), "all have heard it")


def test_one_who_cannot_hear_it(parties: list[Party], spy: Spy) -> None:
    """False: not everybody was reached. The others were asked all the same."""
    a, b, operator = parties
    kept = [acquire(a), acquire(b)]
    until(lambda: operator.do(lambda hold: hold.revoke("pool", fence=kept[1].fence)), "the second can be told")
    news = a.hold._engine.watchdog.holder_pushes
    news.close()
    assert operator.do(lambda hold: hold.revoke("pool")) is False
    assert [op.fence for op in spy.of(Revoke)[-2:]] == [kept[0].fence, kept[1].fence]
    assert not kept[0]._held.revocation_requested()


def test_one_who_has_given_back_meanwhile(parties: list[Party], spy: Spy) -> None:
    """Nothing is asked of it, and it is no failure."""
    a, b, operator = parties
    kept = [acquire(a), acquire(b)]
    until(lambda: operator.do(lambda hold: hold.revoke("pool")), "all can be told")
    spy.before = once(Revoke, lambda op: release(spy, kept[0]))
    assert operator.do(lambda hold: hold.revoke("pool")) is True


def test_all_have_given_back_meanwhile(parties: list[Party], spy: Spy) -> None:
    """Then nobody holds it, and that is said."""
    a, _, operator = parties
    permit = acquire(a)
    spy.before = once(Revoke, lambda op: release(spy, permit))
    fails(NotHeld, operator.start(lambda hold: hold.revoke("pool")))


def test_inspect_says_how_each_holds(spy: Spy) -> None:
    """Exclusive, reader, writer or permit; slots are a permit's; a rule of a later version is shown as it is."""
    view = look(spy, "pool")
    rules = ("mutex", "read", "write", "semaphore", "later")
    grants = tuple(Grant("h:1:s.1", 1, 1000, 1000, rule, (2, 5)) for rule in rules)
    seen = inspection("pool:7", view._replace(holders=grants, limit=7))
    assert [one.mode for one in seen.holders] == ["exclusive", "read", "write", "permit", "later"]
    assert [one.slots for one in seen.holders] == [(), (), (), (2, 5), ()]
    assert seen.limit == 7 and repr(seen).endswith("nobody waits, limit=7>") and "h:1 permit 2,5 fence=1" in repr(seen)
    assert inspection("pool", view).limit is None


def test_a_semaphore_that_is_known_by_its_limit_alone() -> None:
    """With hidden ids a text may mean two names: a stored limit is enough to know which."""
    store = MemoryStore()
    with leasehold.connect(store, hide_ids="key") as hold:
        pool = hold.semaphore("pool", 7, limit=3)
        pool.resize(5)
        assert hold.inspect(pool.resource).limit == hold.inspect("pool:7").limit == 5


async def test_a_cancelled_claim_leaves_nothing() -> None:
    """A big claim that is cancelled while it waits lets those behind it in, and is forgotten (trap 9)."""
    spy, hold = async_scene()
    async with hold:
        pool = hold.semaphore("pool", limit=3)
        kept = await pool.acquire(permits=2)
        big = asyncio.create_task(pool.acquire(permits=3))
        await until_async(lambda: len(look(spy, "pool").queue) == 1, "the big one waits")
        small = asyncio.create_task(pool.acquire())
        await until_async(lambda: len(look(spy, "pool").queue) == 2, "the small one waits")
        big.cancel()
        with pytest.raises(asyncio.CancelledError):
            await big
        permit = await small
        assert kept is not None and permit is not None and permit.slot == 2
        assert not look(spy, "pool").queue


async def test_the_body_of_a_lost_permit_is_cancelled() -> None:
    """As that of a lock: the cancellation becomes LeaseLost."""
    _, hold = async_scene()
    async with hold:
        with pytest.raises(leasehold.LeaseLost) as caught:
            async with hold.semaphore("pool", limit=3, ttl=0.1, renew=False):
                await asyncio.sleep(10)
        assert caught.value.reason == "expired"
