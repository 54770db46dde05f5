"""Doors of what can be shared: what at_least, lock-delay and eviction leave of a reader's grant or a permit."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.types import Door
from tests.support.tables import each
from tests.unit.core.desk import ROOM, TTL, Desk


def closed(desk: Desk, owner: str, ms: int) -> int:
    """``at_least``: the holder closes the door behind itself. Its fence."""
    fence = desk.fence_of(owner)
    assert isinstance(desk.renew(owner, fence, closed_ms=ms), ops.Renewed)
    return fence


def test_a_permit_s_door_keeps_its_slot() -> None:
    """The others are given; this one when its time is over (I9)."""
    desk = Desk()
    desk.permit("a", 2)
    desk.release("a", closed(desk, "a", 5_000))
    assert desk.state.doors == (Door("semaphore", (0,), desk.ms + 5_000, 5_000),)
    reply = desk.permit("b", 2)
    assert isinstance(reply, ops.Granted)
    assert reply.slots == (1,)
    assert isinstance(desk.permit("c", 2), ops.Queued)
    desk.later(2_900)
    desk.beat("c", 2)
    desk.later(2_100)
    desk.look()
    assert desk.slots() == {"b": (1,), "c": (0,)}
    assert not desk.state.doors


def test_a_reader_s_door_keeps_writers_out_and_lets_readers_in() -> None:
    """That is what a reader could have asked for."""
    desk = Desk()
    desk.read("r1")
    desk.release("r1", closed(desk, "r1", 2_000))
    assert isinstance(desk.write("x", wait=False), ops.Busy)
    assert isinstance(desk.read("r2", wait=False), ops.Granted)
    desk.release("r2", desk.fence_of("r2"))
    assert isinstance(desk.write("x"), ops.Queued)
    desk.later(2_000)
    desk.look()
    assert desk.holding() == ["x"]


@each("wanted", ["mutex", "write", "semaphore"])
def test_a_reader_s_door_is_a_reader_to_every_other_rule(wanted: str) -> None:
    """Mixing rules on one resource opens no door."""
    desk = Desk()
    desk.read("r1")
    desk.release("r1", closed(desk, "r1", 2_000))
    assert isinstance(desk.claim("x", rule=wanted, limit=5, wait=False), ops.Busy)


def test_a_lock_delay_holds_after_an_unclean_end_only() -> None:
    """A release frees the slot at once; an expiry after the delay."""
    desk = Desk()
    desk.permit("a", 1, ttl_ms=1_000, delay_ms=4_000)
    desk.release("a", desk.fence_of("a"))
    desk.permit("b", 1, ttl_ms=1_000, delay_ms=4_000)
    desk.later(1_000)
    assert isinstance(desk.permit("c", 1, wait=False), ops.Busy)
    desk.later(3_999)
    assert isinstance(desk.permit("c", 1, wait=False), ops.Busy)
    desk.later(1)
    assert isinstance(desk.permit("c", 1, wait=False), ops.Granted)


def test_a_delay_counts_from_the_expiry_and_not_from_when_somebody_looks() -> None:
    """A resource that nobody asked about is not closed for longer."""
    desk = Desk()
    desk.permit("a", 1, ttl_ms=1_000, delay_ms=4_000)
    desk.later(5_000)
    assert isinstance(desk.permit("c", 1, wait=False), ops.Granted)


def test_i9_an_evicted_permit_is_given_to_nobody_while_its_holder_may_believe_in_it() -> None:
    """The others go on, and the next claim gets another slot."""
    desk = Desk()
    desk.permit("a", 2)
    desk.permit("b", 2)
    desk.permit("c", 2)
    reply = desk.evict("a", desk.fence_of("a"))
    assert isinstance(reply, ops.Evicted)
    assert reply.closed_ms == TTL
    assert (desk.holding(), desk.waiting()) == (["b"], ["c"])
    desk.release("b", desk.fence_of("b"))
    assert desk.slots() == {"c": (1,)}
    desk.later(TTL)
    desk.look()
    assert desk.state.doors == ()


def test_an_evicted_reader_keeps_writers_out_for_its_time() -> None:
    """Other readers are not disturbed."""
    desk = Desk()
    desk.read("r1")
    desk.read("r2")
    desk.evict("r1", desk.fence_of("r1"))
    desk.release("r2", desk.fence_of("r2"))
    assert isinstance(desk.write("x", wait=False), ops.Busy)
    assert isinstance(desk.read("r3", wait=False), ops.Granted)


def test_eviction_of_a_permit_is_idempotent() -> None:
    """The same request takes no second one, and mints nothing more."""
    desk = Desk()
    desk.permit("a", 2)
    desk.permit("b", 2)
    fence = desk.fence_of("a")
    first = desk.evict("a", fence)
    assert desk.evict("a", fence) == first
    assert desk.holding() == ["b"]
    assert len(desk.state.doors) == 1


def test_a_downgraded_writer_leaves_a_reader_s_door() -> None:
    """It closed the door as a writer; as a reader it shares it."""
    desk = Desk()
    desk.write("w")
    fence = closed(desk, "w", 5_000)
    desk.ask(ops.Renew(ROOM, "w", fence, TTL, number=1, shared=True))
    assert isinstance(desk.read("r1"), ops.Granted)
    desk.release("w", fence)
    desk.release("r1", desk.fence_of("r1"))
    assert isinstance(desk.write("x", wait=False), ops.Busy)
    assert isinstance(desk.read("r2", wait=False), ops.Granted)


def test_trap_37_doors_do_not_pile_up() -> None:
    """However many readers leave one: it is the last of them that counts."""
    desk = Desk()
    for number in range(20):
        desk.read(f"r{number}")
        desk.release(f"r{number}", closed(desk, f"r{number}", 1_000 + number))
    assert desk.state.doors == (Door("read", (0,), desk.ms + 1_019, 1_019),)
    desk.later(1_019)
    assert desk.look().doors == ()


def test_a_later_door_of_the_same_place_does_not_shorten_an_earlier_one() -> None:
    """The longer of the two counts."""
    desk = Desk()
    for reader, ms in (("r1", 5_000), ("r2", 100)):
        desk.read(reader)
        desk.release(reader, closed(desk, reader, ms))
    assert [one.until_ms - desk.ms for one in desk.look().doors] == [5_000]


def test_a_withdrawn_grant_closes_nothing() -> None:
    """It reached nobody."""
    desk = Desk()
    desk.permit("a", 1)
    closed(desk, "a", 5_000)
    desk.withdraw("a")
    assert isinstance(desk.permit("b", 1, wait=False), ops.Granted)


def test_a_clock_that_is_set_back_opens_no_door() -> None:
    """It stays closed for longer."""
    desk = Desk()
    desk.permit("a", 1)
    desk.release("a", closed(desk, "a", 1_000))
    desk.later(-60_000)
    desk.later(1_000)
    assert isinstance(desk.permit("b", 1, wait=False), ops.Busy)


def test_who_waits_for_a_door_is_told_when_it_opens() -> None:
    """The head times its beat by it."""
    desk = Desk()
    desk.permit("a", 1)
    desk.release("a", closed(desk, "a", 700))
    reply = desk.permit("b", 1)
    assert isinstance(reply, ops.Queued)
    assert (reply.ahead, reply.free_in_ms, reply.holder) == (0, 700, "")
