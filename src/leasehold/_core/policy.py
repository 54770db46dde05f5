"""The numbers of the protocol, each with its reason. Milliseconds where a store counts, seconds locally."""

from __future__ import annotations

MIN_TTL_MS = 50
MAX_TTL_MS = 24 * 3600 * 1000
LONG_TTL_MS = 3600 * 1000  # above this a lease is the wrong tool: durable ownership (jobs)


DAY_US = 24 * 3600 * 1_000_000
MAX_FENCE = 2**53 - DAY_US  # beyond 2**53 a float (Lua, JavaScript) no longer counts by one
MAX_FLOOR_AHEAD_US = 3653 * DAY_US  # ten years: a floor further ahead is a mistake, not a clock

NOTES_KEPT = 20  # of one resource: the last ones
NOTE_US = 30 * DAY_US  # and how long each is kept
MAX_NOTE_BYTES = 2500  # two lines of 300 characters, of four bytes each at worst, and what JSON adds

LIMIT_US = 30 * DAY_US  # how long a resized semaphore keeps its limit after it was last used
MOST_PERMITS = 1_000  # of one semaphore: a store reads each that is held

WATCH_MS = 30_000  # a silent watcher is forgotten after this long
WATCH_EVERY_MS = 1_000  # and beats this often: without a push it learns of a change after that long
WATCH_POLL_MS = 250  # where nothing can be pushed

PAGE = 200  # resources that are read for one page of a listing

BUDGET_MS = 5_000  # how long one call may take where nothing shorter bounds it
RENEWAL_MS = 500  # and one batch of renewals
LEAST_BUDGET_MS = 1_000  # and may always take, also at the end of a wait: a busy store is no refusal
HEAD_POLL_MS = 30  # the head of the queue beats this often when no push can reach it
MOST_AHEAD = 1  # a waiter need only know whether it is first; counting all would cost more, the more wait
SHORT_BEAT_MS = 5  # no waiter beats more often than this


MOST_PASSES = 256  # of a lease from one waiter of a process to the next, before the store is asked again
PASS_SECONDS = 0.1  # and for how long: others who wait elsewhere wait that much longer, at most, besides their turn

LONGEST_REST = 60.0  # seconds before a candidate that loses one term after the other stands again


def patience_ms(ttl_ms: int) -> int:
    """L: how old a waiter's last beat may be before the queue passes over it."""
    return min(ttl_ms, 3_000)


def beat_every_ms(ttl_ms: int) -> int:
    """Two beats may be lost before the waiter is skipped."""
    return patience_ms(ttl_ms) // 3


def forgotten_after_ms(ttl_ms: int) -> int:
    """A silent waiter leaves the queue after this long. Ten times L: a stalled server must not empty it."""
    return 10 * patience_ms(ttl_ms)


def tombstone_ms(ttl_ms: int) -> int:
    """How long an ended owner is remembered, so that a claim that is delivered late takes nothing."""
    return max(ttl_ms, 60_000)


def drift(seconds: float) -> float:
    """What a local clock may be off by over this stretch: 1 % and 2 ms."""
    return seconds * 0.01 + 0.002


def margin(ttl: float) -> float:
    """How long before the deadline work under a renewing lease must stop when renewal does not succeed."""
    return ttl / 6


def renew_after(ttl: float) -> float:
    """The watchdog renews this long after the last confirmation."""
    return ttl / 3


def renewal_budget_ms(ttl_ms: int) -> int:
    """How long one renewal may take: short enough that one lost reply leaves time for another try (trap 2), and that
    leases which are acquired meanwhile do not wait for the renewals of others."""
    return min(max(ttl_ms // 6, 20), RENEWAL_MS)


def retry_renewal_after(ttl: float) -> float:
    """After a transport error: often enough to try several times before the margin."""
    return min(max(ttl / 12, 0.005), 1.0)


def retry_beat_after(ttl_ms: int, trouble: float) -> float:
    """How long a waiter parks when the store does not answer: soon at first, for a server that restarts is back in
    milliseconds; then as long as the trouble has lasted, at most a beat."""
    return min(max(trouble, 0.05), beat_every_ms(ttl_ms) / 1000)


def next_common_beat(now: float, every_ms: int, coordinator: str) -> float:
    """When the waiters of one coordinator that are not first in the queue beat next: all at the same moments, so that
    one transaction or one write of a connection carries all their beats (trap 54). Coordinators are out of step."""
    every = every_ms / 1000
    shift = sum(coordinator.encode()) % 97 / 97 * every
    return ((now - shift) // every + 1) * every + shift


def next_beat_ms(ttl_ms: int, ahead: int, free_in_ms: int, pushable: bool) -> int:
    """How long a waiter may park. Only the head times its beat at the end of the holder's lease, else every
    waiter would wake for one grant; a head that no push can reach polls often instead (trap 24)."""
    usual = beat_every_ms(ttl_ms)
    if ahead:
        return usual
    if not pushable:
        return min(usual, HEAD_POLL_MS)
    return min(usual, max(free_in_ms, SHORT_BEAT_MS))
