"""Stages for the tests of observers, in each flavour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from leasehold.observe import anti_patterns
from tests.support.observe.stage import Listener, Stage
from tests.support.parties import FLAVOURS


@pytest.fixture
def heard() -> Listener:
    """Somebody who listens."""
    return Listener()


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    """Threads, or asyncio."""
    name: str = request.param
    return name


@pytest.fixture
def set_up(flavour: str, heard: Listener) -> Iterator[Callable[..., Stage]]:
    """Make a stage whose events are heard, also by others. What other tests have shown is forgotten."""
    anti_patterns._reported.clear()
    with ExitStack() as stack:

        def make(*others: Any, **options: Any) -> Stage:
            stage = Stage(flavour, [heard, *others], **options)
            stack.callback(stage.close)
            return stage

        yield make


@pytest.fixture
def stage(set_up: Callable[..., Stage]) -> Stage:
    """The plain one."""
    return set_up()
