"""Values of every type: everybody gets an equal one of the same type; what cannot be kept is for who made it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, OutcomeUnknown
from leasehold.guards.fence import Fenced
from leasehold.patterns import ResultNotKept
from leasehold.patterns.results import MemoryResultStore
from leasehold.patterns.single_flight.single_flight import shared_flights
from tests.support.patterns.flight.sides import Counted, Side
from tests.support.patterns.goods import Item, Line, Page, Plain, Receipt, Status

AT = datetime(2026, 1, 1, tzinfo=UTC)
RECEIPT = Receipt(AT, Status.PAID, [Line("tea", Decimal("9.90"))])


def annotated(counted: Counted, annotation: Any) -> Any:
    """The function, with such an annotation."""
    page = counted.function()
    page.__annotations__["return"] = annotation
    return page


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Receipt, RECEIPT),
        (Page[Item] | None, Page[Item](items=[Item(thePrice=Decimal("1.10"))])),
        (Any, ({1: Decimal("9.90")}, {AT})),
    ],
    ids=["dataclass", "model", "no annotation"],
)
def test_everybody_gets_the_same(side: Side, counted: Counted, annotation: Any, value: Any) -> None:
    """Who made it, who finds it, and another program: equal, of the same type, and an object of its own."""
    counted.gives = lambda: value
    here = side.flown(annotated(counted, annotation))
    there = side.flown(annotated(counted, annotation), hold=side.other())
    for got in (here("a"), here("a"), there("a"), there.refresh("a"), here("a")):
        assert type(got) is type(value) and got == value and got is not value
    assert counted.calls == 2


def test_annotations_that_are_refused(memory: Side, counted: Counted) -> None:
    """When it is decorated, or called; nothing runs."""
    with pytest.raises(InvalidRequest, match=r"page\(\) cannot be kept: .*goods\.Plain"):
        memory.flown(annotated(counted, Plain))
    with pytest.raises(InvalidRequest, match=r"goods\.Plain"):
        memory.run(memory.hold.single_flight("page", "a").call(memory.fit(annotated(counted, Plain)), "a"))
    assert counted.calls == 0


def test_for_as_long_as_it_would_be_fresh(memory: Side, counted: Counted) -> None:
    """Nobody makes what cannot be kept again before that; then somebody does, and ``forget`` and ``refresh`` do at any
    time."""
    counted.gives = Plain
    page = memory.flown(counted.function(), fresh=60)
    for calls in (1, 2):
        assert isinstance(page("a"), Plain)
        memory.advance(59)
        with pytest.raises(ResultNotKept):
            page("a")
        assert counted.calls == calls
        memory.advance(2)
    assert isinstance(page("a"), Plain) and isinstance(page.refresh("a"), Plain)
    page.forget("a")
    assert isinstance(page("a"), Plain) and counted.calls == 5


class Picky(MemoryResultStore):
    """One whose server refuses a value for what it is, or hangs up on one that is large."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, lease: Fenced, text: str | None, keep: Any) -> None:
        """Not of these."""
        if text is not None and "☕" in text:
            raise self._error
        super().write(lease, text, keep)


@pytest.mark.parametrize(
    ("value", "error"),
    [("☕", InvalidRequest("not in this character set")), ("☕" * 2**19, OutcomeUnknown("it has hung up"))],
    ids=["refused", "too large"],
)
def test_what_no_result_store_takes(memory: Side, counted: Counted, value: str, error: Exception) -> None:
    """Its caller gets it, others are told, and nobody makes it again while it would be fresh."""
    counted.gives = lambda: value
    page = memory.flown(counted.function(), fresh=60, cache=Picky(error))
    assert page("a") == value
    with pytest.raises(ResultNotKept, match="type str"):
        page("a")
    assert counted.calls == 1


def test_a_result_store_that_is_away(memory: Side, counted: Counted) -> None:
    """That has nothing to do with the value: the next one tries again."""
    counted.gives = lambda: "☕"
    page = memory.flown(counted.function(), fresh=60, cache=Picky(OutcomeUnknown("it does not answer")))
    assert [page("a"), page("a")] == ["☕", "☕"] and counted.calls == 2


def test_an_old_value_is_served_meanwhile(memory: Side, counted: Counted) -> None:
    """A value that may still be served stays, and what could not be kept is not made again and again behind it."""
    page = memory.flown(counted.function(), fresh=10, stale=100)
    assert page("a") == 1
    counted.gives = Plain
    memory.advance(11)
    assert page("a") == 1
    memory.settle(lambda: counted.calls == 2, "nobody rebuilt it")
    memory.settle(lambda: not shared_flights(memory.hold).background._running, "the rebuild has no end")
    memory.advance(9)
    assert [page("a"), page("a")] == [1, 1] and counted.calls == 2
    memory.advance(2)
    assert page("a") == 1
    memory.settle(lambda: counted.calls == 3, "nobody rebuilt it")


def test_those_who_wait(hold: leasehold.Leasehold) -> None:
    """One thread makes it and gets it; those of the same process that waited for it are told, and nobody makes it
    again."""
    begun, go, calls = threading.Event(), threading.Event(), []

    @hold.single_flight("page", "{key}")
    def page(key: str) -> Any:
        calls.append(key)
        begun.set()
        assert go.wait(30)
        return Plain()

    got: list[Any] = []

    def ask() -> None:
        try:
            got.append(page("a"))
        except ResultNotKept as error:
            got.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    threads[0].start()
    assert begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(30)
    assert sorted(type(one).__name__ for one in got) == ["Plain", *["ResultNotKept"] * 3]
    assert calls == ["a"]
