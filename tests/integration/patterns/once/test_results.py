"""Results of every type: whoever asks gets an equal one of the same type, the first caller and those who ask again."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import leasehold
from leasehold.errors import InvalidRequest
from leasehold.patterns import ResultNotKept
from tests.support.patterns.goods import PAYMENT, SCAN, Line, Payment, Plain, Receipt, Scan, Status
from tests.support.patterns.once.stage import Stage

NAME = ("payment", "{request_id}")
AT = datetime(2026, 1, 1, tzinfo=UTC)
NUMBER = UUID("8e03978e-40d5-43e8-bc93-6894a57f9324")
RECEIPT = Receipt(AT, Status.PAID, [Line("tea", Decimal("9.90"))])


def paying(annotation: Any, result: Any, ran: list[str]) -> Any:
    """Work with such an annotation, that is counted."""

    def pay(request_id: str) -> Any:
        ran.append(request_id)
        return result

    pay.__annotations__["return"] = annotation
    return pay


def ask_everybody(stage: Stage, annotation: Any, result: Any) -> list[Any]:
    """What the first caller gets, and then itself and another program."""
    ran: list[str] = []
    pay, ask = (
        stage.decorated(paying(annotation, result, ran), *NAME),
        stage.rivals(paying(annotation, None, ran), *NAME),
    )
    got = [pay("r-1"), pay("r-1"), ask("r-1")]
    assert ran == ["r-1"]
    return got


@pytest.mark.parametrize(
    ("annotation", "result"),
    [
        (Payment, PAYMENT),
        ("list[Payment]", [PAYMENT]),
        (Receipt | None, RECEIPT),
        ("dict[str, Decimal]", {"eur": Decimal("9.90")}),
        (Any, (Decimal("9.90"), AT, NUMBER, b"\0\xff", {1: {2}})),
        (Decimal, "9.90"),
        (Any, [PAYMENT, {"receipt": RECEIPT}]),
        (Scan, SCAN),
    ],
    ids=["model", "models", "dataclass", "decimals", "no annotation", "another type", "classes", "bytes in a model"],
)
def test_everybody_gets_the_same(stage: Stage, annotation: Any, result: Any) -> None:
    """By the annotation, or without one: equal, of the same type, and an object of its own; and it ran once."""
    for got in ask_everybody(stage, annotation, result):
        assert type(got) is type(result) and got == result
        assert got is not result or isinstance(result, str)


def test_the_first_caller_gets_what_others_get(near: Stage) -> None:
    """With a serializer of one's own, too: what it makes of the result is the result."""
    import json

    pay = near.decorated(paying(Plain, (1, {2: "two"}), []), *NAME, serializer=json)
    assert [pay("r-1"), pay("r-1")] == [[1, {"2": "two"}]] * 2


def test_a_result_that_its_caller_changes(near: Stage) -> None:
    """Whoever changes what it was given changes nobody else's."""
    pay = near.decorated(paying(Any, {"paid": [5]}, []), *NAME)
    pay("r-1")["paid"].append("mine")
    pay("r-1")["paid"].append("mine")
    assert pay("r-1") == {"paid": [5]}


@pytest.mark.parametrize("annotation", [Any, "list[Line]", Plain], ids=["none", "another", "itself"])
def test_a_model_without_its_annotation(near: Stage, annotation: Any) -> None:
    """The first caller gets it, and nobody else; it does not run twice. An annotation of what cannot be kept is refused
    before that."""
    ran: list[str] = []
    result = Plain()
    work = paying(annotation, result, ran)
    if annotation is Plain:
        with pytest.raises(InvalidRequest, match=r"goods\.Plain"):
            near.decorated(work, *NAME)
        return
    pay = near.decorated(work, *NAME)
    assert pay("r-1") is result
    for _ in range(2):
        with pytest.raises(ResultNotKept, match="type Plain"):
            pay("r-1")
    assert ran == ["r-1"]


def test_refused_before_it_runs(near: Stage) -> None:
    """``call`` looks at the annotation as the decorator does, and a serializer of one's own answers for itself."""
    ran: list[str] = []
    with pytest.raises(InvalidRequest, match="serializer="):
        near.rival.once("payment", "r-1").call(paying(Plain, Plain(), ran), "r-1")
    assert ran == []
    kept = near.rival.once("payment", "r-1", serializer=pickle).call(paying(Plain, Plain(7), ran), "r-1")
    assert kept.value == 7 and ran == ["r-1"]


def test_a_name_that_is_not_known_at_run_time(near: Stage) -> None:
    """It may be one for type checkers only: said before the first call, and nothing runs."""
    ran: list[str] = []
    pay = near.decorated(paying("Nowhere", 1, ran), *NAME)
    with pytest.raises(InvalidRequest, match="import what it names at run time"):
        pay("r-1")
    assert ran == []


def test_methods_and_local_classes(hold: leasehold.Leasehold) -> None:
    """A class inside of a function, named as text, on a method."""

    @dataclass
    class Local:
        amount: Decimal

    class Shop:
        @hold.once("payment", "{request_id}")
        def pay(self, request_id: str) -> Local:
            return Local(Decimal("1.10"))

    assert [Shop().pay("r-1"), Shop().pay("r-1")] == [Local(Decimal("1.10"))] * 2


async def test_coroutine_functions(async_hold: leasehold.AsyncLeasehold) -> None:
    """Their annotation says what comes when they are awaited."""

    @async_hold.once("payment", "{request_id}")
    async def pay(request_id: str) -> Payment:
        return PAYMENT

    assert [await pay("r-1"), await pay("r-1")] == [PAYMENT, PAYMENT]
    with pytest.raises(InvalidRequest, match=r"goods\.Plain"):

        @async_hold.once("other", "{request_id}")
        async def other(request_id: str) -> list[Plain]:
            return []


def test_without_a_function(hold: leasehold.Leasehold) -> None:
    """``begin`` keeps the types of the standard library, and classes that can be named where it is called. A result
    that cannot be kept is there for who made it."""
    once = hold.once("payment", "{request_id}")
    with once.begin(request_id="r-1") as key:
        key.complete((Decimal("9.90"), [RECEIPT]))
        assert key.result == (Decimal("9.90"), [RECEIPT])
    with once.begin(request_id="r-1") as key:
        assert key.result == (Decimal("9.90"), [RECEIPT])
    plain = Plain()
    with once.begin(request_id="r-2") as key:
        key.complete(plain)
        assert key.done
    assert key.result is plain
    with once.begin(request_id="r-2") as key, pytest.raises(ResultNotKept, match="type Plain"):
        assert key.done and key.result
