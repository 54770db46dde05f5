"""A crew for each target, and where each target is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.guards.model.crew import GuardCrew
from tests.guards.model.targets import Description

Gather = Callable[[Description], GuardCrew]


@pytest.fixture
def gather(tmp_path: Path) -> Iterator[Gather]:
    """A crew around a target; reaped at the end."""
    with ExitStack() as stack:

        def gather(description: Description) -> GuardCrew:
            crew = GuardCrew(tmp_path, description)
            stack.callback(crew.close)
            return crew

        yield gather


@pytest.fixture
def crew(request: pytest.FixtureRequest, gather: Gather) -> GuardCrew:
    """For the target that the test names."""
    description: Description = request.getfixturevalue(f"{request.param}_target")
    return gather(description)


# ---------------------------------------------------------------- where each is


@pytest.fixture
def sqlite_target(tmp_path: Path) -> Description:
    """A file."""
    return Description("sqlite", str(tmp_path / "app.db"))
