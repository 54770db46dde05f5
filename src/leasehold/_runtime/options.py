"""Options: how a lock behaves, checked and in internal units. Those that are the same are one object for many locks."""

from __future__ import annotations

from leasehold._core.light_typing import Any


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
