"""How a lock is broken on purpose, and how long one looks for somebody who notices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import pytest

from leasehold._core import ledger
from leasehold._core.holding import grant_spans
from leasehold._core.turn import Turn
from tests.support.simulator import simulate
from tests.support.simulator.plans import kind_of, theme_of

MOST_SEEDS = 2000
Break = Callable[[pytest.MonkeyPatch], None]


def turns(kind: type, turn: Callable[[Turn, Any], Any]) -> Break:
    """A ledger that decides one op differently."""
    return lambda monkeypatch: monkeypatch.setitem(ledger.TURNS, kind, turn)


def patched(place: object, name: str, value: object) -> Break:
    """One name replaced."""
    return lambda monkeypatch: monkeypatch.setattr(place, name, value)


def patched_item(table: dict[str, Any], name: str, value: object) -> Break:
    """One row of a table replaced."""
    return lambda monkeypatch: monkeypatch.setitem(table, name, value)


def seeds_of(where: str, first: int = 0) -> Iterator[int]:
    """Those of a theme, of a kind and a theme, or all."""
    fitting = (seed for seed in count(first) if {*where.split()} <= {kind_of(seed), theme_of(seed)})
    return islice(fitting, MOST_SEEDS)


def require_caught(promises: str, where: str = "", first: int = 0) -> None:
    """The first violation is of one of these promises. Times that were computed with the rule in place, or without it,
    are not used again."""
    grant_spans.cache_clear()
    try:
        found = simulate.find_violation(seeds_of(where, first))
    finally:
        grant_spans.cache_clear()
    assert found is not None, "nobody noticed"
    seed, violation = found
    assert re.match(rf"seed {seed}: ({promises})\b", str(violation)), violation
