"""A turn: one resource open to change, for one op of the ledger. Time, fences, tombstones, doors and the queue.

Every op of ``ledger`` works with it, and nothing else does. It is mutable and lives for one call of ``ledger.apply``.
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.light_typing import Callable
from leasehold._core.policy import (
    DAY_US,
    LIMIT_US,
    MAX_FENCE,
    MAX_FLOOR_AHEAD_US,
    MOST_AHEAD,
    NOTE_US,
    NOTES_KEPT,
    WATCH_MS,
    forgotten_after_ms,
    patience_ms,
    tombstone_ms,
)
from leasehold._core.rules import EXCLUSIVE, RULES, SEMAPHORE, Occupied
from leasehold._core.types import (
    AuditNote,
    Door,
    Grant,
    Instant,
    State,
    Tombstone,
    Waiter,
    public_owner,
    visible_holders,
)

ENDINGS = ("adopted", "expired", "withdrawn", "released")


class Turn:
    """One resource, open to change."""

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
        "requester",
        "resource",
        "watchers",
    )

    def __init__(
        self, state: State, now: Instant, resource: str, requester: str, reachable: Callable[[str], bool]
    ) -> None:
        self.before = state.holders  # without those that are over, once the turn has advanced
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
        self.requester = requester
        self.reachable = reachable
        self.pushes: list[ops.Push] = []

    def state(self) -> State:
        return State(  # by position: every op makes one, and keywords would cost half a microsecond
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
        """Drop records that have outlived their use."""
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

    def mint(self, floor: int, count: int = 1) -> int:
        """A fence above every earlier one, also when the store lost its memory: the clock and the highest fence that
        the client has seen are floors (trap 14). One sequence for all slots: it grows for each of them, and a fence
        names one grant. ``count``: up to so many are given at once, and this is the first of them. As of ``reserve``,
        none is beyond the clock; and there is one alone where the store may have lost its memory."""
        lowest = max(floor, self.fence) + 1
        last = max(self.now.wall_us, lowest)
        first = max(last - count + 1, lowest) if self.fence else last
        self.fence = last
        self.fence_until_us = max(self.fence_until_us, last + DAY_US)
        return first

    def reserve(self, count: int) -> tuple[int, int]:
        """The first and the last of up to so many fences that nothing else will mint; (0, 0) when there are none. They
        end no later than now: a store that forgets them goes on above them, as the clock does."""
        first, last = self.fence + 1, min(self.fence + count, self.now.wall_us)
        if last < first:
            return 0, 0
        self.fence = last
        self.fence_until_us = max(self.fence_until_us, last + DAY_US)
        return first, last

    def wrong_floor(self, floor: int) -> str:
        if 0 <= floor <= MAX_FENCE and floor <= self.now.wall_us + MAX_FLOOR_AHEAD_US:
            return ""
        return f"the fence floor {floor} is negative, near 2**53 or more than ten years ahead of the clock"

    # ------------------------------------------------------------ tombstones and notes

    def add_tombstone(self, owner: str, fence: int, outcome: str, keep_ms: int, detail: str = "") -> None:
        """Leave a tombstone. The first outcome stays; only its time can grow."""
        if keep_ms <= 0:
            return
        until_ms = self.now.ms + keep_ms
        known = self.ended.get(owner)
        if known is None:
            self.ended[owner] = Tombstone(owner, fence, outcome, until_ms, detail)
        elif known.until_ms < until_ms:
            self.ended[owner] = known._replace(until_ms=until_ms)

    def why_not(self, owner: str, fence: int) -> ops.NotYours:
        """Why a grant is not there. Eviction and adoption leave a record, and so does the expiry of a grant that
        outlives its end. A grant that left none was taken when another followed it, also one without a newer fence.
        Else it was deleted, or has expired: its holder, which knows its deadline, tells these apart."""
        if owner in self.ended:
            return ops.NotYours(self.ended[owner].outcome)
        newer = bool(self.holders) or self.fence > fence
        return ops.NotYours("taken" if newer else "deleted")

    def why_not_at(self, fence: int) -> ops.NotYours:
        """The same where only the fence is known. Several owners may have left a record of it, also owners that only
        believed it theirs: what the ledger itself recorded comes first."""
        outcomes = {one.outcome for one in self.ended.values() if one.fence == fence}
        for outcome in ENDINGS:
            if outcome in outcomes:
                return ops.NotYours(outcome)
        return self.why_not("", fence)

    def note(self, event: str, grant: Grant, text: str) -> None:
        """Keep, for later inspection, what an operator did to this grant. Somebody who asks again and again leaves one
        note, of the last time: others must not be lost for it."""
        added = AuditNote(self.now.wall_us, event, public_owner(grant.owner), grant.fence, text)
        again = event == "asked" and bool(self.notes) and self.notes[-1][1:] == added[1:]
        kept = self.notes[:-1] if again else self.notes
        self.notes = (*kept, added)[-NOTES_KEPT:]

    # ------------------------------------------------------------ pushes

    def push(self, address: str, event: str, grant: Grant, beat: int = 0, last: int = 0) -> None:
        remaining_ms = grant.expires_ms - self.now.ms
        self.pushes.append(
            ops.Push(address, event, self.resource, grant.owner, grant.fence, beat, remaining_ms, grant.slots, last)
        )

    def push_to_watchers(self) -> None:
        """Push to every watcher, once, when there is another holder, or a holder's metadata has changed; that one has
        expired is no reason. Watchers that cannot be reached are forgotten."""
        if visible_holders(self.before) == visible_holders(self.holders):
            return
        kept = []
        for one in self.watchers:
            if one.owner == self.requester:  # the reply to its own op is enough
                kept.append(one)
            elif self.reachable(one.address):
                kept.append(one)
                self.pushes.append(ops.Push(one.address, "changed", self.resource, one.owner, self.fence, 0, 0))
        self.watchers = tuple(kept)

    # ------------------------------------------------------------ limits

    def keep_limit(self, limit: int) -> None:
        """Every claim goes by this limit, until long after its last use; with 0 each goes by its own again."""
        self.limit = max(limit, 0)
        self.limit_until_us = self.now.wall_us + LIMIT_US if self.limit else 0

    def impossible(self, rule: str, permits: int, limit: int) -> bool:
        """Does the claim want more than there will ever be? It must not keep others waiting."""
        return rule == SEMAPHORE and permits > (self.limit or limit)

    def too_many(self, permits: int, limit: int) -> ops.Rejected:
        return ops.Rejected(f"{permits} permits were asked for, and there are only {self.limit or limit}")

    def other_limit(self, rule: str, limit: int) -> int:
        """The limit that others go by, when it is not this one."""
        if rule != SEMAPHORE:
            return 0
        if self.limit:
            return self.limit if self.limit != limit else 0
        return max([one.limit for one in self.holders if one.limit != limit], default=0)

    # ------------------------------------------------------------ time

    def expire(self) -> None:
        """End what is over: grants at their expiry, waiters silent for ten patiences, doors, old records."""
        ms = self.now.ms
        self.bound()
        if self.ended:
            self.ended = {owner: one for owner, one in self.ended.items() if one.until_ms > ms}
        for grant in tuple(self.holders):
            if grant.expires_ms > ms:
                continue
            self.holders.remove(grant)
            if grant.outlives_its_end():
                keep_ms = grant.expires_ms + tombstone_ms(grant.ttl_ms) - ms
                self.add_tombstone(grant.owner, grant.fence, "expired", keep_ms)
            self.close(grant, max(grant.closed_until_ms, grant.expires_ms + grant.delay_ms))
        if self.queue:
            self.queue = [one for one in self.queue if ms - one.beat_ms <= forgotten_after_ms(one.ttl_ms)]
        if self.closed_until_ms and self.closed_until_ms <= ms:
            self.closed_until_ms = self.closed_length_ms = 0
        if self.doors:
            self.doors = tuple([one for one in self.doors if one.until_ms > ms])
        self.forget()

    def bound(self) -> None:
        """A clock that was set back would let everything last longer by the step (trap 49). So no end is further ahead
        than it was when it was set, and no beat is later than now."""
        ms = self.now.ms
        for place, grant in enumerate(self.holders):
            ahead_ms = grant.expires_ms - grant.ttl_ms - ms
            if ahead_ms > 0:
                closed_until_ms = max(grant.closed_until_ms - ahead_ms, 0)
                self.holders[place] = grant._replace(expires_ms=ms + grant.ttl_ms, closed_until_ms=closed_until_ms)
        for place, waiter in enumerate(self.queue):
            if waiter.beat_ms > ms:
                self.queue[place] = waiter._replace(beat_ms=ms)
        if self.closed_length_ms:
            self.closed_until_ms = min(self.closed_until_ms, ms + self.closed_length_ms)
        if self.doors:
            self.doors = tuple([_bounded(one, ms) for one in self.doors])
        if self.watchers:
            self.watchers = tuple([one._replace(beat_ms=min(one.beat_ms, ms)) for one in self.watchers])

    def live(self, waiter: Waiter) -> bool:
        """Did this waiter beat lately? One that is not live keeps its place and is passed over (trap 25)."""
        return self.now.ms - waiter.beat_ms <= patience_ms(waiter.ttl_ms)

    def close(self, grant: Grant, until_ms: int) -> None:
        """No new grant gets what this one had until then: all of it where it was alone, else its own slots."""
        length_ms = until_ms - self.now.ms
        if length_ms <= 0:
            return
        if grant.rule in EXCLUSIVE:
            if until_ms > self.closed_until_ms:
                self.closed_until_ms, self.closed_length_ms = until_ms, length_ms
            return
        place = (grant.rule, grant.slots)
        known = [one for one in self.doors if one[:2] == place and one.until_ms >= until_ms]
        others = [one for one in self.doors if one[:2] != place]
        self.doors = (*others, *(known or [Door(*place, until_ms, length_ms)]))

    # ------------------------------------------------------------ the queue

    def hand_on(self, requester: str = "") -> None:
        """Grant waiters in the order they arrived, up to the first that does not fit. The ``requester`` learns it from
        the reply; others from a push that names their last beat. There is no grant while the door is closed."""
        if not self.queue or self.closed_until_ms > self.now.ms:
            return
        seats: list[Occupied] = [*self.holders, *self.doors]
        for waiter in tuple(self.queue):
            if not self.live(waiter):
                continue
            if self.impossible(waiter.rule, waiter.permits, waiter.limit):
                continue  # until it is resized again; the reply to its next beat says so
            slots = RULES[waiter.rule](seats, waiter, self.limit or waiter.limit)
            if slots is None:
                return
            if waiter.owner == requester:
                seats.append(self.grant(waiter, slots))
                continue
            if not waiter.address:
                return  # it keeps its place, and takes the free resource with its own next beat
            if waiter.owner == self.requester or self.reachable(waiter.address):
                grant = self.grant(waiter, slots, waiter.limit if waiter.rule in EXCLUSIVE else 1)
                seats.append(grant)
                self.push(waiter.address, "granted", grant, waiter.beat, self.fence if self.fence > grant.fence else 0)
            else:
                self.pass_over(waiter)

    def pass_over(self, waiter: Waiter) -> None:
        """Nothing listens at its address: it must not delay others. It keeps its place as a silent waiter does, because
        after a restart of the server the first release may be quicker than the waiters' return."""
        place = self.queue.index(waiter)
        self.queue[place] = waiter._replace(beat_ms=self.now.ms - patience_ms(waiter.ttl_ms) - 1)

    def grant(self, waiter: Waiter, slots: tuple[int, ...], fences: int = 1) -> Grant:
        """Move a claim from the queue to the holders. Every grant is made here. ``fences``: how many it gets, if there
        are as many."""
        self.queue.remove(waiter)
        grant = Grant(  # by position, as in ``state``
            waiter.owner,
            self.mint(waiter.floor, fences),
            waiter.ttl_ms,
            self.now.ms + waiter.ttl_ms,
            waiter.rule,
            slots,
            self.now.wall_us,
            waiter.meta,
            waiter.holder_address,
            waiter.delay_ms,
            limit=waiter.limit if waiter.rule == SEMAPHORE else 0,
            repeated=waiter.repeated,
        )
        self.holders.append(grant)
        if grant.limit and self.limit:
            self.keep_limit(self.limit)
        return grant

    def others_wait(self) -> bool:
        """Is there a claim that would be granted if its turn came?"""
        return any(self.live(one) and not self.impossible(one.rule, one.permits, one.limit) for one in self.queue)

    # ------------------------------------------------------------ lookup

    def grant_of(self, owner: str, fence: int | None = None) -> Grant | None:
        for grant in self.holders:
            if grant.owner == owner and (fence is None or grant.fence == fence):
                return grant
        return None

    def grant_at(self, fence: int) -> Grant | None:
        return next((grant for grant in self.holders if grant.fence == fence), None)

    def place_of(self, owner: str) -> int | None:
        for place, waiter in enumerate(self.queue):
            if waiter.owner == owner:
                return place
        return None

    def leave(self, owner: str) -> bool:
        """Remove it from the queue; False when it was not in it."""
        place = self.place_of(owner)
        if place is not None:
            del self.queue[place]
        return place is not None

    def record_beat(self, place: int, beat: int, floor: int) -> bool:
        """Record a beat. False for one that a later beat has overtaken: it says nothing about now."""
        waiter = self.queue[place]
        if beat <= waiter.beat:
            return False
        self.queue[place] = waiter._replace(beat=beat, beat_ms=self.now.ms, floor=max(floor, waiter.floor))
        return True

    def standing(self, owner: str) -> ops.Granted | ops.Queued:
        """Where this claim stands, granted or waiting."""
        grant = self.grant_of(owner)
        if grant is not None:
            return self.granted(grant)
        place = next(place for place, waiter in enumerate(self.queue) if waiter.owner == owner)
        ahead = 0
        for waiter in self.queue[:place]:
            ahead += self.live(waiter)
            if ahead == MOST_AHEAD:
                break
        waiter = self.queue[place]
        other = self.other_limit(waiter.rule, waiter.limit)
        return ops.Queued(ahead, self.free_in_ms(), self.holder(), waiter.address != "", other)

    def standing_of_claim(self, owner: str) -> ops.Granted | ops.Queued:
        """The same for a claim that has just come, or shows that it is alive. If it has to wait, holders that asked for
        it are told, once."""
        standing = self.standing(owner)
        if isinstance(standing, ops.Queued):
            for place, grant in enumerate(self.holders):
                if grant.tell:
                    self.push(grant.holder_address, "wanted", grant)
                    self.holders[place] = grant._replace(tell=False)
        return standing

    def granted(self, grant: Grant) -> ops.Granted:
        other = self.other_limit(grant.rule, grant.limit)
        return ops.Granted(grant.fence, grant.expires_ms - self.now.ms, grant.slots, other, grant.rule)

    def closed_ms(self) -> int:
        """For how long some place stays closed."""
        ends = [self.closed_until_ms, *[door.until_ms for door in self.doors]]
        return max(*ends, self.now.ms) - self.now.ms

    def free_in_ms(self) -> int:
        ends = [max(grant.expires_ms, grant.closed_until_ms) for grant in self.holders]
        ends += [door.until_ms for door in self.doors]
        return max(min(ends, default=0), self.closed_until_ms, self.now.ms) - self.now.ms

    def holder(self) -> str:
        return public_owner(self.holders[0].owner) if self.holders else ""


def _bounded(door: Door, ms: int) -> Door:
    return door._replace(until_ms=min(door.until_ms, ms + door.length_ms)) if door.length_ms else door
