"""A resource as a row: the columns for the only lease of a free mutex, and the whole state as text for all else.

A row is in one of three forms:

free      ``owner`` and ``state`` are NULL: nothing is held, and ``fence`` is the last one that was minted
held      ``owner`` is set: one lease, and nothing else to remember
anything  ``state`` is set: the state as JSON, and the other columns but ``fence`` and ``listener`` are NULL

The first two are what a claim, a renewal and a release of most locks read and write, each in one statement.
"""

from __future__ import annotations

from leasehold._core import ledger
from leasehold._core.light_typing import NamedTuple
from leasehold._core.policy import DAY_US
from leasehold._core.rules import EXCLUSIVE, ONLY_SLOT
from leasehold._core.types import Grant, State
from leasehold.stores import state_text
from leasehold.stores.state_text import UNREADABLE

__all__ = ["UNREADABLE", "Row", "decode", "details", "encode", "listener_key"]

USUAL = State._fields.index("fence_until_us") + 1  # the fields behind it are empty in the first two forms
NOTHING = State()[USUAL:]


class Row(NamedTuple):
    """The columns of a resource behind its name, in the order of every statement."""

    fence: int = 0
    owner: str | None = None
    expires: int | None = None  # milliseconds since 1970, on the server's clock
    ttl: int | None = None
    since: int | None = None  # microseconds since 1970
    details: str | None = None
    state: str | None = None
    listener: int | None = None  # of the first in the queue: is somebody there who hears of a grant?


def details(rule: str, meta: str, holder_address: str) -> str:
    """The rest of a lease, which no statement looks at."""
    return state_text.text([rule, meta, holder_address])


def decode(row: Row) -> State:
    """Raises one of ``UNREADABLE`` for a row that nobody of us wrote."""
    if row.state is not None:
        return state_text.decode(row.state)
    if row.owner is None:
        return State(fence=row.fence, fence_until_us=row.fence + DAY_US if row.fence else 0)
    rule, meta, holder_address = state_text.parse(row.details or "")
    numbers = row.ttl, row.expires, row.since
    if rule not in EXCLUSIVE or not isinstance(meta, str) or not isinstance(holder_address, str) or None in numbers:
        raise ValueError("no lease of ours")
    ttl, expires, since = [number or 0 for number in numbers]
    grant = Grant(row.owner, row.fence, ttl, expires, rule, ONLY_SLOT, since, meta, holder_address)
    return State((grant,), (), row.fence, row.fence + DAY_US)


def encode(state: State) -> Row | None:
    """None when nothing need be kept."""
    if state == ledger.EMPTY:
        return None
    if state.queue or state[USUAL:] != NOTHING or state.fence_until_us != state.fence + DAY_US:
        return _any(state)
    if not state.holders:
        return Row(state.fence)
    grant = state.holders[0]
    usual = Grant(*grant[:5], ONLY_SLOT, *grant[6:9])
    if len(state.holders) > 1 or grant != usual or grant.rule not in EXCLUSIVE or grant.fence != state.fence:
        return _any(state)
    return Row(
        grant.fence,
        grant.owner,
        grant.expires_ms,
        grant.ttl_ms,
        grant.since_us,
        details(grant.rule, grant.meta, grant.holder_address),
    )


def _any(state: State) -> Row:
    first = next((one.address for one in state.queue if one.address), "")
    return Row(state.fence, state=state_text.encode(state), listener=listener_key(first))


def listener_key(address: str) -> int | None:
    """The number of the advisory lock that the process behind this address has while it listens; None for an address
    that is none of ours. See ``listener``."""
    try:
        return int(address.partition(".")[0].removeprefix("leasehold_"), 16) - 2**63
    except ValueError:
        return None
