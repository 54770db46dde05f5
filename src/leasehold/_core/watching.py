"""Watching a resource: who holds it, and what it says of itself, each time that changes. A flow.

The store tells a watcher of each change; a watcher that shows up now and then finds out by itself what it was not told.
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.light_typing import NamedTuple
from leasehold._core.policy import SHORT_BEAT_MS, WATCH_EVERY_MS, WATCH_POLL_MS
from leasehold._core.types import Grant
from leasehold.errors import OutcomeUnknown, StoreUnavailable

BEARABLE = 10.0  # seconds without an answer, before whoever watches is told


class Watching(NamedTuple):
    """Who watches what, and where it can be told."""

    resource: str
    owner: str
    address: str


async def next_change(watching: Watching, known: tuple[Grant, ...] | None, now: float) -> ops.View:
    """Wait until others hold it than those who are known, and show it; at once when nothing is known yet."""
    trouble: float | None = None
    while True:
        pause_ms = WATCH_EVERY_MS
        try:
            answer = await ops.Watch(watching.resource, watching.owner, watching.address)
        except (StoreUnavailable, OutcomeUnknown) as error:
            trouble = now if trouble is None else trouble
            if now - trouble > BEARABLE or known is None:
                raise StoreUnavailable(str(error), resource=watching.resource) from error
        else:
            trouble, now, view = None, answer.at, answer.reply
            if known is None or told(view.holders) != told(known):
                return view
            pause_ms = _pause_ms(view, watching.address != "")
        now = (await ops.Park(watching.owner, now + pause_ms / 1000)).at


async def stop(watching: Watching) -> None:
    """It is over: nobody is to be told any more."""
    await ops.Later(ops.Withdraw(watching.resource, watching.owner), WATCH_EVERY_MS / 1000)


def told(holders: tuple[Grant, ...]) -> list[tuple[str, int, str, str]]:
    """What makes a change: not every renewal."""
    return [(one.owner, one.fence, one.rule, one.meta) for one in holders]


def _pause_ms(view: ops.View, pushable: bool) -> int:
    """Nobody tells that a lease has expired unless somebody looks."""
    ends = min([one.expires_ms - view.now_ms for one in view.holders], default=WATCH_EVERY_MS)
    return min(WATCH_EVERY_MS if pushable else WATCH_POLL_MS, max(ends, SHORT_BEAT_MS))
