"""The schedule: when the watchdog must check which lease.

Leases are filed under moments. A lease that must be checked at some time is filed under the last moment of a grid
before that time. The steps of the grid are a fraction of the lease's ttl, so leases of one ttl share a few moments,
whenever they were acquired: to file one and to take it out again costs the same for ten leases and for ten thousand,
and those that are due together are renewed together.

Many processes that start at the same time, or that find a store again at the same time, must not renew in step: each
coordinator has a grid of its own, shifted at random, and each round of renewals brings the next one forward by a part
of a step that is drawn anew. So is the next try of a renewal that failed. No lease is ever checked later than it asks
for, and none earlier than by two steps.

Every method but ``remove`` is called under the watchdog's lock.
"""

from __future__ import annotations

import os

from leasehold._core.holding import ALIVE, NEVER
from leasehold._core.light_typing import TYPE_CHECKING, Iterable, Set, TypeAlias

if TYPE_CHECKING:
    from leasehold._runtime.held_lease import HeldLease

Bucket: TypeAlias = "set[HeldLease]"

STEPS = 24  # at least, in a ttl: two of them are what a renewal may come early, see ``early``
FINE = 2**20  # no step is as short as this part of a second
LONGEST_STEP = 4096.0  # seconds: longer than a step of the longest ttl
# The leases that change together under the lock, and those that one request renews. Redis runs one script at a time,
# and takes about 2 µs for a lease: nobody waits for more than half a millisecond, and what a request costs besides is
# shared by so many that more would save nothing.
FEW = 250
NO_FILE: tuple[int, float, float, float, Bucket] = (0, 0.0, 0.0, NEVER, set())


def early(ttl_ms: int) -> float:
    """How many seconds earlier than it asks for a lease may be renewed: after a quarter of its ttl instead of a
    third."""
    return 2 * ttl_ms / 1000 / STEPS


def drawn() -> float:
    """A number from [0, 1). Not by ``random``: workers that seed it alike would all draw alike."""
    return int.from_bytes(os.urandom(6), "big") / 2**48


def _refile(held: HeldLease, bucket: Bucket) -> None:
    """First into the new one: an interrupt loses no lease. It may leave it in both; see ``tidy``."""
    before = held.bucket
    bucket.add(held)
    held.bucket = bucket
    before.discard(held)


class Schedule:
    """The leases of one coordinator, by the moment at which each must be checked."""

    def __init__(self) -> None:
        self._files: dict[float, Bucket] = {}
        self._shift = drawn() * LONGEST_STEP
        self._forward = 0.0  # of a step
        self._last = NO_FILE  # ttl_ms, from, to, moment, bucket: the file of check times between these two
        self.draw()

    def draw(self) -> None:
        """Bring leases forward by another part of a step from now on."""
        self._forward = drawn()
        self._last = NO_FILE

    # ------------------------------------------------------------ one lease

    def add(self, held: HeldLease) -> float:
        """File a lease. Returns its moment. One that follows another has its times, and its file as long as that is the
        last that was used: an older one may have been thrown away."""
        ttl_ms, low, high, moment, bucket = self._last
        if held.bucket is not bucket:
            at = held.check_at()
            if not low <= at < high or held.ttl_ms != ttl_ms:
                moment, bucket = self._file(held.ttl_ms, at)
            held.bucket = bucket
        bucket.add(held)
        return moment

    @staticmethod
    def remove(held: HeldLease) -> None:
        """From any thread, at any time: a lease that has ended is not filed again."""
        held.bucket.discard(held)

    def move(self, leases: Iterable[HeldLease], now: float) -> float:
        """The times of these have changed. What has ended or was removed meanwhile is not filed again. Returns the
        first of their moments."""
        first = NEVER
        for held in leases:
            before = held.bucket
            if held.phase not in ALIVE or held not in before:
                continue
            at = held.check_at()
            ttl_ms, low, high, moment, bucket = self._last
            if not low <= at < high or held.ttl_ms != ttl_ms:
                moment, bucket = self._file(held.ttl_ms, at)
            if moment <= now:  # less than two steps are left
                moment = self._shortly(held, at, now)
                bucket = self._files.setdefault(moment, set())
            if bucket is not before:
                _refile(held, bucket)
            first = min(first, moment)
        return first

    def move_together(self, leases: Set[HeldLease], ttl_ms: int, at: float, now: float) -> Bucket | None:
        """Move the largest bucket that holds nothing but these leases, which have this ttl and are to be checked at one
        time: with thousands of leases that is far cheaper than to move each. Returns it; the others stay."""
        moment, target = self._file(ttl_ms, at)
        whole = [before for before, bucket in self._files.items() if bucket is not target and bucket <= leases]
        largest = max(whole, key=lambda before: len(self._files[before]), default=NEVER)
        if largest == NEVER or len(target) > FEW:
            return None
        bucket = self._files[largest]
        self._files[moment], self._files[largest] = bucket, target
        self._last = NO_FILE
        self.move(list(target), now)
        return bucket

    def _shortly(self, held: HeldLease, at: float, now: float) -> float:
        """A loss is declared when it happens. A renewal, such as the next try of one that failed, is brought forward
        by up to half of the pause."""
        return at if at <= now or at >= held.stop_at else at - self._forward * (at - now) / 2

    def _file(self, ttl_ms: int, at: float) -> tuple[float, Bucket]:
        if at == NEVER:
            return NEVER, self._files.setdefault(NEVER, set())
        # A power of two: steps of all ttls end together.
        step = 2.0 ** (int(ttl_ms / 1000 / STEPS * FINE).bit_length() - FINE.bit_length())
        forward = self._forward * step
        moment = (at - forward - self._shift) // step * step + self._shift
        bucket = self._files.setdefault(moment, set())
        self._last = (ttl_ms, moment + forward, moment + forward + step, moment, bucket)
        return moment, bucket

    # ------------------------------------------------------------ all of them

    def next_at(self) -> float:
        """The first moment with a lease. Empty files before it are thrown away."""
        for moment in sorted(self._files):
            if self._files[moment]:
                return moment
            del self._files[moment]
            self._last = NO_FILE
        return NEVER

    def until(self, moment: float) -> list[HeldLease]:
        """The leases to be checked by then, the first ones first."""
        found: list[HeldLease] = []
        for one in sorted(self._files):
            if one > moment:
                break
            found += self._files[one]
        return found

    def tidy(self, now: float) -> None:
        """All that was due has been checked. What an interrupt left behind in a bucket is thrown away."""
        for moment, bucket in self._files.items():
            if moment <= now and bucket:
                bucket.difference_update([held for held in bucket if held.bucket is not bucket])

    def leases(self) -> list[HeldLease]:
        return list(set().union(*self._files.values()))
