"""Limits of a holding: what ends a lease however well it is renewed."""

from __future__ import annotations

NEVER = float("inf")


class Limits:
    """``max_hold`` and ``max_idle``, on the local clock."""

    __slots__ = ("_hold_until", "_idle_from", "_max_idle")

    def __init__(self, at: float, max_hold: float | None, max_idle: float | None) -> None:
        self._hold_until = NEVER if max_hold is None else at + max_hold
        self._max_idle = NEVER if max_idle is None else max_idle
        self._idle_from = at

    def beat(self, now: float) -> None:
        self._idle_from = now

    def ends(self) -> tuple[float, str]:
        idle_until = self._idle_from + self._max_idle
        return (self._hold_until, "max_hold") if self._hold_until <= idle_until else (idle_until, "max_idle")
