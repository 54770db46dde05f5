"""What an acquire has taken: a grant with its times as its holder may believe in them, on the local clock.

They count from when the request was sent, whatever the reply took (trap 23), and never last longer than what was asked
for: a server whose clock was set back answers that far more remains (trap 49).
"""

from __future__ import annotations

from functools import lru_cache

from leasehold._core.policy import drift, margin, renew_after
from leasehold._core.rules import MUTEX, ONLY_SLOT


@lru_cache(maxsize=1024)
def spans(ttl_ms: int, remaining_ms: int) -> tuple[float, float, float]:
    """How many seconds after a request was sent what it got must be let go of, ends, and is to be renewed: a third of
    the ttl after the store's own count began. Mostly a whole ttl remains, so they are the same again and again."""
    ttl, remaining = ttl_ms / 1000, min(remaining_ms, ttl_ms) / 1000
    deadline = remaining - drift(remaining)
    return deadline - margin(ttl), deadline, remaining - ttl + renew_after(ttl)


def deadline_after(sent: float, remaining_ms: int) -> float:
    """The local deadline of a grant or renewal that was asked for at ``sent``."""
    return sent + spans(remaining_ms, remaining_ms)[1]


def renewal_after(sent: float, ttl_ms: int, remaining_ms: int) -> float:
    """When to renew it."""
    return sent + spans(ttl_ms, remaining_ms)[2]


class Taken:
    """A grant as the acquire flow hands it over."""

    __slots__ = (
        "at",
        "deadline",
        "fence",
        "limit",
        "owner",
        "renew_at",
        "rule",
        "slots",
        "stop_at",
        "ttl_ms",
        "unanswered",
    )

    def __init__(
        self,
        owner: str,
        fence: int,
        ttl_ms: int,
        sent: float,
        remaining_ms: int,
        at: float,
        unanswered: bool,
        rule: str = MUTEX,
        slots: tuple[int, ...] = ONLY_SLOT,
        limit: int = 0,
    ) -> None:
        stop, deadline, renewal = spans(ttl_ms, remaining_ms)
        self.owner = owner
        self.fence = fence
        self.ttl_ms = ttl_ms
        self.stop_at = sent + stop
        self.deadline = sent + deadline
        self.renew_at = sent + renewal
        self.at = at
        self.unanswered = unanswered  # a claim of this owner may still be under way: release with a tombstone
        self.rule = rule
        self.slots = slots
        self.limit = limit  # of a semaphore: what others go by, when it is another than was asked with

    def usable(self, renews: bool) -> bool:
        """Is there time left to work in? A push that was read late may name a grant that is all but over."""
        return (self.stop_at if renews else self.deadline) > self.at
