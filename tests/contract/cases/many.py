"""The contract of batches: further cases, for every store and both flavours."""

from __future__ import annotations

import inspect
from typing import Any

from leasehold.errors import LeaseLost
from tests.contract.cases.lock import case, give_back
from tests.support.parties import Party, Step
from tests.support.scene import Scene, fails
from tests.support.waiting import PATIENCE

SOME = ("b", "a", "c", "d")


def many(*names: str, **options: Any) -> Step:
    """One try at each of these locks."""
    return lambda hold: hold.acquire_many([hold.lock(name, ttl=9, **options) for name in names])


def holds(party: Party, name: str) -> Any:
    """A lease on one of them, at once."""
    lease = party.do(lambda hold: hold.lock(name, ttl=9).acquire(wait=0))
    assert lease is not None
    return lease


def within(party: Party, batch: Any, body: Step) -> Any:
    """``with batch: body(batch)``, in either flavour."""

    def entered(_: Any) -> Any:
        with batch:
            return body(batch)

    async def awaited(_: Any) -> Any:
        async with batch:
            result = body(batch)
            return await result if inspect.isawaitable(result) else result

    return party.start(awaited if hasattr(batch, "__aenter__") else entered)


@case
def many_are_granted_each_by_itself(scene: Scene) -> None:
    """What is free is granted, in the order of the locks, and what is held is refused by name."""
    a, b = scene.party(), scene.party()
    theirs = holds(a, "a")
    batch = b.do(many(*SOME))
    assert [None if lease is None else lease.resource for lease in batch] == ["b", None, "c", "d"]
    assert [lease.resource for lease in batch.acquired] == ["b", "c", "d"] and not batch.complete
    assert all(lease.state == "held" and 7 < lease.remaining() <= 9 for lease in batch.acquired)
    assert [scene.look(name).fence for name in "bcd"] == [lease.fence for lease in batch.acquired]
    assert list(batch.refused) == ["a"] and batch.failed == {}
    refused = batch.refused["a"]
    assert refused.resource == "a" and theirs.owner.startswith(refused.holder) and 0 < refused.retry_in <= 9
    assert theirs.state == "held" and a.do(lambda hold: hold.lock("b").try_acquire()) is None
    assert b.do(lambda _: batch.release()) is True


@case
def many_are_released_together(scene: Scene) -> None:
    """One answer for each, in order: True for what was held until now, False for what was not."""
    a, b = scene.party(), scene.party()
    batch = a.do(many(*SOME))
    assert batch.complete and a.do(lambda _: batch[1].release()) is True
    assert a.do(lambda hold: hold.release_many(batch)) == [True, False, True, True]
    for name in SOME:
        scene.free(name)
    again = b.do(many(*SOME))
    assert again.complete and all(new.fence > old.fence for new, old in zip(again, batch, strict=True))
    assert b.do(lambda hold: hold.release_many(again.acquired)) == [True] * 4
    assert b.do(lambda _: again.release()) is False


@case
def a_batch_that_is_refused_takes_nothing(scene: Scene) -> None:
    """When others hold all of them, the batch is empty, says so for each, and mints no fence."""
    a, b = scene.party(), scene.party()
    theirs = a.do(many(*SOME))
    before = [scene.look(name).fence for name in SOME]
    batch = b.do(many(*SOME))
    assert batch.acquired == () and sorted(batch.refused) == sorted(SOME) and list(batch) == [None] * 4
    assert [scene.look(name).fence for name in SOME] == before and not any(scene.look(name).queue for name in SOME)
    assert a.do(lambda _: theirs.release()) is True


@case
def the_leases_of_a_batch_are_renewed(scene: Scene) -> None:
    """Each of them, as one that was acquired by itself."""
    a, b = scene.party(), scene.party()
    batch = a.do(many(*SOME))
    scene.pass_time(20)
    assert all(lease.state == "held" for lease in batch.acquired)
    assert b.do(many(*SOME)).acquired == ()
    assert a.do(lambda _: batch.release()) is True


@case
def a_lease_of_a_batch_that_is_lost(scene: Scene) -> None:
    """It answers False to its release; the others are not concerned."""
    a, b = scene.party(), scene.party()
    batch = a.do(many(*SOME, renew=False))
    a.do(lambda hold: batch[0].extend(60))
    scene.pass_time(9.7)  # not a whole number of seconds: a PostgreSQL whose clock stands would wait for the last µs
    scene.eventually(lambda: batch[1].state == "lost", "it is lost")
    assert b.do(lambda hold: hold.lock("a").try_acquire()) is not None
    assert a.do(lambda hold: hold.release_many(batch)) == [True, False, False, False]
    assert [lease.state for lease in batch.acquired] == ["released", "lost", "lost", "lost"]
    scene.free("b")


@case
def a_body_under_a_batch(scene: Scene) -> None:
    """Leaving gives back all that was granted, and what the body raises comes out."""
    a, b = scene.party(), scene.party()
    batch = a.do(many(*SOME))
    assert within(a, batch, lambda _: b.do(many(*SOME)).acquired).result(PATIENCE) == ()
    for name in SOME:
        scene.free(name)
    batch = a.do(many(*SOME))
    assert isinstance(within(a, batch, lambda _: 1 / 0).exception(PATIENCE), ZeroDivisionError)
    for name in SOME:
        scene.free(name)


@case
def leaving_the_body_of_a_batch_that_lost_one_raises(scene: Scene) -> None:
    """Nobody leaves the body believing that all went well; the others are released."""
    a = scene.party()
    batch = a.do(lambda hold: hold.acquire_many([hold.lock("a", ttl=3, renew=False), hold.lock("b", ttl=200)]))

    def body(_: Any) -> None:
        scene.pass_time(4, at_once=True)

    error = fails(LeaseLost, within(a, batch, body))
    assert error.resource == "a"
    scene.free("b")


@case
def a_batch_with_at_least(scene: Scene) -> None:
    """The door of each is closed for that long, although all are given back at once."""
    a, b = scene.party(), scene.party()
    batch = a.do(many("a", "b", at_least=3))
    assert batch.complete and a.do(lambda _: batch.release()) is True
    refused = b.do(many("a", "b", "c"))
    assert sorted(refused.refused) == ["a", "b"] and [lease.resource for lease in refused.acquired] == ["c"]
    scene.pass_time(3.5)
    assert b.do(many("a", "b")).complete


@case
def a_batch_enters_again(scene: Scene) -> None:
    """What the thread or task holds already, and may enter again, is entered; its release only steps out."""
    a, b = scene.party(), scene.party()
    outer = a.do(lambda hold: hold.rlock("a", ttl=9).acquire(wait=0))
    batch = a.do(lambda hold: hold.acquire_many([hold.rlock("a", ttl=9), hold.rlock("b", ttl=9)]))
    assert batch.complete and batch[0].fence == outer.fence
    assert a.do(lambda hold: hold.release_many(batch)) == [True, True]
    assert outer.state == "held" and b.do(lambda hold: hold.lock("a").try_acquire()) is None
    scene.free("b")
    give_back(a, outer)
    scene.free("a")


@case
def close_gives_back_a_batch(scene: Scene) -> None:
    """All of it, so that the next one need not wait for any ttl."""
    a, b = scene.party(), scene.party()
    batch = a.do(many(*SOME))
    closing = a.start(lambda hold: hold.close())
    closing.result(PATIENCE)
    assert all(lease.state == "lost" for lease in batch.acquired)
    assert b.do(many(*SOME)).complete


@case
def a_batch_of_readers_and_permits(scene: Scene) -> None:
    """Any mix: a lock, both sides of read-write locks, and permits, several in one lease."""
    a, b = scene.party(), scene.party()

    def mixed(hold: Any) -> Any:
        return hold.acquire_many(
            [
                hold.lock("plain", ttl=9),
                hold.rwlock("config").read(ttl=9),
                hold.rwlock("page").write(ttl=9),
                hold.semaphore("pool", limit=3, permits=2, ttl=9),
            ]
        )

    first, second = a.do(mixed), b.do(mixed)
    assert first.complete and first[3].slots == (0, 1)
    assert [lease.resource for lease in second.acquired] == ["config"]
    assert sorted(second.refused) == ["page", "plain", "pool"]
    assert b.do(lambda _: second.release()) is True and a.do(lambda hold: hold.release_many(first)) == [True] * 4
    for name in ("plain", "config", "page", "pool"):
        scene.free(name)
