"""A resource as a row and back: three forms, and what is damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._core import ledger
from leasehold._core.ops import Claim, Push, Release
from leasehold._core.policy import DAY_US
from leasehold._core.types import Grant, Instant, State, Waiter
from leasehold.stores.postgresql import pushes, rows
from leasehold.stores.postgresql.rows import Row
from tests.support.tables import each
from tests.unit.sqlite.test_codec import states

NOW = Instant(1_700_000_000_000, 1_700_000_000_000_000)
CLAIM = Claim("job", "host:1:a", 5_000, meta='{"why":"\\ud800"}', holder_address="leasehold_00ff.1")


@given(states)
def test_every_state_survives_its_row(state: State) -> None:
    """Whatever form it has."""
    row = rows.encode(state)
    assert (ledger.EMPTY if row is None else rows.decode(row)) == state


def test_a_plain_lease_is_in_columns() -> None:
    """One that is held, and what is left when it is released; the statements of the hot path know no other form."""
    held = ledger.apply(ledger.EMPTY, NOW, CLAIM).state
    row = rows.encode(held)
    assert row is not None and row.state is None and row.owner == CLAIM.owner and row.expires == NOW.ms + 5_000
    assert rows.decode(row) == held
    freed = ledger.apply(held, NOW, Release("job", CLAIM.owner, held.fence)).state
    assert rows.encode(freed) == Row(held.fence)
    assert rows.decode(Row(held.fence)) == freed == State(fence=held.fence, fence_until_us=held.fence + DAY_US)


GRANT = Grant("host:1:a", NOW.wall_us, 5_000, NOW.ms + 5_000, since_us=NOW.wall_us)
NOT_PLAIN = {
    "somebody waits": State((GRANT,), (Waiter("b", 1, 1, 1),), GRANT.fence, GRANT.fence + DAY_US),
    "a reader": State((GRANT._replace(rule="read"),), (), GRANT.fence, GRANT.fence + DAY_US),
    "it was transferred": State((GRANT._replace(ticket="t"),), (), GRANT.fence, GRANT.fence + DAY_US),
    "it has a lock-delay": State((GRANT._replace(delay_ms=1),), (), GRANT.fence, GRANT.fence + DAY_US),
    "a later fence was minted": State((GRANT,), (), GRANT.fence + 1, GRANT.fence + 1 + DAY_US),
    "a door is closed": State((), (), GRANT.fence, GRANT.fence + DAY_US, NOW.ms + 1),
}


@each("why", NOT_PLAIN)
def test_anything_else_is_kept_as_a_whole(why: str) -> None:
    """And no statement of the hot path takes it for a free resource or a plain lease."""
    row = rows.encode(NOT_PLAIN[why])
    assert row is not None and row.state is not None and row.owner is None
    assert rows.decode(row) == NOT_PLAIN[why]


PLAIN = Row(7, "owner", 1, 1, 1, '["mutex","",""]')


@each(
    "row",
    [
        PLAIN._replace(details=None),
        PLAIN._replace(details="[]"),
        PLAIN._replace(details='["read","",""]'),
        PLAIN._replace(details='["mutex",1,""]'),
        PLAIN._replace(ttl=None),
        PLAIN._replace(since=None),
        Row(7, state="{}"),
        Row(7, state="[[],[],1"),
    ],
)
def test_what_nobody_of_us_wrote_is_recognised(row: Row) -> None:
    """It is unreadable, and nothing else is raised."""
    assert rows.decode(PLAIN)
    with pytest.raises(rows.UNREADABLE):
        rows.decode(row)


def test_a_listener_is_found_by_its_address() -> None:
    """Its number fits into what an advisory lock takes; other addresses have none."""
    address = f"{pushes.new_channel()}.3"
    key = rows.listener_key(address)
    assert key is not None and -(2**63) <= key < 2**63
    assert rows.listener_key(address.replace(".3", ".4")) == key
    assert rows.listener_key("") is rows.listener_key("lock:v1:push:x") is None


@given(st.text(max_size=50), st.text(max_size=50))
def test_a_push_survives_its_notification(resource: str, owner: str) -> None:
    """And one that is too long still wakes whoever it is for."""
    push = Push("leasehold_00ff.1", "granted", resource, owner, 7, 2, 5_000, (1, 2))
    channel, payload = pushes.encode(push)
    assert channel == "leasehold_00ff" and pushes.decode(payload) == (push.address, push)
    _, payload = pushes.encode(push._replace(resource="x" * 8_000))
    assert len(payload) < 8_000 and pushes.decode(payload) == (push.address, None)


@each("payload", ["", "hello", "1", '["a","granted","r","o","7",2,5,[0]]', '["a",1,2]'])
def test_a_notification_of_somebody_else_is_ignored(payload: str) -> None:
    """Whatever it says."""
    assert pushes.decode(payload) == ("", None)
