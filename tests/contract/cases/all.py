"""The contract of all or nothing: further cases, for every store and both flavours."""

from __future__ import annotations

from typing import Any

from leasehold.errors import LeaseLost, NotAcquired, NotHeld, OutcomeUnknown, StoreUnavailable
from tests.contract.cases.lock import case, give_back
from tests.support.parties import Party, Step
from tests.support.scene import Scene, fails
from tests.support.waiting import PATIENCE


def taking(*names: str, **options: Any) -> Step:
    """An all of plain locks with these names."""
    return lambda hold: hold.all(*[hold.lock(name, ttl=9) for name in names], **options)


def acquire(*names: str, wait: Any = None) -> Step:
    """All of them, awaited where it must be."""
    return lambda hold: taking(*names)(hold).acquire(wait=wait)


def holds(party: Party, name: str) -> Any:
    """A lease on one of them, at once."""
    lease = party.do(lambda hold: hold.lock(name, ttl=9).acquire(wait=0))
    assert lease is not None
    return lease


@case
def all_are_granted_in_the_order_in_which_they_were_given(scene: Scene) -> None:
    """One lease for each, each with a fence of its own, and all are given back together."""
    a = scene.party()
    leases = a.do(acquire("b", "a", "c", wait=0))
    assert [lease.resource for lease in leases] == ["b", "a", "c"] and len(leases) == 3
    assert leases.state == "held" and all(lease.fence > 0 for lease in leases)
    assert leases.fences == {lease.resource: lease.fence for lease in leases}
    assert [scene.look(name).fence for name in "bac"] == list(leases.fences.values())
    assert 7 < leases.remaining() <= 9 and leases[0] is next(iter(leases)) and leases
    assert a.do(lambda _: leases.release()) is True and leases.state == "released"
    for name in "abc":
        scene.free(name)
    assert a.do(lambda _: leases.release()) is False


@case
def all_is_refused_while_one_is_held(scene: Scene) -> None:
    """One try at what is partly held gives None, and leaves nothing held; the raising form says on which it failed."""
    a, b = scene.party(), scene.party()
    theirs = holds(a, "b")
    assert b.do(acquire("c", "b", "a", wait=0)) is None
    error = fails(NotAcquired, b.within(taking("c", "b", "a", wait=0), lambda _: None))
    assert error.resource == "b" and theirs.owner.startswith(error.holder)
    for name in "ac":
        scene.free(name)
    assert b.do(acquire("c", "a", wait=0)) is not None


@case
def a_refused_all_mints_nothing_after_the_one_that_is_held(scene: Scene) -> None:
    """What comes after it in the order of names was never asked for."""
    a, b = scene.party(), scene.party()
    holds(a, "a")
    assert b.do(acquire("b", "a", wait=0)) is None
    assert scene.look("b").fence == 0


@case
def all_waits_until_the_last_is_free(scene: Scene) -> None:
    """It stands in line for one after the other, and holds what stands before."""
    a, b = scene.party(), scene.party()
    first, second = holds(a, "b"), holds(a, "c")
    waiting = b.start(acquire("c", "b", "a"))
    scene.queued("b", 1)
    assert scene.look("a").holders and not scene.look("c").queue
    give_back(a, first)
    scene.queued("c", 1)
    assert not waiting.done()
    give_back(a, second)
    leases = waiting.result(PATIENCE)
    assert leases.state == "held" and leases[0].fence > second.fence and leases[1].fence > first.fence
    assert b.do(lambda _: leases.release()) is True


@case
def all_has_one_wait(scene: Scene) -> None:
    """The wait is for all of them together; when it is over nothing stays held and nobody waits."""
    a, b = scene.party(), scene.party()
    first = holds(a, "b")
    holds(a, "c")
    waiting = b.start(acquire("a", "b", "c", wait=3))
    scene.queued("b", 1)
    scene.pass_time(2)
    give_back(a, first)
    scene.queued("c", 1)
    scene.pass_time(1.5)
    assert waiting.result(PATIENCE) is None
    for name in "ab":
        scene.free(name)
    assert not scene.look("c").queue


@case
def what_all_holds_is_renewed_while_it_waits(scene: Scene) -> None:
    """However long the last one takes, the first is not lost meanwhile."""
    a, b = scene.party(), scene.party()
    theirs = holds(a, "b")
    waiting = b.start(acquire("a", "b"))
    scene.queued("b", 1)
    scene.pass_time(21)
    assert scene.look("a").holders and not waiting.done()
    give_back(a, theirs)
    leases = waiting.result(PATIENCE)
    assert leases.state == "held" and a.do(lambda hold: hold.lock("a").try_acquire()) is None
    assert b.do(lambda _: leases.release()) is True


@case
def opposite_orders_do_not_wait_for_each_other(scene: Scene) -> None:
    """Two who name the same locks in opposite orders both come through, one after the other."""
    a, b, c = scene.party(), scene.party(), scene.party()
    theirs = holds(c, "a")
    one, two = a.start(acquire("a", "b")), b.start(acquire("b", "a"))
    scene.queued("a", 2)
    give_back(c, theirs)
    scene.until(lambda: one.done() or two.done(), "one of them has both")
    early, late = ((a, one), (b, two)) if one.done() else ((b, two), (a, one))
    first = early[1].result(PATIENCE)
    assert not late[1].done() and early[0].do(lambda _: first.release()) is True
    second = late[1].result(PATIENCE)
    assert all(second.fences[name] > first.fences[name] for name in "ab")
    assert late[0].do(lambda _: second.release()) is True


@case
def a_body_under_all(scene: Scene) -> None:
    """Entering takes all of them, leaving gives all of them back, and what the body raises comes out."""
    a, b = scene.party(), scene.party()
    seen: list[Any] = []

    def body(leases: Any) -> Any:
        seen.extend([*leases, b.do(lambda hold: hold.lock("a").try_acquire())])
        return "done"

    assert a.within(taking("b", "a"), body).result(PATIENCE) == "done"
    assert [lease.resource for lease in seen[:2]] == ["b", "a"] and seen[2] is None
    for name in "ab":
        scene.free(name)
    failing = a.within(taking("b", "a"), lambda _: 1 / 0)
    assert isinstance(failing.exception(PATIENCE), ZeroDivisionError)
    for name in "ab":
        scene.free(name)


@case
def all_is_lost_when_one_is(scene: Scene) -> None:
    """One of them expires: the whole is lost, says so, and gives back the rest."""
    a, b = scene.party(), scene.party()
    leases = a.do(
        lambda hold: hold.all(hold.lock("a", ttl=60), hold.lock("b", ttl=1, renew=False)).acquire(wait=0),
    )
    scene.pass_time(1.1)
    assert leases.state == "lost" and leases.remaining() == 0 and leases[0].state == "held"
    assert fails(LeaseLost, a.start(lambda _: leases.check())).resource == "b"
    assert b.do(acquire("b", wait=0)) is not None
    assert a.do(lambda _: leases.release()) is False
    scene.free("a")


@case
def parts_of_all_can_be_given_back_one_by_one(scene: Scene) -> None:
    """What a part's own release gives back is free; the rest is given back together."""
    a, b = scene.party(), scene.party()
    leases = a.do(acquire("a", "b", "c", wait=0))
    give_back(a, leases[1])
    assert leases.state == "released" and [lease.state for lease in leases] == ["held", "released", "held"]
    theirs = holds(b, "b")
    assert a.do(lambda _: leases.release()) is True
    assert scene.look("b").holders[0].owner == theirs.owner
    for name in "ac":
        scene.free(name)


@case
def all_is_released_by_whoever_holds_it(scene: Scene) -> None:
    """The same all object, in the same thread or task; another party releases nothing with its own."""
    a, b = scene.party(), scene.party()
    kept: list[Any] = []

    def begin(hold: Any) -> Any:
        kept.append(hold.all(hold.lock("a", ttl=9), hold.lock("b", ttl=9)))
        return kept[0].acquire(wait=0)

    leases = a.do(begin)
    assert a.do(lambda _: kept[0].owned()) is True and a.do(lambda _: kept[0].locked()) is True
    fails(NotHeld, b.start(lambda hold: taking("a", "b")(hold).release()))
    assert b.do(lambda hold: taking("a", "b")(hold).owned()) is False and leases.state == "held"
    assert a.do(lambda _: kept[0].release()) is True
    assert a.do(lambda _: kept[0].owned()) is False and a.do(lambda _: kept[0].locked()) is False


@case
def what_is_held_already_is_entered_again(scene: Scene) -> None:
    """A re-entrant part keeps its fence and stays held when the all is given back."""
    a = scene.party()
    outer = a.do(lambda hold: hold.rlock("a", ttl=9).acquire(wait=0))
    leases = a.do(lambda hold: hold.all(hold.lock("b", ttl=9), hold.rlock("a", ttl=9)).acquire(wait=0))
    assert leases[1].fence == outer.fence and leases.state == "held"
    assert a.do(lambda _: leases.release()) is True
    scene.free("b")
    assert outer.state == "held" and scene.look("a").holders
    give_back(a, outer)
    scene.free("a")


@case
def all_with_at_least(scene: Scene) -> None:
    """A part with ``at_least`` closes its door as it would alone."""
    a, b = scene.party(), scene.party()
    leases = a.do(
        lambda hold: hold.all(hold.lock("b", ttl=9, at_least=3), hold.lock("c", ttl=9), hold.lock("a", ttl=9)).acquire(
            wait=0
        )
    )
    assert [lease.resource for lease in leases] == ["b", "c", "a"]
    assert a.do(lambda _: leases.release()) is True
    assert b.do(lambda hold: hold.lock("b").try_acquire()) is None
    assert b.do(acquire("a", "c", wait=0)) is not None
    scene.pass_time(3.1)
    assert b.do(lambda hold: hold.lock("b").try_acquire()) is not None


@case
def a_closed_coordinator_gives_back_all(scene: Scene) -> None:
    """What is held and what waits of an all ends with its coordinator, and others go on."""
    a, b, c = scene.party(), scene.party(), scene.party()
    leases = a.do(acquire("a", "b", wait=0))
    theirs = holds(c, "d")
    waiting = b.start(acquire("c", "d"))
    scene.queued("d", 1)
    a.do(lambda hold: hold.close())
    assert leases.state == "lost" and c.do(acquire("a", "b", wait=0)) is not None
    b.hold._engine.shut()
    b.hold._engine.close()
    scene.pass_time(3)
    fails(StoreUnavailable, waiting, OutcomeUnknown)  # the close may come when it has taken the first
    give_back(c, theirs)
    for name in "cd":
        scene.free(name)


@case
def all_extends_all(scene: Scene) -> None:
    """``extend`` sets the end of each."""
    a = scene.party()
    leases = a.do(acquire("a", "b", wait=0))
    a.do(lambda _: leases.extend(60))
    assert all(40 < lease.remaining() <= 60 and lease.ttl == 60 for lease in leases)
    assert all(one.expires_ms - scene.look(name).now_ms > 50_000 for name in "ab" for one in scene.look(name).holders)
    assert a.do(lambda _: leases.release()) is True
