"""Answers and lengths, as people say them."""

from __future__ import annotations


def said(value: object) -> str:
    """An answer: yes and no for what is true or not, a length with its unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value)
    return length(value) if isinstance(value, float) else str(value)


def length(seconds: float) -> str:
    """A stretch of time that can be typed where a duration is asked for: 250ms, 12s, 1.5s, 90m, 2h."""
    ms = round(seconds * 1000)
    if ms < 1000:
        return f"{seconds * 1000:g}ms" if ms < 1 else f"{ms}ms"
    for unit, size in (("h", 3_600_000), ("m", 60_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms / 1000:.10g}s"
