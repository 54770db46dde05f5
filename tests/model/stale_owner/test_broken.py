"""The judges can say no (I18): guards with a mistake in them are found out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model.stale_owner import scenes
from tests.model.stale_owner.conftest import Gather
from tests.model.stale_owner.targets import Description


def broken(kind: str, folder: Path) -> Description:
    """A file, and a guard that is not one. Without its lock the database is waited for."""
    return Description(kind, str(folder / "app.db"), {"busy": 20})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "scene", "finding"),
    [
        ("unguarded", scenes.overtaken, "a stale owner was not refused"),
        ("unguarded", scenes.read_modify_write, "updates were lost"),
        ("unguarded", scenes.equal_fences, "a stale owner was not refused"),
        ("late", scenes.read_modify_write, "updates were lost"),
        ("apart", scenes.frozen_inside, "somebody came between"),
        ("apart", scenes.killed_inside, "somebody came between"),
    ],
)
def test_scenes_find_it(
    gather: Gather, tmp_path: Path, kind: str, scene: Callable[[scenes.Pair], None], finding: str
) -> None:
    """The scene that is about this mistake fails, and says what happened."""
    with pytest.raises(AssertionError, match=finding):
        scene(scenes.Pair(gather(broken(kind, tmp_path))))


@pytest.mark.slow
def test_storms_find_it(gather: Gather, tmp_path: Path) -> None:
    """Eight workers without a guard: stale writes are accepted and updates lost, and the judge counts both."""
    verdict = scenes.storm(gather(broken("unguarded", tmp_path)), 2, seed=1)
    assert verdict.accepted > 0 and verdict.lost > 0


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["late", "apart"])
def test_long_storms_find_what_is_rare(gather: Gather, tmp_path: Path, kind: str) -> None:
    """A gap of milliseconds is hit too, when there are many pauses."""
    verdict = scenes.storm(gather(broken(kind, tmp_path)), 40, seed=1)
    assert verdict.accepted > 0 and verdict.lost > 0
