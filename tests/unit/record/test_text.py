"""Records as text: what is written is read, and when its parts are over for whoever has seen them."""

from __future__ import annotations

import pytest

from leasehold._core import ledger, ops
from leasehold._core.types import Instant, Waiter
from leasehold.stores.record import text
from leasehold.stores.record.text import DOUBT_MS, EMPTY, Kept
from tests.support.tables import each

WALL = 1_700_000_000_000_000


def at(ms: int, wall_us: int | None = None) -> Instant:
    """A moment of a process whose clock began a while ago."""
    return Instant(ms, WALL + ms * 1000 if wall_us is None else wall_us)


def turn(before: Kept, seen: text.Sightings, op: ops.ResourceOp, now: Instant, touched: str = "") -> Kept:
    """What a process writes after an op."""
    base = ledger.tidy(text.here(before, seen), now)
    after = ledger.apply(base, now, op, advanced=True).state
    return text.kept(before, base, after, now, touched)


def claimed(ms: int = 1000) -> Kept:
    """A record with one holder."""
    return turn(EMPTY, {}, ops.Claim("r", "a:1:x", 5_000), at(ms))


def test_what_is_written_is_read() -> None:
    """With every kind of part."""
    one = claimed()
    two = turn(one, text.first_seen(one, {}, at(1001)), ops.Withdraw("r", "b:1:y", 60_000), at(1002))
    for kept in (EMPTY, one, two):
        assert text.decode(text.encode(kept)) == kept


def test_a_grant_lasts_from_when_it_was_first_seen() -> None:
    """On the clock of who has seen it, and however often it is read."""
    one = claimed()
    seen = text.first_seen(one, {}, at(70_000, WALL + 1_000_000))
    again = text.first_seen(one, seen, at(72_000, WALL + 3_000_000))
    assert again == seen
    assert text.here(one, seen).holders[0].expires_ms == 70_001 + 5_000


def test_what_was_written_long_ago_counts_all_but_a_minute() -> None:
    """For whoever sees it for the first time."""
    one = claimed()
    seen = text.first_seen(one, {}, at(500_000, WALL + 1_000_000 + (DOUBT_MS + 4_000) * 1000))
    assert text.here(one, seen).holders[0].expires_ms == 500_001 - 4_000 + 5_000


def test_a_clock_that_was_set_back_ends_nothing() -> None:
    """A mark of the future is as good as one of now."""
    one = claimed()
    seen = text.first_seen(one, {}, at(10, WALL - 10**12))
    assert text.here(one, seen).holders[0].expires_ms == 11 + 5_000


def test_a_renewal_has_a_mark_of_its_own() -> None:
    """Also when nothing else of the grant has changed: others begin to count anew."""
    one = claimed()
    fence = one.state.holders[0].fence
    seen = text.first_seen(one, {}, at(1000))
    two = turn(one, seen, ops.Renew("r", "a:1:x", fence, 5_000), at(1001), touched="a:1:x")
    assert two.marks[0] > one.marks[0]


def test_what_others_do_prolongs_no_grant() -> None:
    """It keeps its mark and its length, whoever writes and however late."""
    one = turn(EMPTY, {}, ops.Claim("r", "a:1:x", 5_000, rule="semaphore", limit=2), at(1000))
    seen = text.first_seen(one, {}, at(4_000))
    two = turn(one, seen, ops.Claim("r", "b:1:y", 5_000, rule="semaphore", limit=2), at(4_100))
    assert (two.marks[0], two.state.holders[0]) == (one.marks[0], one.state.holders[0])
    assert two.marks[1] > one.marks[0]


def test_marks_grow_though_the_clock_stands() -> None:
    """So that none is given twice."""
    one = claimed()
    two = turn(one, text.first_seen(one, {}, at(0)), ops.Withdraw("r", "a:1:x", 60_000), at(0, WALL))
    assert two.last == one.last + 1


@each(
    "written",
    [
        "",
        "null",
        "{}",
        "[]",
        "[2,0,[],[[],[],0,0,0,[]]]",  # of another version
        "[1,0,[5],[[],[],0,0,0,[]]]",  # a mark too many
        '[1,"0",[],[[],[],0,0,0,[]]]',
        "[1,0,[-1],[[],[],0,0,7,[]]]",
        text.encode(claimed())[:-1],
        text.encode(claimed()).replace("mutex", "mutexx"),
    ],
)
def test_what_is_no_record_of_ours(written: str) -> None:
    """It is found before the ledger meets it."""
    with pytest.raises(text.UNREADABLE):
        text.decode(written)


def test_a_place_tells_no_secret() -> None:
    """The token of its owner would let anybody give its claim back."""
    written = text.place_text(waiting())
    read = text.waiter(written, at(77))
    assert read is not None and read.beat_ms == 77
    assert "secret" not in written and read.owner.startswith("host:1#")


def test_a_place_that_cannot_be_read_is_left_out() -> None:
    """Somebody else's text in the queue harms nobody."""
    for written in ("", "[]", "{}", '["x"]', text.place_text(waiting()).replace("5000", '"5000"')):
        assert text.waiter(written, at(0)) is None


def test_pushes_travel() -> None:
    """As they were sent; what is none is dropped."""
    push = ops.Push("address", "revoke", "r", "a:1:x", 7, 0, 100, (1, 2))
    assert text.push(text.push_text(push)) == push
    assert text.push("{") is None and text.push("[1]") is None


def waiting() -> Waiter:
    """A claim in the queue."""
    return Waiter("host:1:secret", 5_000, 1, 3, "address", 0, "mutex", 1, 1, WALL, "", "holder", 0, False)
