"""A stage for each test: every place, in both flavours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.patterns.once.stage import PLACES, QUICK, Stage, open_stage


def everywhere() -> list[object]:
    """Those that need a server are slow."""
    return [pytest.param(place, marks=[] if place in QUICK else [pytest.mark.slow]) for place in PLACES]


@pytest.fixture(params=everywhere())
def stage(request: pytest.FixtureRequest, flavour: str) -> Iterator[Stage]:
    """Every place, in both flavours."""
    stage = open_stage(request.param, flavour, request)
    yield stage
    stage.close()


@pytest.fixture
def near(request: pytest.FixtureRequest, flavour: str) -> Iterator[Stage]:
    """In memory, for what does not depend on the place."""
    stage = open_stage("memory", flavour, request)
    yield stage
    stage.close()
