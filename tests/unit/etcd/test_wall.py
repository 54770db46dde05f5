"""The wall clock of etcd, as far as HTTP tells it."""

from __future__ import annotations

import time
from email.utils import formatdate

from leasehold.stores.etcd.wall import WallClock, parse_date
from tests.support.tables import each


@each("seconds", [0, 951_782_400, 1_794_927_391, 4_102_444_799])
def test_dates(seconds: int) -> None:
    """In the only form that HTTP/1.1 has."""
    assert parse_date(formatdate(seconds, usegmt=True).encode().lower()) == seconds


@each("text", [b"", b"yesterday", b"tue, 17 nov 2026 14:56:31 cet", b"tue, 32 nov 2026 14:56:31 gmt", b"a b nov d e f"])
def test_what_is_no_date(text: bytes) -> None:
    """It is ignored."""
    assert parse_date(text) is None


@each("error, ours", [(0, True), (-4, True), (4, True), (-7, False), (7, False), (3600, False)])
def test_which_clock_counts(error: int, ours: bool) -> None:
    """Our own, while it is within five seconds of the server's; else the server's, which goes on."""
    clock = WallClock()
    clock.heard(formatdate(time.time() + error, usegmt=True).encode())
    off = clock.now_us() - time.time_ns() // 1000
    assert abs(off) < 500_000 if ours else abs(off - error * 1_000_000) < 2_000_000


def test_the_server_s_clock_goes_on() -> None:
    """Between two replies it is advanced by the time that has passed."""
    clock = WallClock()
    clock.heard(formatdate(time.time() + 3600, usegmt=True).encode())
    first = clock.now_us()
    time.sleep(0.05)
    assert clock.now_us() - first >= 50_000 - 1000


def test_before_any_reply() -> None:
    """There is only our own clock."""
    clock = WallClock()
    clock.heard(b"no date")
    assert abs(clock.now_us() - time.time_ns() // 1000) < 500_000
