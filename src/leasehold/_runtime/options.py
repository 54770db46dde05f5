"""Options: how a lock behaves, checked and in internal units. Those that are the same are one object for many locks."""

from __future__ import annotations

import sys
from functools import lru_cache

from leasehold._core.durations import optional_ms, optional_seconds, ttl_ms, wait_seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from leasehold._core.durations import Duration


class Options:
    """Never changed once it is made. A plain class: each acquire reads most of it."""

    __slots__ = (
        "at_least_ms",
        "delay_ms",
        "max_hold",
        "max_idle",
        "meta",
        "meta_text",
        "protects",
        "reentrant",
        "renews",
        "ttl_ms",
        "wait",
    )

    def __init__(
        self,
        ttl_ms: int,
        wait: float | None,
        renews: bool = True,
        max_hold: float | None = None,
        max_idle: float | None = None,
        at_least_ms: int = 0,
        reentrant: bool = False,
        protects: str | None = None,
        meta: dict[str, Any] | None = None,
        meta_text: str = "",
        delay_ms: int = 0,
    ) -> None:
        self.ttl_ms = ttl_ms
        self.wait = wait
        self.renews = renews
        self.max_hold = max_hold
        self.max_idle = max_idle
        self.at_least_ms = at_least_ms
        self.reentrant = reentrant
        self.protects = protects
        self.meta = meta
        self.meta_text = meta_text
        self.delay_ms = delay_ms

    def with_meta(self, meta: dict[str, Any], text: str) -> Options:
        """The same, for somebody who says this about himself."""
        return Options(
            self.ttl_ms,
            self.wait,
            self.renews,
            self.max_hold,
            self.max_idle,
            self.at_least_ms,
            self.reentrant,
            self.protects,
            meta,
            text,
            self.delay_ms,
        )

    def with_wait(self, wait: float | None) -> Options:
        """The same, for somebody who has this much patience."""
        other = self.with_meta(self.meta or {}, self.meta_text)
        other.wait = wait
        return other


# ---------------------------------------------------------------- asking
#
# What somebody asks of a lock, checked and in internal units, before anything is sent.


_INSIDE = ("leasehold._runtime", "leasehold.coordinator", "leasehold.primitives")


def make_options(
    ttl: Duration,
    wait: Duration | None,
    renew: bool,
    max_hold: Duration | None,
    max_idle: Duration | None,
    at_least: Duration | None,
    delay: Duration | None,
    reentrant: bool,
    protects: str | None,
) -> Options:
    return Options(
        ttl_ms=ttl_ms(ttl),
        wait=wait_seconds(wait),
        renews=_flag(renew, "renew"),
        max_hold=optional_seconds(max_hold, "max_hold"),
        max_idle=optional_seconds(max_idle, "max_idle"),
        at_least_ms=optional_ms(at_least, "at_least"),
        delay_ms=optional_ms(delay, "delay"),
        reentrant=_flag(reentrant, "reentrant"),
        protects=_protects(protects),
    )


known_options = lru_cache(maxsize=256, typed=True)(make_options)  # typed: True is no duration, though 1 is


def warn_long() -> None:
    import warnings

    warnings.warn(
        "a ttl over 1 h blocks recovery after a crash for that long: renewing leases need seconds, and work of "
        "hours needs durable ownership",
        UserWarning,
        stacklevel=_outside(),
    )


def _outside() -> int:
    """The stacklevel of whoever called lock(), rwlock().read() and the like, for the function that calls this one."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    return level


def _flag(value: bool, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{what} must be True or False, not {type(value).__name__}")
    return value


def _protects(value: object) -> str | None:
    if value is None or value in ("efficiency", "correctness"):
        return value
    raise InvalidRequest('protects is None, "efficiency" (two at once cost work) or "correctness" (they do harm)')
