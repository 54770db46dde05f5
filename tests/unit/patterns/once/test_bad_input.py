"""What is wrong is said before anything runs or is sent, by what is wrong with it, and without showing a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.errors import InvalidRequest, StoreUnavailable
from leasehold.patterns.results import MemoryResultStore
from tests.support.patterns.once.stage import Stage
from tests.support.tables import each

NAME = ("payment", "{request_id}")


class Awaited(MemoryResultStore):
    """One for asyncio."""

    async def read(self, resource: str) -> Any:  # type: ignore[override]  # awaited
        """Nothing."""


def never(request_id: str, body: Any = None) -> None:
    """Work that must not be done."""
    raise AssertionError("it ran")


@each(
    ("options", "said"),
    [
        ({"keep": -1}, "keep must not be negative"),
        ({"keep": 0}, "keep must be above zero"),
        ({"keep": math.nan}, "keep must be"),
        ({"keep": "20000d"}, "at most 10 years"),
        ({"keep": None}, "keep must be"),
        ({"keep": "soon"}, "is not a duration"),
        ({"ttl": 0}, "ttl must be between"),
        ({"wait": -1}, "wait must not be negative"),
        ({"fingerprint": 5}, "fingerprint is a template"),
        ({"fingerprint": "body"}, "names no parameter"),
        ({"fingerprint": ""}, "must not be empty"),
        ({"fingerprint": "{body!r}"}, "conversion"),
        ({"fingerprint": "{"}, "cannot be read"),
        ({"store": "redis://"}, "store is a result store"),
        ({"serializer": object()}, "dumps"),
        ({"errors": "ValueError"}, "errors are the classes"),
        ({"errors": (KeyboardInterrupt,)}, "errors are the classes"),
        ({"errors": False}, "errors are the classes"),
        ({"lease_as": 5}, "name of a parameter"),
    ],
    ids=lambda part: part if isinstance(part, str) else next(iter(part)),
)
def test_options(near: Stage, options: dict[str, Any], said: str) -> None:
    """Each is refused where ``once`` is called."""
    with pytest.raises(InvalidRequest, match=said):
        near.hold.once(*NAME, **options)


@each("name", [("pay{x}",), ("",), ("payment", ""), ("payment", 1.5), ("payment", "{a!r}"), (5,)])
def test_names(near: Stage, name: Any) -> None:
    """A kind takes no fields, and an id is text, an int, a UUID or a date."""
    with pytest.raises(InvalidRequest):
        near.hold.once(*name)


class Closed(dict[str, int]):
    """One that cannot be looked into any more."""

    def items(self) -> Any:
        """As a row of a session that is closed."""
        raise OSError("gone")


@each(
    "body",
    [
        math.nan, -math.inf, {1, 2}, object(), {1: "a"}, {"a": [{"b": lambda: None}]}, "\ud800", [[math.nan]],
        [Closed(a=1)],
    ],
)  # fmt: skip
def test_fingerprints_that_cannot_be_computed(near: Stage, body: Any) -> None:
    """Nothing runs, nothing is taken, nothing is stored, and the body is not shown."""
    pay = near.decorated(never, *NAME, fingerprint="{body}")
    with pytest.raises(InvalidRequest, match="fingerprint cannot be computed") as caught:
        pay("r-1", body)
    assert repr(body) not in str(caught.value)
    assert near.stored("payment:r-1") is None and near.rival.inspect("payment:r-1").fence == 0


def test_a_body_that_holds_itself(near: Stage) -> None:
    """It has no end, and is refused."""
    body: list[Any] = []
    body.append(body)
    with pytest.raises(InvalidRequest, match="holds itself"):
        near.decorated(never, *NAME, fingerprint="{body}")("r-1", body)


def test_a_function_for_the_fingerprint_that_fails(near: Stage) -> None:
    """Its error is the cause; nothing runs."""
    pay = near.decorated(never, *NAME, fingerprint=lambda request_id, body: body["amount"])
    with pytest.raises(InvalidRequest, match="raised TypeError") as caught:
        pay("r-1", None)
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_function_for_the_fingerprint_that_is_no_plain_one(near: Stage) -> None:
    """A coroutine is no fingerprint."""

    async def later(request_id: str, body: Any) -> str:
        return "never"

    with pytest.raises(InvalidRequest, match="fingerprint cannot be computed"):
        near.decorated(never, *NAME, fingerprint=later)("r-1", None)


def test_parameters_that_are_not_there(near: Stage) -> None:
    """A template names parameters of the function, said where it is decorated; wrong arguments are a TypeError."""
    with pytest.raises(InvalidRequest, match=r"\{amount\} is no parameter"):
        near.decorated(never, *NAME, fingerprint="{amount}")
    with pytest.raises(TypeError, match="never"):
        near.decorated(never, *NAME)()
    with pytest.raises(InvalidRequest, match="id must be"):
        near.decorated(never, *NAME)(None)


def test_functions_of_the_other_flavour() -> None:
    """A coroutine function needs a coordinator for asyncio, and the other way round; a generator needs neither."""

    async def awaited(request_id: str) -> None:
        never(request_id)

    def generator(request_id: str) -> Iterator[None]:
        never(request_id)
        yield

    hold, aio = leasehold.connect("memory://other"), leasehold.aio.connect("memory://other")
    wrong: list[Callable[[], object]] = [
        lambda: hold.once(*NAME)(awaited),
        lambda: aio.once(*NAME)(never),  # type: ignore[arg-type]  # that is the mistake
        lambda: hold.once(*NAME)(generator),
        lambda: hold.once(*NAME)("no function"),  # type: ignore[arg-type]  # that is the mistake
    ]
    for call in wrong:
        with pytest.raises(InvalidRequest):
            call()


def test_a_result_store_for_asyncio_on_threads() -> None:
    """It would have to be awaited: refused before anything runs."""
    with leasehold.connect("memory://awaited") as hold, pytest.raises(InvalidRequest, match="awaited"):
        hold.once(*NAME, store=Awaited()).call(never, "r-1")


def test_a_name_that_is_used_twice(near: Stage) -> None:
    """What another pattern wrote under the same name is not taken for an outcome, and not overwritten."""
    results: Any = near.rival._results
    with near.rival.lock("payment", "r-1") as lease:
        results.write(lease, '{"leasehold":"cron/1"}', "1h")
    with pytest.raises(InvalidRequest, match="used twice"):
        near.decorated(never, *NAME)("r-1")
    with near.rival.lock("payment", "r-2") as lease:
        results.write(lease, "something else", "1h")
    with pytest.raises(InvalidRequest, match="used twice"):
        near.decorated(never, *NAME)("r-2")
    assert not near.rival.lock("payment", "r-1").locked()


def test_another_serializer(near: Stage) -> None:
    """A result that was written otherwise is not read as something else, and not run again."""
    import pickle

    assert near.decorated(lambda request_id: {1}, *NAME, serializer=pickle)("r-1") == {1}
    assert near.rivals(never, *NAME, serializer=pickle)("r-1") == {1}
    with pytest.raises(InvalidRequest, match="another serializer"):
        near.decorated(never, *NAME)("r-1")


@pytest.mark.parametrize("place", ["memory://", "sqlite:///store.db"])
def test_a_closed_coordinator(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, at every place, and what to do; nothing runs, and nothing that was kept is given away."""
    monkeypatch.chdir(tmp_path)
    hold = leasehold.connect(place)
    once = hold.once("payment", "{number}")
    assert once.call(lambda number: "paid", 1) == "paid"
    hold.close()
    for number in (1, 2):
        with pytest.raises(StoreUnavailable, match=r"this coordinator is closed: make a new one") as caught:
            once.call(lambda number: pytest.fail("it ran"), number)
        assert caught.value.resource == f"payment:{number}"


def test_a_result_store_that_only_one_process_sees(tmp_path: Path) -> None:
    """Beside leases that others see it would let each of them run the same key: refused."""
    with (
        leasehold.connect(f"sqlite:///{tmp_path}/leases.db") as hold,
        pytest.raises(InvalidRequest, match="one process only"),
    ):
        hold.once("payment", "{request_id}", store=MemoryResultStore())
