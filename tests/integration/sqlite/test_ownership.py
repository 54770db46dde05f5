"""Strangers' files stay as they are, strangers' links are not followed, and several users share one database.

Root plays the users with process ids of their own. Anybody else is all of them at once, and then another user is one
whose number is not ours.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from leasehold._core import ops
from leasehold.errors import StoreUnavailable
from leasehold.patterns.results import SQLiteResultStore
from leasehold.stores.sqlite import SQLiteStore, file, sockets, stdlib
from leasehold.stores.sqlite.failures import TryAgain
from tests.support.sqlite import ROOM, bind, claim, look, next_line, release, run, start, take

ROOT = os.geteuid() == 0
ALICE, BOB, TEAM = (12_001, 12_002, 12_003) if ROOT else (os.geteuid(), os.geteuid(), os.getegid())
PUSH = ops.Push("box", "granted", ROOM, "b", 7, 1, 100)

# Root becomes somebody else once all is imported: not everybody may read where Python and its packages are.
BECOME = """
import importlib, json, pkgutil, urllib.parse, leasehold.stores.sqlite as package
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"leasehold.stores.sqlite.{module.name}")
def become(user, *groups):
    if os.getuid() == 0:
        os.setgroups(groups)
        os.setgid(int(groups[0]))
        os.setuid(int(user))
become(*map(int, sys.argv[2].split(",")))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users can enter, which those of pytest are not."""
    made = Path(tempfile.mkdtemp(prefix="leasehold-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def make() -> Iterator[Callable[[Path], SQLiteStore]]:
    """Stores that are closed at the end."""
    made: list[SQLiteStore] = []

    def one(path: Path) -> SQLiteStore:
        made.append(SQLiteStore(str(path)))
        return made[-1]

    yield one
    for store in made:
        store.close()


Make = Callable[[Path], SQLiteStore]


def strange(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this belongs to another user than the one we are."""
    if ROOT:
        os.chown(path, ALICE, ALICE, follow_symlinks=False)
    else:
        us = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: us + 1)


def dead_socket(path: Path, kind: int = socket.SOCK_DGRAM) -> None:
    """An old one that nobody listens to."""
    with socket.socket(socket.AF_UNIX, kind) as made:
        bind(made, path)
    os.utime(path, (0, 0))


def treasure(folder: Path) -> list[str]:
    """A folder with what it may hold, all of it old; some under names such as ours."""
    folder.mkdir(exist_ok=True)
    for name in ("diary", sockets.new_name()):
        (folder / f"{name}").write_text("dear diary")
    for name in ("pipe", sockets.new_name()):
        os.mkfifo(folder / name)
    for name in ("photos", sockets.new_name()):
        (folder / name).mkdir()
    dead_socket(folder / "agent.sock")
    dead_socket(folder / "agent.stream", socket.SOCK_STREAM)
    for name in ("link", sockets.new_name()):
        (folder / name).symlink_to(folder / "agent.sock")
    for entry in folder.iterdir():
        os.utime(entry, (0, 0), follow_symlinks=False)
    return names(folder)


def names(folder: Path) -> list[str]:
    """What lies there."""
    return sorted(entry.name for entry in folder.iterdir())


def waits_without_a_socket(make: Make, path: Path) -> None:
    """A waiter finds no folder to be reached in, keeps its place, and takes what becomes free when it asks."""
    holder, waiter = make(path), make(path)
    grant = take(holder, "a")
    connection = waiter.connection()
    assert isinstance(claim(waiter, "b", address=connection.address), ops.Queued)
    assert not connection.bound
    assert look(holder).queue[0].address == ""
    release(holder, "a", grant.fence)
    assert isinstance(waiter.execute(ops.Beat(ROOM, "b", 2)), ops.Granted)
    release(waiter, "b", take(waiter, "b").fence)
    connection.close()


def waits_with_a_socket(make: Make, path: Path) -> None:
    """A waiter is woken."""
    holder, waiter = make(path), make(path)
    grant = take(holder, "a")
    connection = waiter.connection()
    assert isinstance(claim(waiter, "b", address=connection.address), ops.Queued)
    assert connection.bound
    release(holder, "a", grant.fence)
    assert connection.next_push(30) is not None


# ---------------------------------------------------------------- the folder of sockets


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path, make: Make) -> None:
    """Nothing is made in the folder that it leads to, and nothing removed, not even what looks like one of ours."""
    victim = tmp_path / "victim"
    treasure(victim)
    dead_socket(victim / sockets.new_name())
    before = names(victim)
    (tmp_path / "jobs.db.wake").symlink_to(victim)
    waits_without_a_socket(make, tmp_path / "jobs.db")
    assert names(victim) == before


def test_a_link_that_leads_nowhere_makes_nothing(tmp_path: Path, make: Make) -> None:
    """The folder that it names is not made."""
    (tmp_path / "jobs.db.wake").symlink_to(tmp_path / "absent")
    waits_without_a_socket(make, tmp_path / "jobs.db")
    assert not (tmp_path / "absent").exists()


def test_only_our_sockets_are_swept(tmp_path: Path, make: Make) -> None:
    """Files, pipes, folders, links and sockets of other programs stay in our own folder, whatever they are called."""
    home = tmp_path / "jobs.db.wake"
    home.mkdir(mode=0o700)
    before = treasure(home)
    dead_socket(home / sockets.new_name())
    waits_with_a_socket(make, tmp_path / "jobs.db")
    for store in (make(tmp_path / "jobs.db"), make(tmp_path / "jobs.db")):
        look(store)
        store.close()
    living = {name for name in names(home) if name not in before}
    assert set(before) <= set(names(home))
    assert len(living) == 1, "the waiter's; that of the killed process is gone"


def test_a_mailbox_removes_its_own_socket_alone(tmp_path: Path, make: Make) -> None:
    """Somebody put a file in its place: that stays."""
    store = make(tmp_path / "jobs.db")
    take(store, "a")
    connection = store.connection()
    claim(store, "b", address=connection.address)
    mine = tmp_path / "jobs.db.wake" / connection.address
    mine.unlink()
    mine.write_text("dear diary")
    connection.close()
    assert mine.read_text() == "dear diary"


def test_the_folder_of_another_user(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may be somebody who waits for us to tidy up there: it is neither used nor swept."""
    take(make(tmp_path / "jobs.db"), "x", ttl_ms=1)
    home = tmp_path / "jobs.db.wake"
    home.mkdir(mode=0o700)
    dead_socket(home / sockets.new_name())
    before = names(home)
    strange(home, monkeypatch)
    if not ROOT:
        monkeypatch.setattr(sockets.SocketFolder, "_database", lambda folder: None)  # it is "another user's" as well
    assert not make(tmp_path / "jobs.db").connection().bind()
    make(tmp_path / "jobs.db")._folder.sweep()
    assert names(home) == before


@pytest.mark.parametrize(
    ("mode", "database", "used"),
    [
        (0o700, 0o600, True),
        (0o755, 0o600, True),
        (0o702, 0o600, False),
        (0o1777, 0o666, False),
        (0o770, 0o600, False),
        (0o770, 0o660, True),
        (0o1770, 0o660, True),
    ],
)
def test_who_may_write_into_the_folder(tmp_path: Path, make: Make, mode: int, database: int, used: bool) -> None:
    """Never everybody; the group only where it may write the database."""
    path, home = tmp_path / "jobs.db", tmp_path / "jobs.db.wake"
    home.mkdir()
    home.chmod(mode)
    dead_socket(home / sockets.new_name())
    path.touch()
    path.chmod(database)
    if used:
        waits_with_a_socket(make, path)
        assert len(names(home)) == 1
    else:
        waits_without_a_socket(make, path)
        assert len(names(home)) == 1, "not even what looks like ours is removed"
    assert stat.S_IMODE(home.stat().st_mode) == mode


@pytest.mark.parametrize("moment", ["lstat", "open", "fstat", "scandir", "unlink"])
@pytest.mark.parametrize("use", ["sweep", "remove", "bind", "send"])
def test_the_folder_is_exchanged_between_look_and_use(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, moment: str, use: str
) -> None:
    """For a link, at the worst moment: what happens then happens in the folder that we looked at, or not at all."""
    path, home, victim = tmp_path / "jobs.db", tmp_path / "jobs.db.wake", tmp_path / "victim"
    name = sockets.new_name()
    for one in (home, victim):
        one.mkdir(mode=0o700)
        dead_socket(one / name)
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    push = PUSH._replace(address=sockets.new_name())
    bind(heard, victim / push.address)
    heard.setblocking(False)
    look(make(path))
    dead_socket(home / name) if not (home / name).exists() else None
    before = names(victim)
    folder = make(path)._folder
    real = getattr(os, moment)

    def exchange(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(os, moment, real)
        home.rename(tmp_path / "away")
        home.symlink_to(victim)
        return real(*arguments, **options)

    monkeypatch.setattr(os, moment, exchange)
    if use == "bind":
        with suppress(NotADirectoryError):
            folder.bind(sockets.new_name()).close()
    elif use == "sweep":
        folder.sweep()
    elif use == "remove":
        folder.remove(name)
    else:
        folder.send(push)
    assert names(victim) == before
    with pytest.raises(BlockingIOError):
        heard.recv(1)
    heard.close()


@pytest.mark.parametrize("kind", ["path", "link"])
def test_an_address_leads_to_sockets_of_ours_alone(tmp_path: Path, make: Make, kind: str) -> None:
    """Whoever writes the database, or into the folder, cannot have us talk to another program's socket."""
    path = tmp_path / "jobs.db"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        bind(stranger, tmp_path / "other.sock")
        stranger.setblocking(False)
        store = make(path)
        take(store, "holder", ttl_ms=10_000)
        assert isinstance(claim(store, "x", address=store.connection().address), ops.Queued)  # the folder is there
        store.execute(ops.Withdraw(ROOM, "x"))
        address = "../other.sock" if kind == "path" else sockets.new_name()
        if kind == "link":
            (tmp_path / "jobs.db.wake" / address).symlink_to(tmp_path / "other.sock")
        assert isinstance(claim(store, "b", address=address), ops.Queued)
        assert not store._folder.alive(address)
        store._folder.send(PUSH._replace(address=address))
        release(store, "holder", take(store, "holder").fence)
        with pytest.raises(BlockingIOError):
            stranger.recv(1)


def test_only_the_new_socket_is_opened_to_others(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of the folder could put a second name of another socket of ours in its place, between making and
    opening: that one keeps its mode."""
    path, home, private = tmp_path / "jobs.db", tmp_path / "jobs.db.wake", tmp_path / "private.sock"
    path.touch()
    path.chmod(0o660)
    home.mkdir()
    home.chmod(0o1770)
    dead_socket(private)
    private.chmod(0o600)
    pinned = sockets._pinned

    def exchange(folder: int, name: str) -> int:
        (home / name).unlink()
        (home / name).hardlink_to(private)
        return pinned(folder, name)

    monkeypatch.setattr(sockets, "_pinned", exchange)
    make(path)._folder.bind(sockets.new_name()).close()
    assert stat.S_IMODE(private.lstat().st_mode) == 0o600


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("database", [0o600, 0o660])
def test_the_umask_changes_nothing(tmp_path: Path, make: Make, umask: int, database: int) -> None:
    """Files and folders have the modes that we want, and wake-ups work, under every umask."""
    path = tmp_path / "jobs.db"
    if database != 0o600:
        path.touch()
        path.chmod(database)
    before = os.umask(umask)
    try:
        waits_with_a_socket(make, path)
        results = SQLiteResultStore(f"{path}-results")
        results.create()
        modes = {one.name: stat.S_IMODE(one.lstat().st_mode) for one in tmp_path.iterdir()}
        results.close()
    finally:
        os.umask(before)
    assert modes.pop("jobs.db.wake") == (0o700 if database == 0o600 else 0o1770)
    assert {mode for name, mode in modes.items() if "-results" in name} == {0o600}
    assert {mode for name, mode in modes.items() if "-results" not in name} == {database}


# ---------------------------------------------------------------- the database


def refused(path: Path, match: str) -> None:
    """By the store, and by a result store at that path."""
    store, results = SQLiteStore(str(path)), SQLiteResultStore(path)
    with pytest.raises(StoreUnavailable, match=match):
        look(store)
    with pytest.raises(StoreUnavailable, match=match):
        results.create()
    store.close()
    results.close()


def test_a_dangling_link_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it names is not made: it could be anywhere that we may write."""
    link = tmp_path / "jobs.db"
    link.symlink_to(tmp_path / "elsewhere")
    strange(link, monkeypatch)
    refused(link, "symbolic link of another user")
    assert names(tmp_path) == ["jobs.db"]


def test_a_link_of_another_user_to_a_file_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not made a database, although it is empty."""
    target = tmp_path / "mine" if ROOT else Path("/etc/passwd")
    if ROOT:
        target.touch()
    before = target.read_bytes()
    for step, end in (("jobs.db", tmp_path / "step"), ("step", target)):
        (tmp_path / step).symlink_to(end)
    strange(tmp_path / "step", monkeypatch)
    refused(tmp_path / "jobs.db", "symbolic link of another user")
    assert target.read_bytes() == before


@pytest.mark.parametrize("dangling", [False, True])
def test_links_of_ours_are_followed(tmp_path: Path, make: Make, dangling: bool) -> None:
    """Both paths are one database."""
    link, target = tmp_path / "jobs.db", tmp_path / "target.db"
    link.symlink_to("target.db")
    if not dangling:
        take(make(target), "a")
        assert look(make(link)).holders[0].owner == "a"
    else:
        take(make(link), "a")
        assert look(make(target)).holders[0].owner == "a"


def test_a_link_of_the_owner_of_the_file_is_followed(tmp_path: Path, make: Make) -> None:
    """Root over the database of a user, who keeps it elsewhere."""
    link, target = tmp_path / "jobs.db", tmp_path / "target.db"
    target.touch()
    link.symlink_to(target)
    for one in (link, target):
        os.chown(one, ALICE, TEAM, follow_symlinks=False)
    take(make(link), "a")


@pytest.fixture
def sticky(tmp_path: Path) -> Iterator[Path]:
    """A folder where everybody may make files, as /tmp: root makes one, and others use that one itself."""
    made = tmp_path / "tmp" if ROOT else Path(tempfile.mkdtemp(prefix="leasehold-"))
    made.mkdir(exist_ok=True)
    made.chmod(0o1777)
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("name", ["jobs.db", "deep/down/jobs.db"])
def test_a_link_of_another_user_on_the_way(
    tmp_path: Path, sticky: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where everybody may make one: it could lead into any folder of ours. Nothing is made there."""
    victim = tmp_path / "victim"
    (victim / name).parent.mkdir(parents=True)
    link = sticky / "app" if ROOT else Path(f"/tmp/leasehold-{sockets.new_name()}")
    link.symlink_to(victim)
    try:
        strange(link, monkeypatch)
        refused(link / name, "is reached by a symbolic link of another user")
        assert names((victim / name).parent) == []
    finally:
        link.unlink()


@pytest.mark.parametrize("whose", ["ours", "the folder's owner", "in a folder of others"])
def test_other_links_on_the_way_are_followed(tmp_path: Path, make: Make, whose: str) -> None:
    """Those of ours, and those of whoever may decide what lies there."""
    place, folder = tmp_path / "place", tmp_path / "real" / "folder"
    place.mkdir()
    folder.mkdir(parents=True)
    (place / "app").symlink_to("../real/folder")
    if whose != "ours":
        os.chown(place / "app", ALICE, TEAM, follow_symlinks=False)
    if whose == "the folder's owner":
        os.chown(place, ALICE, TEAM)
    place.chmod(0o755 if whose == "in a folder of others" else 0o1777)
    take(make(place / "app" / "jobs.db"), "a")
    assert look(make(folder / "jobs.db")).holders[0].owner == "a"


@pytest.mark.parametrize("moment", ["stat", "lstat", "mknod", "access"])
def test_a_link_that_comes_after_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Whoever owns the folder exchanges its database for a link while we look at it: what that names is not made."""
    home = tmp_path / "home"
    home.mkdir()
    path, target = home / "jobs.db", tmp_path / "target"
    path.touch(mode=0o600)
    for one in (path, home):
        strange(one, monkeypatch)
    real = getattr(os, moment)

    def exchange(*arguments: Any, **options: Any) -> Any:
        try:
            return real(*arguments, **options)
        finally:
            if str(arguments[0]) == str(path):
                monkeypatch.setattr(os, moment, real)
                path.unlink()
                path.symlink_to(target)
                if ROOT:
                    os.chown(path, ALICE, ALICE, follow_symlinks=False)

    store = SQLiteStore(str(path))
    monkeypatch.setattr(os, moment, exchange)
    with pytest.raises(StoreUnavailable):
        store.execute(ops.Inspect(ROOM, budget_ms=100))
    store.close()
    assert path.is_symlink() and not target.exists()


@pytest.mark.parametrize("kind", ["store", "results"])
def test_a_link_that_is_there_while_sqlite_opens(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """And gone afterwards: the file that it led to is not made a database, and the right one is."""
    from leasehold.patterns.results import sqlite

    path, away, target = tmp_path / "jobs.db", tmp_path / "away", tmp_path / "target"
    path.touch(mode=0o600)
    target.touch(mode=0o600)
    real = stdlib.sqlite3.connect

    def exchange(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(stdlib.sqlite3, "connect", real)
        path.rename(away)
        path.symlink_to(target)
        try:
            return real(*arguments, **options)
        finally:
            path.unlink()
            away.rename(path)

    monkeypatch.setattr(stdlib.sqlite3, "connect", exchange)
    if kind == "store":
        take(make(path), "a")
    else:
        results = SQLiteResultStore(path)
        results.create()
        results.close()
        sqlite.open_results(str(path), "leasehold_results").close()
    assert target.read_bytes() == b"" and path.stat().st_size > 0


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_second_name(tmp_path: Path, make: Make, suffix: str) -> None:
    """Each name of a database has its own log: two processes would hold one lock. What lies beside it could be a second
    name of any file."""
    path = tmp_path / "jobs.db"
    take(make(path), "a")
    (tmp_path / "second").hardlink_to(f"{path}{suffix}")
    for name in ("jobs.db", "second") if not suffix else ("jobs.db",):
        refused(tmp_path / name, "has a second name, a hard link")
    (tmp_path / "second").unlink()
    assert look(make(path)).holders[0].owner == "a"


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_file_of_roots_beside_the_database_of_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """SQLite gives what lies beside a database to the owner of that, when it is run by root: the user could have put it
    there to get it."""
    path, odd = tmp_path / "jobs.db", tmp_path / f"jobs.db{suffix}"
    path.touch(mode=0o600)
    odd.write_text("secret")
    seen = os.lstat

    def as_root_sees_it(name: Any, **options: Any) -> os.stat_result:
        found = seen(name, **options)
        owner = {str(path): 12_001, str(odd): 0}.get(str(name), found.st_uid)
        return os.stat_result((*found[:4], owner, *found[5:]))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "lstat", as_root_sees_it)
    refused(path, "is not root's, but what lies beside it")
    assert odd.read_text() == "secret"


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "link"])
def test_what_is_no_file(tmp_path: Path, suffix: str, kind: str) -> None:
    """In place of the database, or of what SQLite keeps beside it: refused before SQLite sees it."""
    path, target = tmp_path / "jobs.db", tmp_path / "target"
    odd = Path(f"{path}{suffix}")
    target.write_text("dear diary")
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "socket":
        dead_socket(odd)
    elif suffix:
        odd.symlink_to(target)
    else:
        odd.symlink_to("/dev/null")
    refused(path, "is no regular file")
    assert target.read_text() == "dear diary"
    assert odd.lstat()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_another_users_file_where_everybody_may_make_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """As in /tmp: somebody who knows the name may have made it first, with a content of his choice."""
    shared = Path("/tmp")  # the place itself; root makes one like it
    if ROOT:
        shared = tmp_path / "tmp"
        shared.mkdir()
        shared.chmod(0o1777)
    path = shared / f"leasehold-{sockets.new_name()}.db"
    odd = Path(f"{path}{suffix}")
    try:
        store = SQLiteStore(str(path))
        take(store, "a")  # our own there is none of these
        store.close()
        odd.touch()
        odd.chmod(0o666)
        strange(odd, monkeypatch)
        refused(path, "is another user's")
    finally:
        for one in shared.glob(f"{path.name}*"):
            one.unlink()


@pytest.mark.parametrize("fault", ["open to all", "another's"])
def test_a_state_folder_that_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Nobody has named this file: it must not be one that somebody else has prepared."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state = tmp_path / "leasehold"
    state.mkdir(mode=0o700)
    if fault == "open to all":
        state.chmod(0o777)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: BOB + 7)  # root may use another's
        if ROOT:
            os.chown(state, ALICE, ALICE)
    refused(Path(file.default_path()), "state folder, and that is another user's")
    assert names(state) == []


# ---------------------------------------------------------------- several users

MAKE = """
granted = claim('a')
print(type(granted).__name__)
store.execute(ops.Release('report:42', 'a', granted.fence))
"""
LOOK = "print(type(store.execute(ops.Inspect('report:42'))).__name__)"
# Claims, listens, is told whose socket is the other's, wakes that one, and waits to be woken by it.
MEET = """
os.umask(0o077)
me = sys.argv[3]
box = store.connection()
print(type(claim(me, ttl_ms=600_000)).__name__, box.bind(), flush=True)
print(box.address, flush=True)
other = input()
print(store._folder.alive(other), flush=True)
store._folder.send(ops.Push(other, "granted", "report:42", me, 7, 1, 100))
print(box.next_push(50).owner, flush=True)
store.close()
"""


def told(process: subprocess.Popen[str], address: str) -> str:
    """Tell it the address of the other; what it says then."""
    assert process.stdin is not None
    process.stdin.write(f"{address}\n")
    process.stdin.flush()
    return next_line(process)


def owners(folder: Path) -> set[int]:
    """Of all that lies there, with the folder of sockets and without what is in it."""
    return {one.lstat().st_uid for one in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("first", ["user", "us"])
def test_root_over_the_database_of_a_user(folder: Path, first: str) -> None:
    """Whoever came first: all that lies there is the user's, who is woken by us and goes on when we are gone."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, ALICE, TEAM)
    path = home / "jobs.db"
    if first == "user":
        assert run(BECOME + MAKE, path, f"{ALICE},{TEAM}") == "Granted"
    store = SQLiteStore(str(path))
    take(store, "us", ttl_ms=600_000)
    connection = store.connection()
    assert connection.bind()
    assert names(home) == ["jobs.db", "jobs.db-shm", "jobs.db-wal", "jobs.db.wake"]
    assert owners(home) == {ALICE}
    with start(BECOME + MEET, path, f"{ALICE},{TEAM}", "user") as user:
        assert next_line(user) == "Queued True"
        address = next_line(user)
        assert told(user, connection.address) == "True"
        push = connection.next_push(50)
        assert push is not None and push.owner == "user"
        assert store._folder.alive(address)
        store._folder.send(PUSH._replace(address=address, owner="us"))
        assert next_line(user) == "us"
    store.close()
    assert owners(home) == {ALICE}
    assert names(home / "jobs.db.wake") == []
    assert run(BECOME + LOOK, path, f"{ALICE},{TEAM}") == "View"


RESULT_STORES = "from leasehold.patterns.results.sqlite import SQLiteResultStore"  # while it can be read
PLANT = """
from leasehold.stores.sqlite import stdlib
real = stdlib.sqlite3.connect
def late(*arguments, **options):
    stdlib.sqlite3.connect = real
    os.rename(sys.argv[3], sys.argv[1] + "-wal")
    if sys.argv[4] == "alone":
        us = os.geteuid()
        os.geteuid = lambda: us + 1
    return real(*arguments, **options)
stdlib.sqlite3.connect = late
try:
    claim("a") if sys.argv[5] == "store" else SQLiteResultStore(sys.argv[1]).create()
except LeaseholdError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["store", "results"])
def test_a_log_of_another_user_that_comes_after_the_look(folder: Path, kind: str) -> None:
    """Where everybody may make files SQLite takes it for its own, and its owner could write what we read."""
    shared = folder if ROOT else Path("/tmp")
    if ROOT:
        shared.chmod(0o1777)
    (folder / "mine").mkdir()
    planted, path = folder / "mine" / "planted", shared / f"leasehold-{sockets.new_name()}.db"
    planted.touch()
    planted.chmod(0o666)
    os.chown(planted, BOB, TEAM)
    os.chown(folder / "mine", ALICE, TEAM)
    try:
        users = "many" if ROOT else "alone"
        said = run(RESULT_STORES + BECOME + PLANT, path, f"{ALICE},{TEAM}", planted, users, kind)
    finally:
        for one in shared.glob(f"{path.name}*"):
            one.unlink()
    assert "is another user's" in said


@pytest.mark.slow
def test_root_makes_the_state_folder_of_a_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with sudo that keeps HOME: the user finds a store that it can use."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, ALICE, TEAM)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    path = Path(file.default_path())
    store = SQLiteStore(str(path))
    take(store, "a", ttl_ms=50)
    store.close()
    assert {one.lstat().st_uid for one in home.rglob("*")} == {ALICE}
    assert {stat.S_IMODE(one.lstat().st_mode) for one in home.rglob("*")} == {0o700, 0o600}
    assert run(BECOME + LOOK, path, f"{ALICE},{TEAM}") == "View"


def test_what_root_gives_away_is_new_and_empty(tmp_path: Path) -> None:
    """Whoever exchanges it in between gets nothing that was there before."""
    from leasehold.stores.sqlite.file import give

    full, written, twice = tmp_path / "full", tmp_path / "written", tmp_path / "twice"
    full.mkdir(mode=0o700)
    (full / "secret").touch()
    written.write_text("secret")
    twice.touch(mode=0o600)
    (tmp_path / "other").hardlink_to(twice)
    (tmp_path / "link").symlink_to(twice)
    for one in (full, written, twice, tmp_path / "link"):
        before = one.stat()
        give(str(one), ALICE, TEAM, 0o777)
        assert (one.stat().st_uid, one.stat().st_mode) == (before.st_uid, before.st_mode)


@pytest.mark.slow
def test_two_users_share_a_database_by_their_group(folder: Path) -> None:
    """By the recipe of the page: both hold and wait, each is woken by the other, and removes its own sockets alone."""
    place = folder / "jobs"
    for command in (
        ["install", "-d", "-g", TEAM, "-m", "2770", place],
        ["install", "-g", TEAM, "-m", "660", "/dev/null", place / "jobs.db"],
        ["install", "-d", "-g", TEAM, "-m", "1770", place / "jobs.db.wake"],
    ):
        subprocess.run([str(word) for word in command], check=True)
    path, home = place / "jobs.db", place / "jobs.db.wake"
    groups = {user: f"{user},{user if ROOT else TEAM},{TEAM}" for user in (ALICE, BOB)}
    with (
        start(BECOME + MEET, path, groups[ALICE], "alice") as alice,
        start(BECOME + MEET, path, groups[BOB], "bob") as bob,
    ):
        assert {next_line(alice), next_line(bob)} == {"Granted True", "Queued True"}
        addresses = next_line(alice), next_line(bob)
        assert told(alice, addresses[1]) == "True"
        assert told(bob, addresses[0]) == "True"
        assert (next_line(alice), next_line(bob)) == ("bob", "alice")
    assert names(home) == []
    left = {}
    for user in (ALICE, BOB):
        left[user] = sockets.new_name()
        dead_socket(home / left[user])
        os.chown(home / left[user], user, TEAM)
    assert run(BECOME + LOOK, path, groups[BOB]) == "View"
    assert names(home) == ([left[ALICE]] if ROOT else [])


@pytest.mark.slow
def test_a_user_who_may_not_write_it(folder: Path) -> None:
    """A database of mode 0600 is its owner's alone, and a second user is told; where all are one, it is shared."""
    place = folder / "jobs"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    assert run(BECOME + MAKE, place / "jobs.db", f"{ALICE},{TEAM}") == "Granted"
    code = """
try:
    print(type(claim("b")).__name__)
except LeaseholdError as error:
    print(error)
"""
    said = run(BECOME + code, place / "jobs.db", f"{BOB},{TEAM}")
    assert ("may not be opened by this user" in said) is ROOT


@pytest.mark.parametrize(("age", "error"), [(0, TryAgain), (5, StoreUnavailable)])
def test_a_log_that_was_just_made_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: int, error: type[Exception]
) -> None:
    """SQLite makes its log for one user and gives it to the group a moment later: a second user tries again. What stays
    closed is an error."""
    path = tmp_path / "leases.db"
    path.touch()
    (tmp_path / "leases.db-wal").touch()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + age)
    refused = stdlib.sqlite3.OperationalError("unable to open database file")
    refused.sqlite_errorname = "SQLITE_CANTOPEN"
    assert isinstance(file.why(str(path), refused), error)
