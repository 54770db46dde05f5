"""What the embedded store promises: each cell of its column that is about the file and the clock."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import leasehold
from leasehold._core.types import Instant
from leasehold.stores.clock import SystemClock
from leasehold.stores.sqlite import SQLiteStore
from tests.support.guarantees import LONG, claim, show

HOUR_US = 3_600_000_000


class SetClock(SystemClock):
    """The clock of this host, whose wall somebody sets. The time since boot cannot be set."""

    off_us = 0

    def instant(self) -> Instant:
        """Both times; only the wall is off."""
        ms, wall_us = super().instant()
        return Instant(ms, wall_us + self.off_us)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store."""
    return tmp_path / "leases.db"


@pytest.fixture
def clock() -> SetClock:
    """That of all processes of the host."""
    return SetClock()


@pytest.fixture
def store(path: Path, clock: SetClock) -> Callable[[], SQLiteStore]:
    """One for each process."""
    return lambda: SQLiteStore(str(path), clock)


def delete(path: Path) -> None:
    """The file, and what SQLite keeps beside it."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def test_the_wall_clock_is_set_forward(store: Callable[[], SQLiteStore], clock: SetClock) -> None:
    """The lease goes on being held and renewed."""
    show("sqlite", "clock_forward", store, lambda: setattr(clock, "off_us", HOUR_US))


def test_the_wall_clock_is_set_back(store: Callable[[], SQLiteStore], clock: SetClock) -> None:
    """The lease goes on, and the next one has a higher fence although the clock is behind."""
    show("sqlite", "clock_back", store, lambda: setattr(clock, "off_us", -HOUR_US))


def test_the_file_is_deleted_while_the_clock_is_behind(
    store: Callable[[], SQLiteStore], clock: SetClock, path: Path
) -> None:
    """Two holders, and the second has the lower fence: the guard refuses it, and accepts the one that it takes next."""

    def lose() -> None:
        clock.off_us = -HOUR_US
        delete(path)

    show("sqlite", "clock_back_and_loss", store, lose)


def test_the_file_is_deleted_under_a_holder(path: Path) -> None:
    """There are two holders; the fence of the second is above that of the first, from the clock."""
    show("sqlite", "flush", f"sqlite:///{path}", lambda: delete(path))


def test_an_older_copy_of_the_file_is_put_back(path: Path, tmp_path: Path) -> None:
    """What was granted after the copy is unknown, and there are two holders."""
    backup = tmp_path / "backup"
    with leasehold.connect(f"sqlite:///{path}") as hold:
        claim(hold, ttl=LONG).lease.release()
    shutil.copy(path, backup)  # complete: the last one that closes it writes everything into the file

    def put_back() -> None:
        delete(path)
        shutil.copy(backup, path)

    show("sqlite", "restore", f"sqlite:///{path}", put_back)
