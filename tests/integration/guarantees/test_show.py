"""The trial of a cell fails where the store does not do what the table says (I18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold._core import guarantee_table
from leasehold._core.guarantee_table import Cell
from leasehold.stores.memory import MemoryStore
from tests.support import guarantees
from tests.support.guarantees import Writer, nothing, show


@pytest.fixture
def store() -> MemoryStore:
    """One that both parties share."""
    return MemoryStore()


@pytest.fixture
def stated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the table state something about an event."""

    def state(exclusion: str, fences: str = "holds") -> None:
        cell = Cell(exclusion, fences, "holds", "Stated.", "")
        monkeypatch.setattr(guarantees, "TABLE", {**guarantee_table.TABLE, "memory": {"flush": cell}})

    return state


def forget(store: MemoryStore) -> None:
    """Everything, fences too, as if nobody had ever held anything."""
    store._states.clear()


def test_a_loss_where_none_is_stated(store: MemoryStore, stated: Callable[..., None]) -> None:
    """Two holders do not pass for one after the other."""
    stated("holds")
    with pytest.raises(AssertionError, match=r"it was lost|granted meanwhile"):
        show("memory", "flush", lambda: store, lambda: forget(store))


def test_a_grant_where_none_is_stated(store: MemoryStore, stated: Callable[..., None]) -> None:
    """A store that goes on granting is not one that refuses."""
    stated("refused")
    with pytest.raises(AssertionError, match="granted meanwhile"):
        show("memory", "flush", lambda: store, lambda: forget(store))


def test_no_loss_where_one_is_stated(
    store: MemoryStore, stated: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss that is stated is seen, or the trial fails."""
    stated("lost")
    monkeypatch.setattr(guarantees, "PATIENCE", 0.3)
    with pytest.raises(AssertionError):
        show("memory", "flush", lambda: store, nothing)


def test_fences_that_do_not_fall(store: MemoryStore, stated: Callable[..., None]) -> None:
    """Fences that are stated to fall must be seen to."""
    stated("lost", fences="lost")
    with pytest.raises(AssertionError, match="expected to fall"):
        show("memory", "flush", lambda: store, lambda: forget(store))


def test_what_is_stated_is_seen(store: MemoryStore, stated: Callable[..., None]) -> None:
    """The same with the right words passes."""
    stated("lost")
    show("memory", "flush", lambda: store, lambda: forget(store))
    stated("holds")
    show("memory", "flush", lambda: store, nothing)


def test_a_stale_write_is_found() -> None:
    """Fences that were accepted out of order."""
    data = Writer()
    data.accepted += [2, 1]
    with pytest.raises(AssertionError, match="stale"):
        data.no_stale_write()


@pytest.mark.parametrize(("exclusion", "fences"), [("holds", [1, 2, 1]), ("lost", [1, 2, 2])])
def test_data_without_a_guard_shows_another_loss_than_is_stated(exclusion: str, fences: list[int]) -> None:
    """A stale write that lands where exclusion is kept, or none where it is lost."""
    data = Writer()
    data.unguarded += fences
    with pytest.raises(AssertionError, match="without a guard"):
        data.judge(Cell(exclusion, "holds", "holds", "Stated.", ""))
