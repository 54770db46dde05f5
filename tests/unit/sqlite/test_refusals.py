"""What the embedded store refuses, each with an error that says which it is and what to do."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold._core import ops
from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.sqlite import SQLiteStore, failures, file
from tests.support.sqlite import ROOM, TTL, claim, look, run, take
from tests.support.tables import each

# Root may do anything: the process becomes somebody else once everything is imported.
TRY = """
import importlib, pkgutil, urllib.parse, leasehold.stores.sqlite as package
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"leasehold.stores.sqlite.{module.name}")
if len(sys.argv) > 2 and os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    print(claim("a"))
except LeaseholdError as error:
    print(type(error).__name__, error, type(error.__cause__).__name__)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter, which those of pytest are not."""
    folder = Path(tempfile.mkdtemp(prefix="leasehold-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def refused(path: Path, match: str) -> StoreUnavailable:
    """A store at this path says this, and says it again."""
    store = SQLiteStore(str(path))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=match) as caught:
            claim(store, "a")
    assert str(path) in str(caught.value)
    assert caught.value.resource == ROOM
    assert caught.value.__cause__ is not caught.value
    store.close()
    return caught.value


def damaged_in_the_middle(path: Path) -> None:
    """Everything after the first page becomes noise."""
    store = SQLiteStore(str(path))
    store.execute_many([ops.Claim(f"room:{number}", "a", TTL) for number in range(50)])
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as opened:
        opened.seek(2048)
        opened.write(b"\xa5" * (size - 2048))


def test_a_missing_folder(tmp_path: Path) -> None:
    """Folders of an explicit path are not made."""
    refused(tmp_path / "absent" / "leases.db", "has no folder. Make the folder first")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    """A part of the path is a file."""
    (tmp_path / "file").touch()
    refused(tmp_path / "file" / "leases.db", "has no folder")


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    """The path is a directory."""
    refused(tmp_path, "is a folder. Give the path of a file")


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    """As the file system says."""
    refused(tmp_path / ("x" * 300), "too long")


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    """As the file system says, too."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(tmp_path / "loop", "leads to itself")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """It stays as it was."""
    path = tmp_path / "leases.db"
    path.write_bytes(b"Dear diary, " * 1000)
    error = refused(path, "is not a database. Choose another path")
    assert isinstance(error.__cause__, sqlite3.DatabaseError)
    assert path.read_bytes() == b"Dear diary, " * 1000


@pytest.mark.parametrize("application", [0, 252006674])
def test_a_database_of_another_program(tmp_path: Path, application: int) -> None:
    """Also one without an application id. Nothing is written to it, not even its journal mode."""
    path = tmp_path / "leases.db"
    connection = sqlite3.connect(path)
    connection.executescript(f"PRAGMA application_id = {application}; CREATE TABLE songs (title TEXT);")
    connection.close()
    before = path.read_bytes()
    refused(path, "belongs to another program. Choose another path")
    assert path.read_bytes() == before


def test_a_newer_format(tmp_path: Path) -> None:
    """An older process must not touch what it does not understand."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    take(store, "a")
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    refused(path, "has format 2, which a newer Leasehold wrote; this one knows 1. Upgrade")


def test_an_empty_database_becomes_ours(tmp_path: Path) -> None:
    """A process that died between making the file and filling it leaves one; so does `touch`."""
    path = tmp_path / "leases.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    store = SQLiteStore(str(path))
    take(store, "a")
    store.close()


def test_the_schema_says_what_is_checked(tmp_path: Path) -> None:
    """The application id and the format of schema.sql are those of the check; rows are as documented."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    take(store, "a")
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (file.APPLICATION,)
    assert connection.execute("PRAGMA user_version").fetchone() == (file.FORMAT,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    (name, boot, state) = connection.execute("SELECT * FROM resources").fetchone()
    connection.close()
    assert (name, len(boot), state[:6]) == (ROOM, 36, '[[["a"')


def test_a_damaged_file(tmp_path: Path) -> None:
    """What SQLite finds to be corrupt."""
    path = tmp_path / "leases.db"
    damaged_in_the_middle(path)
    error = refused(path, "is damaged. Move it away together with its -wal and -shm files")
    assert isinstance(error.__cause__, sqlite3.DatabaseError)


def test_a_file_that_is_damaged_while_it_is_open(tmp_path: Path) -> None:
    """Told as such, and over when the file is moved away."""
    path = tmp_path / "leases.db"
    damaged_in_the_middle(path)
    store = SQLiteStore(str(path))
    with pytest.raises(StoreUnavailable, match="damaged"):
        look(store)
    path.unlink()
    take(store, "a")
    store.close()


def test_a_cut_file(tmp_path: Path) -> None:
    """The tail is missing, as after a copy that was broken off."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    store.execute_many([ops.Claim(f"room:{number}", "a", TTL) for number in range(50)])
    store.close()
    os.truncate(path, 3000)
    refused(path, "is damaged|is not a database")


# ---------------------------------------------------------------- rights


def test_no_right_to_the_file(open_folder: Path) -> None:
    """Somebody else's file."""
    path = open_folder / "leases.db"
    path.touch()
    path.chmod(0)
    out = run(TRY, path, "nobody")
    assert out.startswith("StoreUnavailable")
    assert "may not be opened by this user. Grant access" in out


def test_a_file_that_may_only_be_read(open_folder: Path) -> None:
    """Writing is what the store does."""
    path = open_folder / "leases.db"
    store = SQLiteStore(str(path))
    take(store, "a")
    store.close()
    path.chmod(0o444)
    open_folder.chmod(0o777)
    out = run(TRY, path, "nobody")
    assert "StoreUnavailable" in out
    assert "or its folder is read-only" in out


@pytest.mark.parametrize("exists", [False, True])
def test_a_read_only_folder(open_folder: Path, exists: bool) -> None:
    """Also when the file itself could be written: SQLite keeps files beside it."""
    path = open_folder / "leases.db"
    if exists:
        store = SQLiteStore(str(path))
        take(store, "a")
        store.close()
        path.chmod(0o666)
    open_folder.chmod(0o555)
    out = run(TRY, path, "nobody")
    assert "StoreUnavailable" in out
    assert "or its folder is read-only" in out


def test_a_folder_that_may_not_be_entered(open_folder: Path) -> None:
    """No right to look is told as that."""
    (open_folder / "closed").mkdir(mode=0o700)
    if os.getuid():
        (open_folder / "closed").chmod(0)
    out = run(TRY, open_folder / "closed" / "leases.db", "nobody")
    (open_folder / "closed").chmod(0o700)  # so that it can be removed
    assert "StoreUnavailable" in out
    assert "may not be opened by this user" in out


@pytest.mark.parametrize(
    ("number", "match"),
    [
        (errno.EROFS, "read-only file system"),
        (errno.ENOSPC, "full disk"),
        (errno.EDQUOT, "full disk"),
        (errno.EIO, "failed: OSError"),
        (errno.EMFILE, "file descriptor"),
    ],
)
def test_the_file_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, match: str) -> None:
    """What the system says is said; its error is the cause."""

    def mknod(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mknod", mknod)
    assert isinstance(refused(tmp_path / "leases.db", match).__cause__, OSError)


# ---------------------------------------------------------------- the disk


def mounted(folder: Path, options: str) -> bool:
    """Only root may, and not in every container."""
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    return os.getuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def fill(store: SQLiteStore) -> None:
    """Claim until it is no longer possible."""
    for number in range(10_000):
        store.execute(ops.Claim(f"room:{number}", "a", TTL, meta="x" * 400))


def test_a_full_disk(tmp_path: Path) -> None:
    """On a real one where that can be had, and else on one that SQLite takes for full. What is held stays."""
    path = tmp_path / "leases.db"
    small = mounted(tmp_path, "size=256k")
    try:
        store = SQLiteStore(str(path))
        held = take(store, "a")
        if not small:
            opened = store._database
            assert opened is not None
            opened._execute("PRAGMA max_page_count = 8")
        with pytest.raises(StoreUnavailable, match="full disk") as caught:
            fill(store)
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        if not small:
            assert store.execute(ops.Renew(ROOM, "a", held.fence, TTL)) == ops.Renewed(TTL)
        store.close()
    finally:
        if small:
            subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_database_that_may_not_grow(tmp_path: Path) -> None:
    """SQLITE_FULL in the middle of a turn: definite, and everything else goes on."""
    store = SQLiteStore(str(tmp_path / "leases.db"))
    held = take(store, "a")
    opened = store._database
    assert opened is not None
    opened._execute("PRAGMA max_page_count = 8")
    with pytest.raises(StoreUnavailable, match="full disk"):
        store.execute(ops.Claim("room", "a", TTL, meta="x" * 100_000))
    view = store.execute(ops.Inspect("room"))
    assert isinstance(view, ops.View)
    assert view.holders == ()
    assert take(store, "a").fence == held.fence
    store.close()


def test_a_write_that_fails_at_commit(tmp_path: Path) -> None:
    """A limit on the size of files makes the write of COMMIT fail: nobody knows, and asking again tells."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    take(store, "a")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("leases.db-wal").stat().st_size, limits[1]))
    try:
        with pytest.raises(OutcomeUnknown, match="while a change was being written") as caught:
            store.execute(ops.Claim("room", "a", TTL))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert isinstance(store.execute(ops.Claim("room", "a", TTL)), ops.Granted)
    store.close()


def test_a_read_only_file_system(tmp_path: Path) -> None:
    """Mounted so where that can be had; the file and its folder look writable."""
    if mounted(tmp_path, "ro"):
        try:
            refused(tmp_path / "leases.db", "lies on a read-only file system")
        finally:
            subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    assert failures.SYSTEM_TEXTS[errno.EROFS] == failures.READ_ONLY_SYSTEM


# ---------------------------------------------------------------- every error


@each("name", [name for name in dir(sqlite3) if name.startswith("SQLITE_") and isinstance(getattr(sqlite3, name), int)])
def test_every_error_of_sqlite_is_ours(name: str, tmp_path: Path) -> None:
    """Whatever SQLite answers, the text names the file and the error can be pickled."""
    error = sqlite3.OperationalError("made up")
    error.sqlite_errorname = name
    told = failures.refusal(str(tmp_path / "leases.db"), error)
    assert str(tmp_path) in str(told)
    assert str(pickle.loads(pickle.dumps(told))) == str(told)  # noqa: S301
