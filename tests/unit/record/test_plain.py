"""Plain turns of a record: what the ledger decides and the record then says, or nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold._core import ledger, ops
from leasehold._core.types import Instant
from leasehold.stores.record import plain, text
from leasehold.stores.record.text import EMPTY, Kept
from tests.support.examples import examples
from tests.support.tables import each

WALL = 1_700_000_000_000_000
TTL = 5_000
ME, OTHER = "a:1:x", "b:1:y"
CLAIM = ops.Claim("r", ME, TTL, holder_address="@news", meta='{"a":1}', delay_ms=5)


def at(ms: int) -> Instant:
    """A moment on both clocks."""
    return Instant(ms, WALL + ms * 1000)


def slowly(before: Kept, seen: text.Sightings, now: Instant, op: Any) -> tuple[ops.Reply, Kept]:
    """The same without plain turns."""
    base = ledger.tidy(text.here(before, seen), now)
    outcome = ledger.apply(base, now, op, advanced=True)
    renewed = type(op) is ops.Renew and isinstance(outcome.reply, ops.Renewed)
    return outcome.reply, text.kept(before, base, outcome.state, now, op.owner if renewed else "")


HELD = slowly(EMPTY, {}, at(1000), CLAIM)[1]
SEEN = text.first_seen(HELD, {}, at(1000))
FENCE = HELD.state.fence
RENEW, RELEASE = ops.Renew("r", ME, FENCE, TTL, number=3), ops.Release("r", ME, FENCE)
FREE = slowly(HELD, SEEN, at(1000), RELEASE)[1]


@each(
    "kept, now, op",
    [
        (EMPTY, at(1000), CLAIM),
        (FREE, at(1000), CLAIM),
        (FREE, at(2000), CLAIM._replace(rule="write", floor=FENCE + 10**9)),
        *[(HELD, at(ms), op) for ms in (1000, 1001, 1002, 6000) for op in (RENEW, RELEASE)],
    ],
)
def test_what_is_plain(kept: Kept, now: Instant, op: Any) -> None:
    """Also in the millisecond in which it was seen, and in the last one."""
    assert plain.turn(kept, SEEN, now, op) == slowly(kept, SEEN, now, op)


@each(
    "kept, now, op",
    [
        (HELD, at(1000), CLAIM._replace(owner=OTHER)),
        (HELD, at(6001), CLAIM._replace(owner=OTHER)),
        *[(HELD, at(6001), op) for op in (RENEW, RELEASE)],
        *[(FREE, at(1000), op) for op in (RENEW, RELEASE)],
        (FREE, at(10**9), CLAIM),
        (slowly(HELD, SEEN, at(1000), RENEW._replace(closed_ms=900))[1], at(1000), RELEASE),
        (slowly(HELD, SEEN, at(1000), ops.Withdraw("r", OTHER, 60_000))[1], at(1000), RELEASE),
    ],
)
def test_what_is_left_to_the_ledger(kept: Kept, now: Instant, op: Any) -> None:
    """What is over, what others have, doors, tombstones, and fences that are to be forgotten."""
    assert plain.turn(kept, text.first_seen(kept, SEEN, at(1000)), now, op) is None


def of_the_first(op: Any, kept: Kept) -> Any:
    """The same op of the holder that there is."""
    holder = kept.state.holders[0]
    return op._replace(owner=holder.owner, fence=holder.fence)


OPS = st.one_of(
    st.builds(
        ops.Claim,
        st.just("r"),
        st.sampled_from([ME, OTHER]),
        st.sampled_from([1, TTL]),
        rule=st.sampled_from(["mutex", "mutex", "mutex", "read"]),
        delay_ms=st.sampled_from([0, 0, 7]),
        enqueue=st.just(False),
    ),
    st.sampled_from([RENEW, RENEW._replace(ttl_ms=2 * TTL), RELEASE, RELEASE._replace(forget_ms=9)]),
)


@given(st.lists(st.tuples(OPS, st.sampled_from([0, 0, 1, 40, TTL, TTL + 1])), max_size=30))
@settings(max_examples=examples(200))
def test_a_life(steps: list[tuple[Any, int]]) -> None:
    """A plain turn comes to the same as the others, after every step."""
    kept, seen, ms = EMPTY, dict[int, int](), 1000
    for step, passed_ms in steps:
        ms += passed_ms
        op = step if type(step) is ops.Claim or not kept.state.holders else of_the_first(step, kept)
        quick, slow = plain.turn(kept, seen, at(ms), op), slowly(kept, seen, at(ms), op)
        assert quick in (None, slow)
        kept = slow[1]
        seen = text.first_seen(kept, seen, at(ms))
