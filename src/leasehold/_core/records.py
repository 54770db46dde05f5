"""What a resource remembers beside its queue: fences, tombstones, notes, a limit, and who watches.

The state laid open for one op; ``turn`` adds time and the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leasehold._core import ops
from leasehold._core.policy import DAY_US, LIMIT_US, MAX_FENCE, MAX_FLOOR_AHEAD_US, NOTE_US, NOTES_KEPT, WATCH_MS
from leasehold._core.rules import SEMAPHORE
from leasehold._core.types import Ended, Grant, Instant, Note, State, public_owner

ENDINGS = ("adopted", "expired", "withdrawn", "released")


class Records:
    """One resource, open to be changed."""

    __slots__ = (
        "before",
        "closed_length_ms",
        "closed_until_ms",
        "doors",
        "ended",
        "fence",
        "fence_until_us",
        "holders",
        "limit",
        "limit_until_us",
        "notes",
        "now",
        "pushes",
        "queue",
        "reachable",
        "resource",
        "speaker",
        "watchers",
    )

    def __init__(
        self, state: State, now: Instant, resource: str, speaker: str, reachable: Callable[[str], bool]
    ) -> None:
        self.before = state.holders
        self.holders = list(state.holders)
        self.queue = list(state.queue)
        self.fence = state.fence
        self.fence_until_us = state.fence_until_us
        self.closed_until_ms = state.closed_until_ms
        self.ended = {one.owner: one for one in state.ended} if state.ended else {}
        self.notes = state.notes
        self.doors = state.doors
        self.limit = state.limit
        self.limit_until_us = state.limit_until_us
        self.watchers = state.watchers
        self.closed_length_ms = state.closed_length_ms
        self.now = now
        self.resource = resource
        self.speaker = speaker
        self.reachable = reachable
        self.pushes: list[ops.Push] = []

    def state(self) -> State:
        return State(
            tuple(self.holders),
            tuple(self.queue),
            self.fence,
            self.fence_until_us,
            self.closed_until_ms,
            tuple(self.ended.values()),
            self.notes,
            self.doors,
            self.limit,
            self.limit_until_us,
            self.watchers,
            self.closed_length_ms,
        )

    def forget(self) -> None:
        """Let go of records that have outlived their use."""
        wall_us = self.now.wall_us
        if self.fence and not self.holders and self.fence_until_us <= wall_us:
            self.fence = self.fence_until_us = 0
        if self.limit and self.limit_until_us <= wall_us:
            self.limit = self.limit_until_us = 0
        if self.watchers:
            self.watchers = tuple([one for one in self.watchers if self.now.ms - one.beat_ms <= WATCH_MS])
        if self.notes:
            self.notes = tuple([one for one in self.notes if one.at_us + NOTE_US > wall_us])

    # ------------------------------------------------------------ fences

    def mint(self, floor: int) -> int:
        """A fence above every earlier one, also when the store lost its memory: the clock and the highest fence that
        the client has seen are floors (trap 14). One sequence for all slots: it grows for each of them, and a fence
        names one grant."""
        self.fence = fence = max(self.now.wall_us, floor + 1, self.fence + 1)
        self.fence_until_us = max(self.fence_until_us, fence + DAY_US)
        return fence

    def wrong_floor(self, floor: int) -> str:
        if 0 <= floor <= MAX_FENCE and floor <= self.now.wall_us + MAX_FLOOR_AHEAD_US:
            return ""
        return f"the fence floor {floor} is negative, near 2**53 or more than ten years ahead of the clock"

    # ------------------------------------------------------------ tombstones and notes

    def bury(self, owner: str, fence: int, outcome: str, keep_ms: int, detail: str = "") -> None:
        """Leave a tombstone. The first outcome stays; only its time can grow."""
        if keep_ms <= 0:
            return
        until_ms = self.now.ms + keep_ms
        known = self.ended.get(owner)
        if known is None:
            self.ended[owner] = Ended(owner, fence, outcome, until_ms, detail)
        elif known.until_ms < until_ms:
            self.ended[owner] = known._replace(until_ms=until_ms)

    def why_not(self, owner: str, fence: int) -> ops.NotYours:
        """Why a grant is not there. Expiry, eviction and adoption leave a record. What left none and was followed by
        another was taken, also by somebody who minted no fence; what left none and was not was deleted."""
        if owner in self.ended:
            return ops.NotYours(self.ended[owner].outcome)
        newer = bool(self.holders) or self.fence > fence
        return ops.NotYours("taken" if newer else "deleted")

    def why_not_at(self, fence: int) -> ops.NotYours:
        """The same for somebody who knows the fence alone. Several may have left a record of it, also those who only
        believed that it was theirs: what the ledger itself says of a grant comes first."""
        outcomes = {one.outcome for one in self.ended.values() if one.fence == fence}
        for outcome in ENDINGS:
            if outcome in outcomes:
                return ops.NotYours(outcome)
        return self.why_not("", fence)

    def note(self, event: str, grant: Grant, text: str) -> None:
        """Keep for those who ask later what was done to this grant."""
        added = Note(self.now.wall_us, event, public_owner(grant.owner), grant.fence, text)
        self.notes = (*self.notes, added)[-NOTES_KEPT:]

    # ------------------------------------------------------------ telling

    def push(self, address: str, event: str, grant: Grant, beat: int = 0) -> None:
        remaining_ms = grant.expires_ms - self.now.ms
        self.pushes.append(
            ops.Push(address, event, self.resource, grant.owner, grant.fence, beat, remaining_ms, grant.slots)
        )

    def tell_watchers(self) -> None:
        """Who holds, and what it says of itself, has changed: whoever wants to know is told, once. Who is not there any
        more is forgotten."""
        if _seen(self.before) == _seen(self.holders):
            return
        told = []
        for one in self.watchers:
            if one.owner == self.speaker:  # the reply tells it
                told.append(one)
            elif self.reachable(one.address):
                told.append(one)
                self.pushes.append(ops.Push(one.address, "changed", self.resource, one.owner, self.fence, 0, 0))
        self.watchers = tuple(told)

    # ------------------------------------------------------------ limits

    def keep_limit(self, limit: int) -> None:
        """Every claim goes by this one, until long after its last use; by 0 each goes by its own again."""
        self.limit = max(limit, 0)
        self.limit_until_us = self.now.wall_us + LIMIT_US if self.limit else 0

    def impossible(self, rule: str, permits: int, limit: int) -> bool:
        """Does it want more than there will ever be? It must not keep others waiting."""
        return rule == SEMAPHORE and permits > (self.limit or limit)

    def too_many(self, permits: int, limit: int) -> ops.Refused:
        return ops.Refused(f"{permits} permits were asked for, and there are only {self.limit or limit}")

    def other_limit(self, rule: str, limit: int) -> int:
        """The limit that others go by, when it is not this one."""
        if rule != SEMAPHORE:
            return 0
        if self.limit:
            return self.limit if self.limit != limit else 0
        return max([one.limit for one in self.holders if one.limit != limit], default=0)


def _seen(holders: Iterable[Grant]) -> list[tuple[str, int, str, str]]:
    """What watchers are told of: not of every renewal."""
    return [(one.owner, one.fence, one.rule, one.meta) for one in holders]
