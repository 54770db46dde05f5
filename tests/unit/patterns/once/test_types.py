"""How a type checker sees what once decorates, and that both flavours are one. mypy reads this file in `make check`."""

from __future__ import annotations

import inspect
from typing import Any, assert_type, get_overloads

import pytest

import leasehold
from leasehold import patterns
from leasehold.patterns import AsyncOnce, AsyncOnceKey, Once, OnceKey

PAIRS = [(Once, AsyncOnce), (OnceKey, AsyncOnceKey)]


def test_threads_keep_parameters_and_result() -> None:
    """What is decorated, or called, has the types that it had."""
    with leasehold.connect("memory://once-types") as hold:

        @hold.once("payment", "{request_id}", keep="24h", fingerprint="{body}")
        def pay(request_id: str, body: bytes = b"") -> int:
            return len(body)

        @hold.once("payment", "{request_id}", lease_as="lease")
        def leased(request_id: str, *, lease: leasehold.Lease) -> str:
            return lease.resource

        assert_type(pay("r-1", b"12"), int)
        assert_type(leased("r-2"), str)
        assert_type(hold.once("payment", 3).call(len, "abc"), int)
        with hold.once("payment", 4).begin() as key:
            assert_type(key, OnceKey)
            assert_type(key.lease, leasehold.Lease | None)
        wrong = lambda: pay(1)  # type: ignore[arg-type]  # noqa: E731  # a number is no text
        assert callable(wrong)


async def test_coroutines_stay_coroutines() -> None:
    """The same, awaited."""
    async with leasehold.aio.connect("memory://once-types") as hold:

        @hold.once("payment", "{request_id}", errors=(KeyError,))
        async def pay(request_id: str) -> int:
            return 5

        @hold.once("payment", "{request_id}", lease_as="lease", errors=True)
        async def leased(request_id: str, *, lease: leasehold.AsyncLease) -> str:
            return lease.resource

        assert_type(await pay("a-1"), int)
        assert_type(await leased("a-2"), str)
        assert_type(await hold.once("payment", 5).call(pay, "a-3"), int)
        async with hold.once("payment", 6).begin() as key:
            assert_type(key, AsyncOnceKey)
            assert_type(key.lease, leasehold.AsyncLease | None)


def shape(function: Any) -> list[Any]:
    """Names, kinds and defaults of the parameters."""
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("sync", "other"), PAIRS, ids=lambda cls: cls.__name__)
def test_both_flavours_are_one(sync: type, other: type) -> None:
    """The same names with the same parameters; what may block is awaited, and nothing else."""
    names = [name for name in dir(sync) if not name.startswith("_")]
    assert names == [name for name in dir(other) if not name.startswith("_")]
    for name in names:
        one, two = inspect.getattr_static(sync, name), inspect.getattr_static(other, name)
        assert isinstance(one, property) == isinstance(two, property) and one.__doc__ and two.__doc__
        if not isinstance(one, property):
            assert shape(one) == shape(two)
            assert inspect.iscoroutinefunction(two) == (name in ("call", "complete"))


def test_once_takes_the_same() -> None:
    """``once`` of both coordinators, and what type checkers are told of it."""
    one, two = leasehold.Leasehold.once, leasehold.AsyncLeasehold.once
    assert shape(one) == shape(two)
    assert [shape(each) for each in get_overloads(one)] == [shape(each) for each in get_overloads(two)]
    defaults = {
        name: one.default for name, one in inspect.signature(one).parameters.items() if one.default is not one.empty
    }
    assert repr(defaults.pop("wait")) == "<the coordinator's>"
    assert defaults == {
        "keep": "24h",
        "ttl": 30,
        "max_hold": None,
        "fingerprint": None,
        "errors": (),
        "store": None,
        "serializer": None,
        "lease_as": None,
    }


def test_public_names() -> None:
    """All that ``leasehold.patterns`` says it has is there, in order; nothing is loaded before somebody asks."""
    assert patterns.__all__ == sorted(patterns.__all__)
    assert all(getattr(patterns, name).__name__ == name for name in patterns.__all__)
    assert {"AsyncOnce", "AsyncOnceKey", "KeyReused", "Once", "OnceKey", "ResultNotKept"} <= set(patterns.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = patterns.nothing
