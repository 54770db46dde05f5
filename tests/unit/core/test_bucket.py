"""bucket: frozen numbers, ids as in names, and an even spread."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import leasehold
from leasehold import InvalidRequest, bucket
from tests.support.examples import examples
from tests.support.tables import each

# Programs that run at the same time, of any version and language, must agree: a row is added, never changed.
FROZEN: list[tuple[Any, int, int]] = [
    (0, 16, 0),
    (1, 16, 6),
    (42, 16, 10),
    ("42", 16, 10),
    (-7, 16, 4),
    ("a", 16, 1),
    ("b", 16, 3),
    ("user-42", 16, 12),
    ("user-42", 1, 0),
    ("user-42", 2, 0),
    ("user-42", 1000, 188),
    ("user-42", 1048576, 476604),
    ("é", 64, 4),
    ("日本語", 64, 39),
    ("a:b/{c}%", 64, 23),
    (" ", 64, 32),
    (18446744073709551616, 97, 56),
    (UUID("00000000-0000-0000-0000-000000000000"), 97, 80),
    ("00000000-0000-0000-0000-000000000000", 97, 80),
    (UUID("12345678-1234-5678-1234-567812345678"), 97, 84),
    (date(2026, 11, 16), 97, 66),
    ("2026-11-16", 97, 66),
]
SPREADS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda n: n,
    "even numbers": lambda n: 2 * n,
    "text": lambda n: f"user-{n:06}",
    "uuids": lambda n: UUID(int=n << 64),
}


@each(("written", "n", "number"), FROZEN)
def test_the_numbers_are_frozen(written: Any, n: int, number: int) -> None:
    """The same for ever."""
    assert bucket(written, n) == number


def test_every_process_agrees() -> None:
    """Whatever its hash seed."""
    code = "import leasehold; print([leasehold.bucket(n, 97) for n in (1, 'x', 'é')])"
    folder = str(Path(leasehold.__file__).parents[1])
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": folder},
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{[bucket(one, 97) for one in (1, 'x', 'é')]}\n"}


@settings(max_examples=examples(50))
@given(st.text(min_size=1) | st.integers(-(2**64), 2**64) | st.uuids(), st.integers(1, 2**20))
def test_it_lies_in_the_range(written: Any, n: int) -> None:
    """And ids that are one in names are one here."""
    try:
        number = bucket(written, n)
    except InvalidRequest:  # a lone surrogate
        return
    assert 0 <= number < n
    assert number == bucket(str(written), n)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("n", [2, 7, 16, 100, 256])
def test_it_spreads_evenly(spread: str, n: int) -> None:
    """Chi-square over fixed ids: within five deviations of what chance gives, neither worse nor too regular."""
    total = 100 * n
    found = Counter(bucket(SPREADS[spread](one), n) for one in range(total))
    chi = sum((found[number] - 100) ** 2 / 100 for number in range(n))
    freedom = n - 1
    assert abs(chi - freedom) < 5 * (2 * freedom) ** 0.5
    assert len(found) == n


@each("n", [0, -1, 2**20 + 1, 2.0, "16", None, True])
def test_a_bad_number_of_buckets_is_refused(n: Any) -> None:
    """Between 1 and 2**20."""
    with pytest.raises(InvalidRequest, match="number of buckets"):
        bucket("x", n)


@each("written", [None, True, 1.5, b"x", "", "\ud800", [], 1 << 1024], ids=ascii)
def test_a_bad_id_is_refused(written: Any) -> None:
    """By the rules of names, before there is a number."""
    with pytest.raises(InvalidRequest, match="id "):
        bucket(written, 16)


def test_it_names_a_lock() -> None:
    """Ids of one bucket exclude each other, and nobody else."""
    with leasehold.connect("memory://bucket") as hold, hold.lock("counter", bucket("a", 2)):
        assert hold.lock("counter", bucket("a", 2)).try_acquire() is None
        assert hold.lock("counter", 1 - bucket("a", 2)).try_acquire()
