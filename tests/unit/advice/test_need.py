"""Answers: what a need takes, and what it refuses before anything is advised."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, Need
from leasehold.advice.need import CONTRADICTIONS
from leasehold.advice.questions import CHOICES, QUESTIONS
from tests.support.tables import each


def test_the_pinned_fields_are_there() -> None:
    """The nine answers that people rely on, by keyword and in any order; only ``protects`` must be given."""
    need = Need(
        protects="correctness", duplicates="wrong", idempotent=True, downstream_fences=False, survives_failover=None,
        duration="5m", durable_state=True, audit=True, regions=False,
    )  # fmt: skip
    assert leasehold.advise(need).lease == "only to save work"
    with pytest.raises(TypeError):
        Need()  # type: ignore[call-arg]  # that is the point
    with pytest.raises(TypeError):
        Need("efficiency")  # type: ignore[call-arg]  # that is the point


def test_every_field_has_a_question() -> None:
    """What can be answered is asked, and nothing else."""
    assert {one.name for one in fields(Need)} == {one.field for one in QUESTIONS}


def test_it_is_a_value() -> None:
    """It never changes; lengths and lists are kept in one form, so that equal needs are equal."""
    need = Need(protects="efficiency", duration="5m", unique=["a", " b "])  # type: ignore[arg-type]  # as JSON has it
    assert need == Need(protects="efficiency", duration=timedelta(minutes=5), unique=("a", "b"))
    assert (need.duration, need.unique) == (300.0, ("a", "b"))
    with pytest.raises(FrozenInstanceError):
        need.audit = True  # type: ignore[misc]  # that is the point


@each(
    ("answers", "words"),
    [
        ({"protects": "everything"}, ["protects", "efficiency", "correctness", "everything"]),
        ({"protects": None}, ["protects"]),
        ({"protects": ["efficiency"]}, ["protects"]),
        ({"work": "juggling"}, ["work", "cache", "workflow", "juggling"]),
        ({"duplicates": "rare"}, ["duplicates", "harmless", "costly", "wrong"]),
        ({"idempotent": "yes"}, ["idempotent", "True", "False"]),
        ({"audit": 1}, ["audit", "True"]),
        ({"regions": 3}, ["regions"]),
        ({"duration": -1}, ["duration", "negative"]),
        ({"duration": 0}, ["duration", "zero"]),
        ({"duration": "soon"}, ["duration", "soon"]),
        ({"duration": float("nan")}, ["duration", "finite"]),
        ({"limit": 0}, ["limit"]),
        ({"limit": 10**9}, ["limit"]),
        ({"limit": True}, ["limit", "bool"]),
        ({"limit": 2.0}, ["limit", "float"]),
        ({"unique": "customer"}, ["unique", "('customer', 'period')"]),
        ({"unique": []}, ["unique"]),
        ({"unique": ["a", 7]}, ["unique"]),
        ({"unique": ["a\x1b"]}, ["unique"]),
    ],
    ids=str,
)
def test_what_makes_no_sense(answers: dict[str, Any], words: list[str]) -> None:
    """It is refused, and the message names the field and what it takes."""
    with pytest.raises(InvalidRequest) as refused:
        Need(**{"protects": "efficiency", **answers})
    assert not [word for word in words if word not in str(refused.value)]


CLASHES: list[tuple[dict[str, Any], str, str]] = [
    ({"protects": "correctness", "duplicates": "harmless"}, "protects: correctness", "duplicates: harmless"),
    ({"protects": "efficiency", "duplicates": "wrong"}, "protects: efficiency", "duplicates: wrong"),
    ({"work": "transition", "durable_state": False}, "work: transition", "durable_state: no"),
    ({"work": "section", "durable_state": False}, "work: section", "durable_state: no"),
    ({"unique": ("a", "b"), "durable_state": False}, "unique: a, b", "durable_state: no"),
    ({"work": "transition", "row": False}, "work: transition", "row: no"),
    ({"work": "command", "limit": 3}, "work: command", "limit: 3"),
    ({"work": "workflow", "duration": "20m"}, "work: workflow", "duration: 20m"),
]


@each(("answers", "one", "other"), CLASHES, ids=lambda part: part if isinstance(part, str) else "")
def test_contradictions(answers: dict[str, Any], one: str, other: str) -> None:
    """Two answers that cannot both be true are refused, and both are named."""
    with pytest.raises(InvalidRequest) as refused:
        Need(**{"protects": "correctness", **answers})
    assert str(refused.value).endswith(f" ({one}; {other})")


def test_every_contradiction_is_tested() -> None:
    """The list above leaves none out."""
    tested = {(one.split(":")[0], other.split(":")[0]) for _, one, other in CLASHES}
    assert {(one.one, one.other) for one in CONTRADICTIONS} == tested


@each("field", CHOICES)
def test_each_answer_alone_contradicts_nothing(field: str) -> None:
    """Every choice can be made."""
    for value in CHOICES[field]:
        protects = "correctness" if value == "wrong" else "efficiency"
        assert getattr(Need.of({"protects": protects, field: value}), field) == value


def test_from_a_mapping() -> None:
    """Keys are fields; another key is refused with those that there are, and so is a mapping without ``protects``."""
    assert Need.of({"protects": "efficiency", "audit": None}) == Need(protects="efficiency")
    with pytest.raises(InvalidRequest, match=r"'dupes'.*duplicates"):
        Need.of({"protects": "efficiency", "dupes": "harmless"})
    with pytest.raises(InvalidRequest, match="protects must be answered"):
        Need.of({"work": "cache"})


def test_advise_takes_a_need() -> None:
    """Anything else is refused, and the message says what to write."""
    with pytest.raises(InvalidRequest, match=r"leasehold\.Need\(protects="):
        leasehold.advise({"protects": "efficiency"})  # type: ignore[arg-type]  # that is the point
