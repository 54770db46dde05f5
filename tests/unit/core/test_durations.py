"""Durations as people write them: what is accepted, what is refused, and to which millisecond."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._core.durations import is_long, optional_ms, optional_seconds, seconds, ttl_ms, wait_seconds
from leasehold.errors import InvalidRequest
from tests.support.tables import each

DAY_MS = 24 * 3600 * 1000

ACCEPTED: list[tuple[object, int]] = [
    (30, 30_000),
    (30.0, 30_000),
    (0.05, 50),
    (0.3, 300),  # 0.3 * 1000 is a little less than 300
    (0.29, 290),  # and 0.29 * 1000 a little less than 290
    (1.1, 1_100),  # 1.1 * 1000 is a little more than 1100
    (2.675, 2_675),
    (0.0501, 51),
    (1.0001, 1_001),
    (86_400, DAY_MS),
    (86_400.0, DAY_MS),
    (timedelta(seconds=30), 30_000),
    (timedelta(milliseconds=50), 50),
    (timedelta(days=1), DAY_MS),
    (timedelta(microseconds=50_001), 51),
    ("30s", 30_000),
    ("5m", 300_000),
    ("24h", DAY_MS),
    ("1d", DAY_MS),
    ("250ms", 250),
    ("50ms", 50),
    ("50.1ms", 51),
    ("1.5s", 1_500),
    ("0.5m", 30_000),
    (".5s", 500),
    ("1e1s", 10_000),
    (" 30s ", 30_000),
    ("30 s", 30_000),
    ("1h30m", 5_400_000),
    ("1h 30m", 5_400_000),
    ("1 h 30 m", 5_400_000),
    ("0d2h3m4s5ms", 7_384_005),
    ("1m0.5s", 60_500),
    ("1.5m30s", 120_000),
    ("1e1m30s", 630_000),
    ("23h59m59s1000ms", DAY_MS),
]

NEITHER_TTL_NOR_WAIT: list[object] = [
    -1,
    -0.001,
    float("nan"),
    float("inf"),
    float("-inf"),
    10**400,
    -(10**400),
    True,
    False,
    b"30s",
    [30],
    (30,),
    object(),
    Decimal(30),
    Fraction(30),
    30j,
    timedelta(seconds=-1),
    "",
    " ",
    "s",
    "ms",
    "30",
    "30.5",
    "thirty",
    "30 seconds",
    "30sec",
    "30S",
    "30m1h",
    "1h1h",
    "1s1s1s",
    "1ms1s",
    "1h30",
    "h30m",
    "1h-30m",
    "-1h30m",
    "1hm",
    "1h,30m",
    "1h and 30m",
    "1h" + " " * 80,
    "0" * 100_000 + "s",
    "1s" * 100_000,
    "-5s",
    "--5s",
    "nan",
    "nans",
    "NaN",
    "inf",
    "infs",
    "INF",
    "Infinitys",
    "1e999s",
    "1e308h",
    "0x10s",
    "30s\x00",
    "30\ud800s",
    "٣٠",
]

NO_TTL: list[object] = [
    None,
    0,
    0.0,
    -0.0,
    "0s",
    timedelta(0),
    0.001,
    0.049,
    "49ms",
    timedelta(milliseconds=49),
    86_400.001,
    "86400001ms",
    "24.1h",
    "2d",
    timedelta(days=1, milliseconds=1),
    timedelta.max,
    1e300,
    1e306,
    1.7e308,
    10**12,
]


@each(("value", "ms"), ACCEPTED)
def test_a_ttl_in_whole_milliseconds(value: object, ms: int) -> None:
    """Seconds, a timedelta or text; rounded up, and not by the noise of binary fractions."""
    assert ttl_ms(value) == ms


@each("value", [*NEITHER_TTL_NOR_WAIT, *NO_TTL])
def test_a_ttl_that_is_refused(value: object) -> None:
    """Zero, negative, endless, too short, too long, or no duration at all: InvalidRequest and nothing else."""
    with pytest.raises(InvalidRequest, match="ttl"):
        ttl_ms(value)


@each("value", NEITHER_TTL_NOR_WAIT)
def test_a_wait_that_is_refused(value: object) -> None:
    """Negative, not finite, or no duration."""
    with pytest.raises(InvalidRequest, match="wait"):
        wait_seconds(value)


def test_the_bounds_of_a_ttl() -> None:
    """50 ms and 24 h are both allowed; a millisecond beyond is not."""
    assert (ttl_ms("50ms"), ttl_ms("24h")) == (50, DAY_MS)
    for value in ("49ms", "86400001ms", 86_400.0001):
        with pytest.raises(InvalidRequest, match="50 ms and 24 h"):
            ttl_ms(value)


@each(("value", "number"), [(None, None), (0, 0.0), (0.0, 0.0), ("0s", 0.0), (5, 5.0), ("2m", 120.0), (10**9, 1e9)])
def test_a_wait(value: object, number: float | None) -> None:
    """None for ever, 0 one try, any length."""
    assert wait_seconds(value) == number


@each(("value", "number"), [(None, None), (1, 1.0), ("1ms", 0.001), (timedelta(days=9), 777_600.0)])
def test_an_optional_duration(value: object, number: float | None) -> None:
    """None is none."""
    assert optional_seconds(value, "max_hold") == number


@each("value", [0, 0.0, "0s", timedelta(0), -1, True])
def test_an_optional_duration_is_above_zero(value: object) -> None:
    """Zero is a mistake where leaving out means none."""
    for check in (optional_seconds, optional_ms):
        with pytest.raises(InvalidRequest, match="max_hold"):
            check(value, "max_hold")


@each(("value", "ms"), [(None, 0), ("1ms", 1), (0.0001, 1), ("5m", 300_000), ("24h", DAY_MS)])
def test_an_optional_duration_in_milliseconds(value: object, ms: int) -> None:
    """None is 0, the rest is rounded up."""
    assert optional_ms(value, "at_least") == ms


@each("value", ["86400001ms", 1e300, 1.7e308, timedelta.max])
def test_an_optional_duration_in_milliseconds_has_an_end(value: object) -> None:
    """At most 24 h, however huge the number."""
    with pytest.raises(InvalidRequest, match="at_least"):
        optional_ms(value, "at_least")


def test_a_long_ttl_is_noticed() -> None:
    """Over an hour durable ownership fits better; an hour is not over an hour."""
    assert not is_long(ttl_ms("1h"))
    assert is_long(ttl_ms("3600001ms"))


def test_the_message_says_what_and_shows_little() -> None:
    """The argument's name, and no more than the beginning of a text."""
    with pytest.raises(InvalidRequest) as caught:
        seconds("x" * 10_000, "linger")
    assert str(caught.value).startswith("linger")
    assert len(str(caught.value)) < 200


@each(
    ("text", "says"),
    [
        ("30m1h", "longer units come first and each comes once"),
        ("1h1h", "longer units come first and each comes once"),
        ("1h30", "such as '30s' or '1h30m'"),
        ("1 hour", "ms, s, m, h or d"),
        ("h30m", "no number before a unit"),
        ("1h-30m", "must not be negative"),
    ],
)
def test_a_text_of_several_parts_says_what_is_wrong(text: str, says: str) -> None:
    """Its order, a unit that is named twice or missing, a number that is missing or negative."""
    with pytest.raises(InvalidRequest, match=says):
        seconds(text, "wait")


@given(st.tuples(*[st.none() | st.integers(0, 5)] * 5))
def test_a_text_of_several_parts_is_their_sum(numbers: tuple[int | None, ...]) -> None:
    """Any of the units, in their order."""
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    parts = [(number, unit) for number, unit in zip(numbers, units, strict=True) if number is not None]
    if parts:
        total = sum(number * units[unit] for number, unit in parts)
        assert seconds("".join(f"{number}{unit}" for number, unit in parts), "wait") == pytest.approx(total)


@given(ms=st.integers(50, DAY_MS))
def test_every_whole_millisecond_is_kept(ms: int) -> None:
    """As seconds, as a timedelta and as text: no rounding makes one more of it."""
    assert ttl_ms(ms / 1000) == ttl_ms(timedelta(milliseconds=ms)) == ttl_ms(f"{ms}ms") == ms


@given(value=st.floats() | st.integers() | st.text() | st.timedeltas() | st.booleans() | st.none())
def test_nothing_but_invalid_request_is_ever_raised(value: object) -> None:
    """Whatever comes in: a duration within bounds, or our error."""
    for check in (ttl_ms, wait_seconds, lambda value: optional_ms(value, "delay")):
        try:
            result = check(value)
        except InvalidRequest:
            continue
        assert result is None or 0 <= result < float("inf")
