"""The embedded store: the file, who may read and write it, and the file system that it lies on."""

from __future__ import annotations

import os
import stat
from typing import Any

from leasehold.doctor.report import Finding, note, ok, problem, unseen, warning
from leasehold.errors import StoreUnavailable
from leasehold.stores.sqlite import file
from leasehold.stores.sqlite.stdlib import sqlite3

PASSING = ("tmpfs", "ramfs")
LAYERED = ("overlay", "aufs", "fuse-overlayfs", "fuse.fuse-overlayfs")
LEAST_FREE = 64 * 1024 * 1024  # bytes
LARGE_LOG = 64 * 1024 * 1024
NO_DATABASE = problem(
    "file",
    "it is no database",
    "The store refuses it, and leaves it as it is",
    "Choose the path of a new file; or move this one away, if a database that was damaged is all that it can be",
)
OWNERS = "The file holds owner tokens: who reads one can release or renew that lease, who writes it decides who holds"


def examine(path: str) -> list[Finding]:
    try:
        real = file.resolve(path)
        found = os.stat(real)
    except (OSError, StoreUnavailable) as error:
        return [_missing(path, str(error))]
    if stat.S_ISDIR(found.st_mode):
        return [_missing(path, "it is a folder")]
    return [
        one.at(real) for one in (_reach(), *_file_system(real), *_mode(real, found), *_space(real), *_contents(real))
    ]


def _missing(path: str, why: str) -> Finding:
    return problem(
        "reachable",
        f"it cannot be examined: {why}",
        "Every process on this host needs that file",
        "Choose the path of a file that this user may write",
    ).at(path)


def _reach() -> Finding:
    return note(
        "store",
        "it coordinates the processes of this host alone",
        "A kill -9 of any process loses nothing; a power cut loses the last commits, and every lease ends with "
        "the boot anyway",
        "For several hosts use a store with a server: LEASEHOLD_URL=redis://host",
    )


def _file_system(real: str) -> list[Finding]:
    point, kind = file.mount(real)
    if not kind:
        return [unseen("file system", "the file system", "The kernel hides its mounts")]
    if file.networked(kind):
        return [
            problem(
                "file system",
                f"it lies on a network file system ({kind})",
                "Locks and clocks of several machines meet there: two can hold, so the store refuses it",
                "Choose a local path, or a store with a server",
            )
        ]
    if kind in LAYERED:
        return [
            warning(
                "file system",
                f"it lies in the layer of a container ({kind})",
                "Another container has a file of its "
                "own at this path and is not excluded; the file is gone with the container",
                "Mount one folder of the host into all of them, or use a store with a server",
            )
        ]
    gone = " It is empty after a boot, as leases are anyway" if kind in PASSING else ""
    return [ok("file system", f"it lies on {kind}, mounted at {point}", gone.strip())]


def _mode(real: str, found: os.stat_result) -> list[Finding]:
    mode, folder = stat.S_IMODE(found.st_mode), os.stat(os.path.dirname(real))
    text = f"its mode is {mode:04o}, its owner has the id {found.st_uid}"
    fix = f"chmod 600 {real}; for several users a group of their own: chmod 660, in a folder with mode 2770"
    results = _lacking(real, text)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        may = "write" if mode & stat.S_IWOTH else "read"
        make = problem if mode & stat.S_IWOTH else warning
        results.append(make("permissions", f"{text}: everybody may {may} it", OWNERS, fix))
    elif not results:
        results.append(ok("permissions", text, "", fix))
    open_folder = folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
    if open_folder:
        results.append(
            problem(
                "permissions",
                "everybody may rename and remove files in its folder",
                "Who puts another file in its place splits the processes into two halves that do not "
                "exclude each other",
                f"chmod o-w {os.path.dirname(real)}",
            )
        )
    return results


def _lacking(real: str, text: str) -> list[Finding]:
    """What this user may not do there, and must."""
    file_rights = {"read": os.R_OK, "write": os.W_OK}
    missing = [name for name, right in file_rights.items() if not _may(real, right)]
    what = f"may not {' and '.join(missing)} it" if missing else ""
    if not missing and not _may(os.path.dirname(real), os.W_OK | os.X_OK):
        what = "may not make files in its folder, as SQLite must"
    if not what:
        return []
    return [
        problem(
            "permissions",
            f"{text}: this user, with the id {os.geteuid()}, {what}",
            "No lease can be taken by this user",
            "Run as its owner; or share it with a group that this user is in: mode 660, in a folder with mode 2770",
        )
    ]


def _may(place: str, rights: int) -> bool:
    return os.access(place, rights, effective_ids=True)


def _space(real: str) -> list[Finding]:
    free = os.statvfs(os.path.dirname(real))
    left = free.f_bavail * free.f_frsize
    if left < LEAST_FREE:
        return [
            problem(
                "disk",
                f"{left >> 20} MiB are free on its disk",
                "A full disk refuses claims and renewals",
                "Free some space",
            )
        ]
    log = _size(real + "-wal")
    if log > LARGE_LOG:
        return [
            warning(
                "disk",
                f"its log has {log >> 20} MiB",
                "Some process reads without an end, and keeps the log from being reused",
                "Find it: fuser on the file",
            )
        ]
    return [ok("disk", f"{left >> 20} MiB are free on its disk")]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _contents(real: str) -> list[Finding]:
    """Through SQLite, which alone may open the file."""
    try:
        connection = file.connect(real)
        try:
            mode, health = _one(connection, "PRAGMA journal_mode"), _one(connection, "PRAGMA quick_check(1)")
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
            return [NO_DATABASE]
        return [unseen("file", "its contents", str(error))]
    found = [ok("version", f"SQLite {sqlite3.sqlite_version}, journal mode {mode}")]
    if health != "ok":
        found.append(
            problem(
                "file",
                f"it is damaged: {str(health)[:100]}",
                "Claims may fail, or leases be forgotten",
                "Stop the programs, move the file away, and let a new one be made",
            )
        )
    return found


def _one(connection: Any, text: str) -> Any:
    (found,) = connection.execute(text).fetchone()
    return found
