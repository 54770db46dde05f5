"""Watchers in the ledger: who is told of what, and who is forgotten."""

from __future__ import annotations

from collections.abc import Callable

from leasehold._core import ops
from leasehold._core.policy import WATCH_MS
from tests.support.tables import each
from tests.unit.core.desk import ROOM, TTL, Desk, expect


def watched() -> Desk:
    """``a`` holds, and ``eye`` watches."""
    desk = Desk()
    desk.write("a")
    desk.watch("eye")
    return desk


def told(desk: Desk) -> list[str]:
    """Who was told of a change by the last op."""
    return [push.owner for push in desk.pushes if push.event == "changed"]


def change(desk: Desk, *, shared: bool = False, meta: str = "") -> None:
    """A Renew of ``a``."""
    desk.ask(ops.Renew(ROOM, "a", desk.fence_of("a"), TTL, number=1, shared=shared, meta=meta))


def expire(desk: Desk) -> None:
    """Somebody looks when it is over."""
    desk.later(TTL)
    desk.look()


def adopt(desk: Desk) -> None:
    """Handed over and taken."""
    desk.offer("a", desk.fence_of("a"))
    desk.adopt(desk.fence_of("a"), "heir")


def say_twice(desk: Desk) -> None:
    """The same both times."""
    change(desk, meta="x")
    change(desk, meta="x")


def expire_and_write(desk: Desk) -> None:
    """Another owner takes what has expired."""
    expire(desk)
    desk.write("b")


CHANGES: dict[str, Callable[[Desk], object]] = {
    "released": lambda desk: desk.release("a", desk.fence_of("a")),
    "withdrawn": lambda desk: desk.withdraw("a"),
    "evicted": lambda desk: desk.evict("a", desk.fence_of("a")),
    "lowered": lambda desk: change(desk, shared=True),
    "says something": lambda desk: change(desk, meta="leader"),
    "expired, and another comes": expire_and_write,
    "adopted": adopt,
    "taken": lambda desk: (desk.release("a", desk.fence_of("a")), desk.write("b")),
}
NO_CHANGES: dict[str, Callable[[Desk], object]] = {
    "expired, and nobody comes": expire,
    "renewed": lambda desk: desk.renew("a", desk.fence_of("a")),
    "offered": lambda desk: desk.offer("a", desk.fence_of("a")),
    "somebody waits": lambda desk: desk.write("b"),
    "somebody looks": lambda desk: desk.look(),
    "revoked": lambda desk: desk.revoke("a", desk.fence_of("a")),
    "resized": lambda desk: desk.resize(3),
    "says the same": say_twice,
}


@each("name", CHANGES)
def test_a_watcher_is_told_of_every_change(name: str) -> None:
    """Of who holds, by which rule, and what it says of itself."""
    desk = watched()
    CHANGES[name](desk)
    assert told(desk) == ["eye"]


@each("name", NO_CHANGES)
def test_a_watcher_is_not_told_of_what_changes_nothing(name: str) -> None:
    """A renewal every few seconds is no news."""
    desk = watched()
    NO_CHANGES[name](desk)
    assert told(desk) == []


def test_a_change_is_told_once_to_each() -> None:
    """Also when one turn changes much: one ends, others come in."""
    desk = watched()
    desk.watch("ear")
    desk.read("r1")
    desk.read("r2")
    desk.release("a", desk.fence_of("a"))
    assert told(desk) == ["eye", "ear"]
    changed = [push for push in desk.pushes if push.event == "changed"]
    assert changed[0] == ops.Push("@eye", "changed", ROOM, "eye", desk.last_fence(), 0, 0)


def test_whoever_asks_is_told_by_the_reply() -> None:
    """A grant that has expired is not in it, and no push follows."""
    desk = watched()
    desk.later(TTL)
    assert desk.watch("eye").holders == ()
    assert desk.pushes == []


def test_watching_again_is_one_watcher() -> None:
    """It is heard of at most once."""
    desk = watched()
    for _ in range(5):
        desk.watch("eye")
    assert len(desk.state.watchers) == 1


def test_a_watcher_that_falls_silent_is_forgotten() -> None:
    """Nothing is left of it, whether its socket is open or not."""
    desk = watched()
    desk.withdraw("a")
    desk.later(WATCH_MS)
    desk.look()
    assert len(desk.state.watchers) == 1
    desk.later(1)
    desk.look()
    assert not desk.state.watchers


def test_a_watcher_of_a_dead_process_is_forgotten_with_the_next_change() -> None:
    """And told nothing."""
    desk = watched()
    desk.watch("ear")
    desk.dead.add("eye")
    desk.release("a", desk.fence_of("a"))
    assert told(desk) == ["ear"]
    assert [one.owner for one in desk.state.watchers] == ["ear"]


def test_whoever_cannot_be_told_is_not_kept() -> None:
    """It looks by itself; nothing is written down for it, and what it left earlier goes."""
    desk = Desk()
    desk.watch("eye", pushable=False)
    assert desk.state == Desk().state
    desk.watch("eye")
    desk.watch("eye", pushable=False)
    assert desk.state == Desk().state


def test_a_watch_ends_with_a_withdrawal() -> None:
    """Of that owner alone; a grant is no part of it."""
    desk = watched()
    desk.watch("ear")
    expect(desk.withdraw("eye"), ops.Withdrawn("nothing"))
    assert [one.owner for one in desk.state.watchers] == ["ear"]
    desk.release("a", desk.fence_of("a"))
    assert told(desk) == ["ear"]


def test_trap_49_a_clock_that_is_set_back_keeps_no_watcher_for_ever() -> None:
    """It counts as heard of now, and is forgotten in its time unless it shows up again."""
    desk = watched()
    desk.later(-3_600_000)
    desk.look()
    assert [one.beat_ms for one in desk.state.watchers] == [desk.ms]
    desk.later(WATCH_MS + 1)
    desk.look()
    assert desk.state.watchers == ()


def test_watching_shows_who_holds_and_no_queue() -> None:
    """What an observer wants, however many wait."""
    desk = watched()
    desk.write("b")
    view = desk.watch("eye")
    assert ([one.owner for one in view.holders], view.queue) == (["a"], ())


def test_trap_37_watching_an_idle_resource_leaves_nothing() -> None:
    """When the watcher is forgotten, the resource is."""
    desk = Desk()
    desk.watch("eye")
    desk.later(WATCH_MS + 1)
    desk.look()
    assert desk.state == Desk().state
