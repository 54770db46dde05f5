"""What the embedded store promises: each cell of its column."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import leasehold
from leasehold._core.guarantee_table import TABLE
from leasehold.stores.sqlite import SQLiteStore, file
from tests.integration.guarantees.faults import HOUR_US, SetClock
from tests.support.guarantees import LONG, RESOURCE, Writer, claim, show, show_a_frozen_holder, show_a_killed_holder
from tests.support.servers import process

LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
"""


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


# ---------------------------------------------------------------- processes


def test_a_killed_holder(path: Path) -> None:
    """The next is granted when the ttl is over."""
    show_a_killed_holder("sqlite", f"sqlite:///{path}")


def test_a_frozen_holder(path: Path) -> None:
    """It has lost its lease when it goes on, and its late write is refused."""
    show_a_frozen_holder("sqlite", f"sqlite:///{path}")


class Locker:
    """A process that begins a transaction on a file, and is frozen there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process: subprocess.Popen[str] | None = None

    def lock(self) -> None:
        """From now on nobody else can write."""
        command = [sys.executable, "-c", LOCKER, str(self._path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None and self._process.stdout.readline() == "locked\n"
        process.freeze(self._process.pid)

    def end(self) -> None:
        """Its transaction ends with it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def locker(path: Path) -> Iterator[Locker]:
    """One that ends with the test."""
    locker = Locker(path)
    yield locker
    locker.end()


def test_a_process_is_frozen_inside_a_transaction(path: Path, locker: Locker) -> None:
    """The file is locked: the holder cannot renew and stops in time, and nobody is granted anything until it is
    free."""
    show("sqlite", "server_pause", f"sqlite:///{path}", locker.lock, locker.end)


def test_the_host_loses_power(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every process on it, and the last writes to the file. What was granted before is nobody's after the reboot,
    and a guard that is elsewhere knows the last fence."""
    data, on_disk = Writer(), tmp_path / "on-disk"
    monkeypatch.setattr(file, "boot_id", lambda: "before")
    with leasehold.connect(SQLiteStore(str(path))) as hold:
        claim(hold, ttl=LONG).lease.release()
    shutil.copy(path, on_disk)
    with leasehold.connect(SQLiteStore(str(path))) as hold:
        old = claim(hold, ttl=LONG, renew=False).lease
        assert data.write(old)
        delete(path)
        shutil.copy(on_disk, path)
        monkeypatch.setattr(file, "boot_id", lambda: "after")
        with leasehold.connect(SQLiteStore(str(path))) as rebooted:
            new = rebooted.lock(RESOURCE, ttl=LONG).try_acquire()
            assert new is not None and new.fence > old.fence
            assert data.write(new) and not data.write(old)
    data.no_stale_write()
    assert TABLE["sqlite"]["crash_file"][:3] == ("holds", "holds", "holds")


# ---------------------------------------------------------------- the clock and the file


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
