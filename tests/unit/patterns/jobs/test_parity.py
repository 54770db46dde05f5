"""AsyncJobs and AsyncJob are the same surface, awaited: names, parameters, defaults and annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from leasehold import patterns
from leasehold.patterns import AsyncJob, AsyncJobs, Job, Jobs
from tests.support.tables import each

PAIRS: list[tuple[Any, Any]] = [(Jobs, AsyncJobs), (Job, AsyncJob)]
AWAITED = {
    "AsyncJobs": {
        "check", "claim", "claim_many", "counts", "create", "dead", "enqueue", "enqueue_many", "get", "purge",
        "retry_dead", "work",
    },
    "AsyncJob": {"complete", "fail", "heartbeat", "release", "__aenter__", "__aexit__"},
}  # fmt: skip
FLAVOURED = ("work",)  # a function, or one that is awaited; an event of its own kind
MEMBERS = [(one, two, name) for one, two in PAIRS for name in sorted(dir(one)) if not name.startswith("_")]


def shape(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of the parameters."""
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("sync", "other"), PAIRS)
def test_the_same_names(sync: type, other: type) -> None:
    """Neither has a public name that the other lacks."""
    assert {name for name in dir(sync) if name[0] != "_"} == {name for name in dir(other) if name[0] != "_"}


@each(("sync", "other", "name"), MEMBERS)
def test_the_same_parameters(sync: type, other: type, name: str) -> None:
    """A member takes the same in both, or is a property in both."""
    one, two = inspect.getattr_static(sync, name), inspect.getattr_static(other, name)
    assert isinstance(one, property) == isinstance(two, property)
    if callable(one):
        assert shape(one) == shape(two)
        if name not in FLAVOURED:
            without = [{k: v for k, v in inspect.get_annotations(each).items() if k != "return"} for each in (one, two)]
            assert without[0] == without[1]


@pytest.mark.parametrize(("sync", "other"), PAIRS)
def test_awaited_exactly_where_it_may_block(sync: type, other: type) -> None:
    """What asks the database, and nothing else."""
    members = inspect.getmembers(other, inspect.iscoroutinefunction)
    found = {name for name, _ in members if not name.startswith("_") or name.startswith("__")}
    assert found == AWAITED[other.__name__]
    assert not inspect.getmembers(sync, inspect.iscoroutinefunction)


def test_constructors_take_the_same() -> None:
    """And so do the nouns that they give."""
    assert shape(Jobs.__init__) == shape(AsyncJobs.__init__)
    assert not hasattr(Job, "__aenter__") and not hasattr(AsyncJob, "__enter__")


def test_the_public_names() -> None:
    """Sorted, loaded when they are asked for, and nothing else."""
    assert patterns.__all__ == sorted(patterns.__all__)
    assert set(patterns.__all__) <= set(dir(patterns))
    for name in patterns.__all__:
        assert getattr(patterns, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute"):
        _ = patterns.Levitation
