"""The options of a lock, checked before anything is sent and kept in internal units. Locks with equal options share one
object."""

from __future__ import annotations

import sys

from leasehold._core.durations import optional_ms, optional_seconds, ttl_ms, wait_seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any, lru_cache
from leasehold._core.policy import LONG_TTL_MS
from leasehold._core.types import meta_text
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold._core.durations import Duration


class Options:
    """Immutable by convention. A plain class, because each acquire reads most of it."""

    __slots__ = (
        "at_least_ms",
        "delay_ms",
        "durability",
        "linger",
        "max_hold",
        "max_idle",
        "meta",
        "meta_text",
        "passes",
        "protects",
        "reentrant",
        "renews",
        "ttl_ms",
        "wait",
    )

    def __init__(
        self,
        *,
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
        durability: str = "",
        linger: float = 0.0,
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
        self.durability = durability
        self.linger = linger
        self.passes = renews and not (at_least_ms or delay_ms or durability)  # between those who wait in a process

    def with_meta(self, meta: dict[str, Any], text: str) -> Options:
        """The same with this meta, and its JSON."""
        return self._changed(meta=meta, meta_text=text)

    def with_wait(self, wait: float | None) -> Options:
        """The same with another wait."""
        return self._changed(wait=wait)

    def _changed(self, **changes: Any) -> Options:
        other = Options.__new__(Options)
        for name in self.__slots__:
            setattr(other, name, changes[name] if name in changes else getattr(self, name))
        return other


_INSIDE = ("leasehold._runtime", "leasehold.coordinator", "leasehold.primitives")


def checked_options(
    ttl: Duration,
    wait: Duration | None,
    renew: bool = True,
    max_hold: Duration | None = None,
    max_idle: Duration | None = None,
    at_least: Duration | None = None,
    delay: Duration | None = None,
    reentrant: bool = False,
    protects: str | None = None,
    meta: Mapping[str, Any] | None = None,
    durability: str | None = None,
    linger: Duration = 0,
    warns: bool = True,
) -> Options:
    """The options of ``lock`` and its like, checked. A long ttl warns, unless another process chose it."""
    try:  # by position: that is the fastest key of a cache, and only these two functions know the order
        options = _known(ttl, wait, renew, max_hold, max_idle, at_least, delay, reentrant, protects, durability, linger)
    except TypeError:  # what cannot be hashed gets the same error as any other wrong value
        options = _make(ttl, wait, renew, max_hold, max_idle, at_least, delay, reentrant, protects, durability, linger)
    if options.ttl_ms > LONG_TTL_MS and warns:
        _warn_long()
    if meta is None:
        return options
    text = meta_text(meta)
    return options.with_meta(dict(meta), text)


def _make(
    ttl: Duration,
    wait: Duration | None,
    renew: bool,
    max_hold: Duration | None,
    max_idle: Duration | None,
    at_least: Duration | None,
    delay: Duration | None,
    reentrant: bool,
    protects: str | None,
    durability: str | None,
    linger: Duration,
) -> Options:
    options = Options(
        ttl_ms=ttl_ms(ttl),
        wait=wait_seconds(wait),
        renews=_flag(renew, "renew"),
        max_hold=optional_seconds(max_hold, "max_hold"),
        max_idle=optional_seconds(max_idle, "max_idle"),
        at_least_ms=optional_ms(at_least, "at_least"),
        delay_ms=optional_ms(delay, "delay"),
        reentrant=_flag(reentrant, "reentrant"),
        protects=_protects(protects),
        durability=checked_durability(durability),
        linger=0.0 if linger == 0 and not isinstance(linger, bool) else optional_seconds(linger, "linger") or 0.0,
    )
    if options.linger:
        _check_linger(options)
    return options


def _check_linger(options: Options) -> None:
    """A lease that lingers is not renewed meanwhile, and passes to the next holder as it is."""
    if options.linger * 1000 > options.ttl_ms:
        raise InvalidRequest(
            f"linger is {options.linger:g} s, longer than the ttl of {options.ttl_ms / 1000:g} s: an unused lease is "
            "not renewed, so it would end before"
        )
    others = {
        "renew=False": not options.renews,
        "at_least": options.at_least_ms,
        "delay": options.delay_ms,
        "durability": options.durability,
    }
    for name, given in others.items():
        if given:
            raise InvalidRequest(f"linger and {name} exclude each other: such a lease goes back to the store each time")


def checked_durability(value: object) -> str:
    """The value of ``durability=``; empty for None, for which nothing is loaded."""
    if value is None:
        return ""
    from leasehold._core import durability

    return durability.checked_durability(value)


_known = lru_cache(maxsize=256, typed=True)(_make)  # typed: True is no duration, though 1 is


def _warn_long() -> None:
    import warnings

    warnings.warn(
        "a ttl over 1 h blocks recovery after a crash for that long: renewing leases need seconds, and work of "
        "hours needs durable ownership",
        UserWarning,
        stacklevel=_outside(),
    )


def _outside() -> int:
    """The stacklevel, for the function that calls this one, of the program that called lock(), rwlock().read() and the
    like."""
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
