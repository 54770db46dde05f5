"""What is wrong is said when the function is decorated, before anything is sent or called."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, Leasehold, aio
from leasehold.patterns import ResultNotKept
from leasehold.patterns.serialization import dump_value
from leasehold.patterns.values import Codec
from tests.support.patterns.flight.sides import Counted, Side
from tests.support.tables import each

BAD: list[tuple[dict[str, Any], str]] = [
    ({"fresh": 0}, "fresh must be above zero"),
    ({"fresh": -1}, "fresh must not be negative"),
    ({"fresh": float("nan")}, "fresh must be"),
    ({"fresh": None}, "fresh must be"),
    ({"fresh": True}, "fresh must be"),
    ({"stale": -1}, "stale must not be negative"),
    ({"stale": float("inf")}, "stale must be"),
    ({"stale": "11y"}, "stale '11y' is not a duration"),
    ({"fresh": "2000d", "stale": "2000d"}, "fresh and stale together must be"),
    ({"errors": -1}, "errors must not be negative"),
    ({"errors": "4000d"}, "errors must be"),
    ({"ttl": 0}, "ttl must be"),
    ({"wait": -1}, "wait must not be negative"),
    ({"max_hold": 0}, "max_hold must be"),
    ({"cache": {}}, "cache is a result store of leasehold.patterns.results, such as MemoryResultStore.., not dict"),
    ({"serializer": "json"}, "a serializer has dumps.. and loads.., .* str does not"),
    ({"serializer": object()}, "object does not"),
    ({"on_down": "ignore"}, 'on_down must be "raise" or "call"'),
    ({"lease_as": 1}, "lease_as is the name of a parameter, not int"),
]


@each(("options", "message"), BAD, ids=lambda part: str(part)[:30])
def test_options(memory: Side, options: dict[str, Any], message: str) -> None:
    """Each option is checked at once."""
    with pytest.raises(InvalidRequest, match=message):
        memory.hold.single_flight("page", "{key}", **options)


def test_names(memory: Side, counted: Counted) -> None:
    """Templates and kinds are checked as those of locked are; the call form has no fields to fill in."""
    hold, function = memory.hold, memory.fit(counted.function())
    with pytest.raises(InvalidRequest, match="the kind takes no fields"):
        hold.single_flight("page-{key}")
    with pytest.raises(InvalidRequest, match="is no parameter of"):
        hold.single_flight("page", "{nothing}")(function)
    with pytest.raises(InvalidRequest, match="lease_as names a keyword-only parameter"):
        hold.single_flight("page", "{key}", lease_as="lease")(function)
    flight = hold.single_flight("page", "{key}")
    for call in (lambda: flight.call(function, "a"), lambda: flight.refresh(function, "a"), flight.forget):
        with pytest.raises(InvalidRequest, match="here, give the id itself"):
            memory.run(call())
    with pytest.raises(InvalidRequest, match=r"key.: .*NoneType"):
        memory.run(flight(function)(None))
    with pytest.raises(TypeError, match="missing a required argument: 'key'"):
        memory.run(flight(function)())
    assert counted.calls == 0


def test_functions_of_the_other_flavour() -> None:
    """A coroutine function belongs to leasehold.aio, and nothing else does."""

    async def coroutine() -> None: ...

    def plain() -> None: ...

    def generator() -> Any:
        yield

    with leasehold.connect("memory://") as hold:
        flight: Any = hold.single_flight("page")
        for wrong in (coroutine, generator, staticmethod(plain), 7):
            with pytest.raises(InvalidRequest):
                flight(wrong)
            with pytest.raises(InvalidRequest):
                flight.call(wrong)

    async def main() -> None:
        async with aio.connect("memory://") as hold:
            flight: Any = hold.single_flight("page")
            for wrong in (plain, generator):
                with pytest.raises(InvalidRequest):
                    flight(wrong)
                with pytest.raises(InvalidRequest):
                    await flight.call(wrong)

    asyncio.run(main())


def test_a_function_that_only_looks_plain(hold: Leasehold) -> None:
    """One that returns a coroutine has not done its work: nothing is cached."""

    async def coroutine() -> int:
        return 1

    page: Any = hold.single_flight("page")(lambda: [coroutine()][0])
    with pytest.raises(InvalidRequest, match="returned a coroutine"):
        page()


class Odd:
    """A serializer that gives what cannot be stored, or cannot be read again."""

    def __init__(self, gives: Any) -> None:
        self.gives = gives

    def dumps(self, value: Any) -> Any:
        """Whatever it is."""
        return self.gives

    def loads(self, written: Any) -> Any:
        """Never."""
        raise ValueError("never")


@pytest.mark.parametrize(
    ("value", "serializer", "message"),
    [
        ({"a": [object()]}, None, "is of type dict and cannot be serialized .*object is neither of the types"),
        ({(1, object()): 3}, None, "object is neither"),
        ({1, 2}, json, "Object of type set is not JSON serializable"),
        ("lone \ud800", None, "lone surrogate"),
        ("x" * (17 << 20), None, "at most 16 MiB"),
        (1, Odd(1), "gave int, which is neither str nor bytes"),
        (1, Odd("text"), "cannot be serialized with Odd .it cannot be read again: ValueError"),
    ],
    ids=["an object", "keys", "a set", "surrogate", "long", "gives int", "one way"],
)
def test_results(
    memory: Side, counted: Counted, value: object, serializer: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A result that cannot be cached is its caller's, and an error for all others; nothing is half done."""
    counted.gives = lambda: value
    page = memory.flown(counted.function(), serializer=serializer)
    assert page("a") is value
    assert re.search(message, caplog.text)
    with pytest.raises(ResultNotKept, match=f"type {type(value).__name__} could not be kept"):
        page("a")
    assert counted.calls == 1


def test_endless_results() -> None:
    """A value that contains itself, or is too deep, is refused as any other."""
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, deep):
        for serializer in (json, Codec()):
            with pytest.raises(InvalidRequest, match="cannot be serialized"):
                dump_value(serializer, value, "it")


def test_it_looks_like_the_function(memory: Side, counted: Counted) -> None:
    """Name, document and signature are the function's; a lease that is handed over is not shown."""

    def page(key: str, *, lease: Any = None) -> str:
        """A page."""
        return key

    flown = memory.hold.single_flight("page", "{key}", lease_as="lease")(memory.fit(page))
    assert (flown.__name__, flown.__doc__) == ("page", "A page.")
    assert list(inspect.signature(flown).parameters) == ["key"]
    assert inspect.iscoroutinefunction(flown) == memory.asynchronous
    assert "fresh=60s stale=0s errors=0s" in repr(memory.hold.single_flight("page"))
