"""What makes no sense is refused at once, with a message that says what would, and nothing is sent."""

from __future__ import annotations

from typing import Any

import pytest

import leasehold
from leasehold.errors import InvalidRequest
from tests.support.lock import Spy
from tests.support.tables import each


async def awaited() -> None:
    """A coroutine function."""


class Awaited:
    """An object whose call must be awaited."""

    async def __call__(self) -> None:
        """Nobody would."""


BAD: list[tuple[dict[str, Any], str]] = [
    ({"ttl": 0}, "ttl"),
    ({"ttl": -1}, "ttl"),
    ({"ttl": True}, "ttl"),
    ({"ttl": "soon"}, "soon"),
    ({"ttl": float("nan")}, "ttl"),
    ({"wait": -1}, "wait"),
    ({"max_hold": 0}, "max_hold"),
    ({"delay": -1}, "delay"),
    ({"at_least": -1}, "at_least"),
    ({"max_idle": 0}, "max_idle"),
    ({"max_idle": 5, "health": bool}, "leave out max_idle"),
    ({"protects": "everything"}, "protects"),
    ({"health": 7}, "health takes a function"),
    ({"health": bool, "health_retries": 0}, "health_retries must be between"),
    ({"health": bool, "health_retries": 10**9}, "health_retries must be between"),
    ({"health": bool, "health_retries": True}, "health_retries must be an int"),
    ({"health": bool, "health_retries": 1.5}, "health_retries must be an int"),
    ({"health": bool, "health_start_period": -1}, "health_start_period"),
    ({"health": bool, "health_start_period": "2d"}, "health_start_period must be at most"),
    ({"health": bool, "health_start_period": None}, "health_start_period"),
    ({"health_retries": 3}, "give health= as well"),
    ({"health_start_period": 3}, "give health= as well"),
    ({"health": "curl localhost"}, "health takes a function"),
    ({"value": object()}, "value cannot be written as JSON"),
    ({"value": {1: {2}}}, "value cannot be written as JSON"),
    ({"value": float("inf")}, "value cannot be written as JSON"),
    ({"value": "\ud800"}, "value cannot be written as JSON"),
    ({"value": "x" * 4096}, "value takes at most 4096 bytes"),
    ({"value": "x" * 3000, "meta": {"more": "x" * 1500}}, "value takes at most 4096 bytes"),
    ({"meta": [1]}, "meta must be a mapping"),
    ({"meta": {"value": 1}}, "given as value="),
]


@each(("options", "why"), BAD)
def test_refused(hold: leasehold.Leasehold, spy: Spy, options: dict[str, Any], why: str) -> None:
    """By the coordinator for threads."""
    with pytest.raises(InvalidRequest, match=why):
        hold.election("job", **options)
    assert spy.ops == []


@each(("options", "why"), BAD)
async def test_refused_in_asyncio(ahold: leasehold.AsyncLeasehold, spy: Spy, options: dict[str, Any], why: str) -> None:
    """And by that for asyncio."""
    with pytest.raises(InvalidRequest, match=why):
        ahold.election("job", **options)
    assert spy.ops == []


@pytest.mark.parametrize("function", [awaited, Awaited()])
def test_what_nobody_would_await(hold: leasehold.Leasehold, function: Any) -> None:
    """A coroutine function is for asyncio: here it would be called, and nothing would happen."""
    election = hold.election("job")
    for refused in (lambda: hold.election("job", health=function), lambda: election.on_elected(function)):
        with pytest.raises(InvalidRequest, match="plain function"):
            refused()
    with pytest.raises(InvalidRequest, match="plain function"):
        election.on_demoted(function)


async def test_asyncio_takes_both(ahold: leasehold.AsyncLeasehold) -> None:
    """Functions and coroutine functions; nothing else."""
    functions: list[Any] = [awaited, Awaited(), lambda: None]
    for function in functions:
        election = ahold.election("job", health=function)
        election.on_elected(function)
    with pytest.raises(InvalidRequest, match="on_demoted takes a function"):
        election.on_demoted(None)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("option", ["fenced", "reentrant", "renew", "permits", "limit"])
def test_unknown_options(hold: leasehold.Leasehold, option: str) -> None:
    """What a leader has no use for is no option of an election."""
    with pytest.raises(TypeError, match=option):
        hold.election("job", **{option: 1})  # type: ignore[arg-type]  # that is the point


def test_names(hold: leasehold.Leasehold) -> None:
    """As with a lock."""
    for kind, ids in (("", ()), ("job", (1.5,)), ("job", (True,)), ("job", ("",))):
        with pytest.raises(InvalidRequest):
            hold.election(kind, *ids)


def test_a_bad_wait_of_a_campaign(hold: leasehold.Leasehold, spy: Spy) -> None:
    """Said when the campaign is made."""
    for wait in (-1, True, "soon", float("nan")):
        with pytest.raises(InvalidRequest):
            hold.election("job").campaign(wait=wait)
    assert spy.ops == []
