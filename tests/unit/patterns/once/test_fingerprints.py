"""The same body has the same fingerprint, whatever its order; another body another one."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as some

from leasehold.patterns.once.fingerprint import Fingerprint
from tests.support.examples import examples
from tests.support.tables import each


class Colour(StrEnum):
    """Text."""

    RED = "red"


class Size(IntEnum):
    """A number."""

    ONE = 1


DIFFERENT: list[Any] = [
    None, True, False, 0, 1, 1.5, -1, "", "1", "true", "None", b"", b"1", "s1", "b1", [], [1], ["1"], [[1]], [1, None],
    {}, {"a": 1}, {"a": "1"}, {"a": {"a": 1}}, {"a": 1, "b": None}, {"b": 1}, [{"a": 1}], Decimal("1.5"), Decimal(15),
    UUID(int=1), str(UUID(int=1)), date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01", "t2026-01-01",
    2**63, -(2**63), 2**63 - 1, str(2**63), f"i{2**63:x}", 10**5000, 10**5000 + 1,
]  # fmt: skip


def digest(value: Any, key: bytes = b"", resource: str = "payment:r-1") -> str:
    """Of one body."""
    found = Fingerprint("{body}", key).of(resource, {"body": value}, (), {})
    assert found is not None
    return found


def test_no_two_are_alike() -> None:
    """Types that print alike differ."""
    digests = [digest(one) for one in DIFFERENT]
    assert len(set(digests)) == len(DIFFERENT)


@each(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([1, 2], (1, 2)),
        (b"x", bytearray(b"x")),
        (b"x", memoryview(b"x")),
        (b"ac", memoryview(b"abcd")[::2]),
        ("red", Colour.RED),
        (1, Size.ONE),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_is_the_same(one: Any, other: Any) -> None:
    """The order of keys, and the class of a list, of bytes or of an enumeration, do not matter."""
    assert digest(one) == digest(other)


def test_what_else_goes_in() -> None:
    """Another key of the coordinator, or another name, gives another digest: nobody guesses bodies across keys."""
    digests = [digest("body", key, name) for key, name in itertools.product((b"", b"k", b"l"), ("a:1", "a:2"))]
    assert len(set(digests)) == 6 and all(len(one) == 64 for one in digests)


def test_fields_are_kept_apart() -> None:
    """Two fields are two values, not one text."""
    both = Fingerprint("{a}{b}", b"")
    assert both.of("x", {"a": "1", "b": "23"}, (), {}) != both.of("x", {"a": "12", "b": "3"}, (), {})


bodies = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(some.characters(exclude_categories=["Cs"])) | some.binary(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(some.characters(exclude_categories=["Cs"])), inner),
    max_leaves=10,
)  # fmt: skip


def typed(value: Any) -> Any:
    """A value with the types of all its parts, to be compared with ``==``."""
    if isinstance(value, dict):
        return {name: typed(each) for name, each in value.items()}
    return [typed(each) for each in value] if isinstance(value, list) else (type(value), repr(value))


def turned(value: Any) -> Any:
    """The same with every dict in another order."""
    if isinstance(value, dict):
        return {name: turned(each) for name, each in reversed(value.items())}
    return [turned(each) for each in value] if isinstance(value, list) else value


@given(bodies, bodies)
@settings(max_examples=examples(40))
def test_alike_when_they_are_the_same(one: Any, other: Any) -> None:
    """Whatever they are made of: the order of keys does not matter, and everything else does."""
    assert digest(one) == digest(turned(one))
    assert (digest(one) == digest(other)) == (typed(one) == typed(other))
