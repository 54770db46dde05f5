"""Durations as users write them: float seconds, a timedelta, or text such as ``"30s"``, ``"1h30m"``, ``"250ms"``."""

from __future__ import annotations

import sys

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.policy import LONG_TTL_MS, MAX_TTL_MS, MIN_TTL_MS
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from datetime import timedelta

    Duration = float | str | timedelta

_DIGITS = frozenset("0123456789.+-e ")
_NO_LETTERS = _DIGITS - {"e"}
_LONGEST_TEXT = 64  # characters; more is no duration, and nothing reads all of it
_INFINITE = float("inf")  # a short command needs nothing else of ``math``, and does not load it
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(value: object, what: str) -> float:
    """Any finite duration that is not negative, in seconds."""
    if isinstance(value, bool):
        raise InvalidRequest(f"{what} must be a duration, not a bool")
    if isinstance(value, (int, float)):
        number = _finite(value, what)
    elif isinstance(value, str):
        number = _parse(value, what)
    elif "datetime" in sys.modules and isinstance(value, sys.modules["datetime"].timedelta):
        number = value.total_seconds()
    else:
        raise InvalidRequest(f"{what} must be seconds, a timedelta or text such as '30s', not {type(value).__name__}")
    if number < 0:
        raise InvalidRequest(f"{what} must not be negative")
    return number


def ttl_ms(value: object, what: str = "ttl") -> int:
    """The length of a lease: 50 ms to 24 h, rounded up to whole milliseconds."""
    ms = _up_to_ms(seconds(value, what), MAX_TTL_MS)
    if not MIN_TTL_MS <= ms <= MAX_TTL_MS:
        raise InvalidRequest(f"{what} must be between 50 ms and 24 h")
    return ms


def is_long(ms: int) -> bool:
    """Over an hour a crash blocks recovery for too long: durable ownership fits better."""
    return ms > LONG_TTL_MS


def wait_seconds(value: object) -> float | None:
    """How long an acquire may block: None for ever, 0 one try."""
    return None if value is None else seconds(value, "wait")


def optional_seconds(value: object, what: str) -> float | None:
    """A duration above zero, or None for none."""
    if value is None:
        return None
    number = seconds(value, what)
    if number <= 0:
        raise InvalidRequest(f"{what} must be above zero; leave it out for none")
    return number


def optional_ms(value: object, what: str) -> int:
    """A duration above zero and at most 24 h in whole milliseconds; None is 0."""
    number = optional_seconds(value, what)
    if number is None:
        return 0
    ms = _up_to_ms(number, MAX_TTL_MS)
    if ms > MAX_TTL_MS:
        raise InvalidRequest(f"{what} must be at most 24 h")
    return max(ms, 1)


def _finite(value: int | float, what: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = _INFINITE
    if not -_INFINITE < number < _INFINITE:
        raise InvalidRequest(f"{what} must be a finite number of seconds")
    return number


def _parse(text: str, what: str) -> float:
    """Numbers with a unit each, from the longest unit to the shortest: ``"30s"``, ``"1h30m"``, ``"1d 2h"``."""
    rest, total, last = text.strip() if len(text) <= _LONGEST_TEXT else "", 0.0, _INFINITE
    while rest or last == _INFINITE:
        digits, unit, rest = _first_part(rest)
        size = _UNITS.get(unit)
        if size is None:
            raise InvalidRequest(
                f"{what} {text[:40]!r} is not a duration: write a number and ms, s, m, h or d, such as '30s' or '1h30m'"
            )
        if size >= last:
            raise InvalidRequest(
                f"{what} {text[:40]!r} is not a duration: longer units come first and each comes once, as in '1h30m'"
            )
        total, last = total + _number(digits, text, what) * size, size
    return _finite(total, what)


def _first_part(text: str) -> tuple[str, str, str]:
    """The number, its unit, and what follows them. No unit has an ``e``, which numbers have (``1e3``)."""
    end = 0
    while end < len(text) and text[end] in _DIGITS:
        end += 1
    after = end
    while after < len(text) and text[after] not in _NO_LETTERS:
        after += 1
    return text[:end], text[end:after], text[after:]


def _number(digits: str, text: str, what: str) -> float:
    try:
        number = float(digits)
    except ValueError:
        raise InvalidRequest(f"{what} {text[:40]!r} has no number before a unit, such as the 30 of '30s'") from None
    if number < 0:
        raise InvalidRequest(f"{what} must not be negative")
    return number


def _up_to_ms(number: float, most_ms: int) -> int:
    """Whole milliseconds, rounded up; anything above the most is just above the most."""
    return -int(-round(min(number * 1000, most_ms + 1.0), 6) // 1)
