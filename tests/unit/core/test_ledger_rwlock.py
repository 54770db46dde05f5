"""Readers and writers in the ledger: who stands beside whom, batches, no overtaking, downgrade."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.rules import RULES
from tests.support.tables import each
from tests.unit.core.desk import ROOM, TTL, Desk, expect


def downgrade(desk: Desk, owner: str, *, number: int = 1, ttl_ms: int = TTL) -> ops.Reply:
    """The Renew that makes a reader of a writer."""
    return desk.ask(ops.Renew(ROOM, owner, desk.fence_of(owner), ttl_ms, number=number, shared=True))


def writer(*waiting: str) -> Desk:
    """``w`` writes; the others wait, those whose names begin with ``r`` to read."""
    desk = Desk()
    desk.write("w")
    for owner in waiting:
        desk.read(owner) if owner.startswith("r") else desk.write(owner)
    return desk


def test_readers_stand_side_by_side() -> None:
    """Any number of them, each with a fence of its own that grows."""
    desk = Desk()
    replies = [desk.read(f"r{number}") for number in range(5)]
    fences = [reply.fence for reply in replies if isinstance(reply, ops.Granted)]
    assert len(fences) == 5
    assert fences == sorted(set(fences))
    assert all(reply.rule == "read" for reply in replies if isinstance(reply, ops.Granted))


@each("wanted", RULES)
@each("held", RULES)
def test_who_stands_beside_whom(held: str, wanted: str) -> None:
    """Readers beside readers, permits beside permits; everything else stands alone."""
    desk = Desk()
    desk.claim("a", rule=held, limit=2)
    reply = desk.claim("b", rule=wanted, limit=2)
    beside = held == wanted and held in ("read", "semaphore")
    assert isinstance(reply, ops.Granted if beside else ops.Queued)
    assert desk.holding() == (["a", "b"] if beside else ["a"])


def test_a_waiting_writer_is_not_overtaken_by_later_readers() -> None:
    """Else it would wait for ever where somebody always reads (I10)."""
    desk = Desk()
    desk.read("r1")
    desk.write("w1")
    assert isinstance(desk.read("r2"), ops.Queued)
    assert isinstance(desk.read("r3", wait=False), ops.Busy)
    desk.release("r1", desk.fence_of("r1"))
    assert desk.holding() == ["w1"]
    assert desk.waiting() == ["r2"]


def test_readers_who_wait_together_are_granted_together() -> None:
    """Up to the next writer, in one turn, and each is told."""
    desk = writer("r1", "r2", "x", "r3")
    desk.release("w", desk.fence_of("w"))
    assert desk.holding() == ["r1", "r2"]
    assert desk.pushed() == [("r1", "granted", 1), ("r2", "granted", 1)]
    assert desk.waiting() == ["x", "r3"]


def test_a_writer_waits_for_the_last_reader() -> None:
    """Not for the first."""
    desk = Desk()
    for reader in ("r1", "r2", "r3"):
        desk.read(reader)
    desk.write("x")
    for reader in ("r2", "r1"):
        desk.release(reader, desk.fence_of(reader))
        assert desk.waiting() == ["x"]
    desk.release("r3", desk.fence_of("r3"))
    assert desk.holding() == ["x"]


def test_a_silent_writer_delays_no_reader() -> None:
    """It keeps its place, and is passed over (trap 25)."""
    desk = Desk()
    desk.read("r1")
    desk.write("x")
    desk.later(3_001)
    assert isinstance(desk.read("r2"), ops.Granted)
    desk.beat("x", 2)
    assert isinstance(desk.read("r3"), ops.Queued)


def test_a_dead_writer_delays_no_reader() -> None:
    """Its socket is closed: a reader behind it comes in with the writer's turn."""
    desk = writer("x", "r1")
    desk.dead.add("x")
    desk.release("w", desk.fence_of("w"))
    assert desk.holding() == ["r1"]


def test_a_dead_reader_does_not_end_the_batch() -> None:
    """Those behind it are granted all the same."""
    desk = writer("r1", "r2", "r3")
    desk.dead.add("r2")
    desk.release("w", desk.fence_of("w"))
    assert desk.holding() == ["r1", "r3"]
    assert desk.waiting() == ["r2"]


def test_trap_11_releasing_one_reader_frees_only_itself() -> None:
    """Twice, or with the fence of another: the others stay."""
    desk = Desk()
    desk.read("r1")
    desk.read("r2")
    fence = desk.fence_of("r1")
    expect(desk.release("r1", desk.fence_of("r2")), ops.NotYours("taken"))
    expect(desk.release("r1", fence), ops.Released())
    expect(desk.release("r1", fence, again=True), ops.Released(found=False))
    assert desk.holding() == ["r2"]


def test_a_crashed_reader_delays_a_writer_by_its_ttl_only() -> None:
    """The others give back; the writer comes in when the time of the last is over."""
    desk = Desk()
    desk.read("r1", ttl_ms=2_000)
    desk.read("r2")
    desk.write("x")
    desk.release("r2", desk.fence_of("r2"))
    desk.later(2_000)
    desk.look()
    assert desk.holding() == ["x"]


def test_what_a_waiter_is_told_is_when_the_first_place_is_free() -> None:
    """So that the head beats when the ledger must be advanced."""
    desk = Desk()
    desk.read("r1", ttl_ms=2_000)
    desk.read("r2")
    reply = desk.write("x")
    assert isinstance(reply, ops.Queued)
    assert reply.free_in_ms == 2_000


# ---------------------------------------------------------------- downgrade


def test_downgrade_lets_those_in_who_wait_to_read() -> None:
    """In one step: nobody writes in between, and the fence stays (I5)."""
    desk = writer("r1", "r2", "x", "r3")
    fence = desk.fence_of("w")
    expect(downgrade(desk, "w"), ops.Renewed(TTL))
    assert desk.holding() == ["w", "r1", "r2"]
    assert desk.fence_of("w") == fence
    assert desk.waiting() == ["x", "r3"]


def test_downgrade_passes_over_no_writer() -> None:
    """A reader behind a waiting writer goes on waiting."""
    desk = writer("x", "r1")
    downgrade(desk, "w")
    assert desk.holding() == ["w"]


def test_downgrade_is_repeatable_and_never_undone() -> None:
    """A renewal that was sent before it and arrives after it leaves a reader."""
    desk = writer()
    downgrade(desk, "w", number=2)
    downgrade(desk, "w", number=3)
    desk.renew("w", desk.fence_of("w"), number=1)
    assert [one.rule for one in desk.state.holders] == ["read"]
    assert isinstance(desk.read("r1"), ops.Granted)


def test_a_late_downgrade_of_somebody_else_s_time_changes_nothing() -> None:
    """It names an owner and a fence that hold no longer."""
    desk = writer("x")
    op = ops.Renew(ROOM, "w", desk.fence_of("w"), TTL, number=1, shared=True)
    desk.release("w", desk.fence_of("w"))
    assert isinstance(desk.ask(op), ops.NotYours)
    assert [(one.owner, one.rule) for one in desk.state.holders] == [("x", "write")]


@each("rule", ["mutex", "semaphore", "read"])
def test_only_a_writer_is_lowered(rule: str) -> None:
    """What is no writer's stays what it is."""
    desk = Desk()
    desk.claim("a", rule=rule)
    downgrade(desk, "a")
    assert desk.grant().rule == rule


def test_an_adopter_gets_what_was_given() -> None:
    """A lowered lease is handed over as a reader's, beside other readers."""
    desk = writer("r1")
    downgrade(desk, "w")
    desk.offer("w", fence := desk.fence_of("w"))
    reply = desk.adopt(fence, "heir")
    assert isinstance(reply, ops.Granted)
    assert reply.rule == "read"
    assert desk.holding() == ["r1", "heir"]
    assert isinstance(desk.write("x"), ops.Queued)


# ---------------------------------------------------------------- what a holder says


def say(desk: Desk, meta: str, number: int) -> ops.Reply:
    """A Renew that says something of the holder ``w``."""
    return desk.ask(ops.Renew(ROOM, "w", desk.fence_of("w"), TTL, number=number, meta=meta))


def test_what_a_holder_says_last_counts() -> None:
    """One that was overtaken changes nothing; a renewal that says nothing leaves it."""
    desk = writer()
    say(desk, "two", 2)
    say(desk, "one", 1)
    assert desk.grant().meta == "two"
    desk.renew("w", desk.fence_of("w"), number=3)
    assert desk.grant().meta == "two"
