"""What operators do: an eviction leaves a note for those who ask later, and a holder can be asked to give back."""

from __future__ import annotations

from leasehold._core import ledger, ops
from leasehold._core.policy import NOTES_KEPT
from leasehold._core.types import AuditNote
from tests.unit.core.desk import TTL, Desk, expect

OWNER = "web-1:812:secret.1"
DAY = 86_400_000
WHY = '{"by": "alice", "why": "it hangs"}'


def evicted(desk: Desk, owner: str = OWNER, note: str = WHY) -> int:
    """Somebody holds and is evicted; its fence."""
    fence = desk.granted(owner)
    assert isinstance(desk.evict(owner, fence, delay_ms=0, force=True, note=note), ops.Evicted)
    return fence


# ---------------------------------------------------------------- notes


def test_an_eviction_leaves_a_note() -> None:
    """Whose lease it was, which one, when and why; without the secret part of the owner."""
    desk = Desk()
    at = desk.wall_us
    fence = evicted(desk)
    desk.later(5)
    assert desk.look().notes == (AuditNote(at, "evicted", "web-1:812", fence, WHY),)


def test_a_repeated_eviction_is_noted_once() -> None:
    """The second one finds that the first one arrived."""
    desk = Desk()
    fence = evicted(desk)
    assert isinstance(desk.evict(OWNER, fence, note=WHY), ops.Evicted)
    assert len(desk.look().notes) == 1


def test_what_was_not_evicted_is_not_noted() -> None:
    """Neither a refusal nor a request that came too late."""
    desk = Desk()
    fence = desk.granted("a")
    assert isinstance(desk.evict("a", fence, delay_ms=0, note=WHY), ops.Rejected)
    desk.release("a", fence)
    assert isinstance(desk.evict("a", fence, note=WHY), ops.NotYours)
    assert desk.look().notes == ()


def test_the_last_notes_are_kept() -> None:
    """Old ones make room (trap 37)."""
    desk = Desk()
    for number in range(NOTES_KEPT + 5):
        evicted(desk, f"a{number}", str(number))
    assert [note.text for note in desk.look().notes] == [str(number) for number in range(5, NOTES_KEPT + 5)]


def test_a_note_lasts_for_a_month() -> None:
    """Each for itself; after the last one nothing of the resource is left."""
    desk = Desk()
    evicted(desk, "a", "first")
    desk.later(DAY)
    evicted(desk, "b", "second")
    desk.later(29 * DAY - 1)
    assert [note.text for note in desk.look().notes] == ["first", "second"]
    desk.later(1)
    assert [note.text for note in desk.look().notes] == ["second"]
    desk.later(DAY)
    assert desk.look().notes == () and desk.state == ledger.EMPTY


def test_notes_survive_a_restart_of_the_machine() -> None:
    """Every claim is gone; what was done stays to be read."""
    desk = Desk()
    evicted(desk)
    notes = desk.look().notes
    desk.state = ledger.rebooted(desk.state)
    assert desk.look().notes == notes


def test_a_resource_with_notes_is_kept() -> None:
    """Sweeping does not take them before their time."""
    desk = Desk()
    evicted(desk)
    desk.later(2 * DAY)
    assert ledger.tidy(desk.state, desk.now()) == ledger.EMPTY._replace(notes=desk.state.notes)


# ---------------------------------------------------------------- revoke


def test_revoke_tells_the_holder_and_takes_nothing() -> None:
    """It is asked to give back, and goes on holding. That somebody asked is noted."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("b")
    desk.later(1_000)
    before = desk.state
    expect(desk.revoke("a", fence), ops.HolderAsked(True))
    assert desk.pushes == [ops.Push("news@a", "revoke", "report:42", "a", fence, 0, TTL - 1_000)]
    assert desk.state == before._replace(notes=(AuditNote(desk.now().wall_us, "asked", "?", fence),))


def test_whoever_asks_again_leaves_one_note() -> None:
    """Of the last time; an eviction that was noted before is not lost for it. Others, and other reasons, are noted."""
    desk = Desk()
    evicted(desk)
    desk.later(TTL)
    fence = desk.granted("a")
    for _ in range(30):
        desk.later(1)
        desk.revoke("a", fence, "ann")
    desk.revoke("a", fence, "bob")
    desk.revoke("a", fence, "ann")
    desk.revoke("a", fence, "ann")
    assert [(one.event, one.text) for one in desk.look().notes[1:]] == [("asked", one) for one in ("ann", "bob", "ann")]
    assert desk.look().notes[0].event == "evicted" and desk.look().notes[1].at_us == desk.now().wall_us


def test_revoke_says_when_nobody_listens() -> None:
    """The holder's process is gone, or never said where it can be told."""
    desk = Desk()
    fence = desk.granted("a")
    desk.dead.add("news@a")
    expect(desk.revoke("a", fence), ops.HolderAsked(False))
    assert desk.pushes == []
    desk.release("a", fence)
    fence = desk.granted("b")
    desk.state = desk.state._replace(holders=(desk.grant()._replace(holder_address=""),))
    expect(desk.revoke("b", fence), ops.HolderAsked(False))
    assert desk.pushes == []


def test_revoke_compares_owner_and_fence() -> None:
    """A request that was meant for an earlier holder does not reach the present one."""
    desk = Desk()
    fence = desk.granted("a")
    expect(desk.revoke("a", fence - 1), ops.NotYours("taken"))
    expect(desk.revoke("b", fence), ops.NotYours("taken"))
    desk.later(TTL)
    expect(desk.revoke("a", fence), ops.NotYours("deleted"))
    assert desk.pushes == []
