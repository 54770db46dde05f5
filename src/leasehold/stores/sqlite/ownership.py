"""Whose files these are: what a stranger may have put in our way is refused, and what root makes is given to its user.

A look and a later use are two moments, and whoever may write in a folder can exchange what lies there in between. So
what is given away is held by a descriptor, and only while it is new and empty.
"""

from __future__ import annotations

import errno
import os
import stat

from leasehold.stores.sqlite.failures import unavailable
from leasehold.stores.sqlite.stdlib import suppress

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database
MOST_LINKS = 40  # as in the kernel

FOREIGN_LINK = "is a symbolic link of another user, who can lead it anywhere. Give the path that it leads to"
FOREIGN_STEP = (
    "is reached by a symbolic link of another user, in a folder where everybody may make files: it can be led "
    "anywhere. Give the path that it leads to"
)
FOREIGN_FILE = (
    "lies in a folder where everybody may make files, and it, or what SQLite keeps beside it, is another user's. "
    "Choose a folder that only its users can write to"
)
SECOND_NAME = (
    "has a second name, a hard link, or what lies beside it as -wal, -shm or -journal has one. Each name of a database "
    "has a log of its own, so that two processes would not exclude each other. Remove the other name"
)
OF_ROOT = (
    "is not root's, but what lies beside it as -wal, -shm or -journal is: SQLite would give that to the owner of the "
    "database. Look where it comes from, and move it away"
)
NO_FILE = "is no regular file, or what lies beside it as -wal, -shm or -journal is none. Choose another path"
FOREIGN_FOLDER = (
    "lies in the state folder, and that is another user's, or everybody may write there. Make it yours alone, set "
    "XDG_STATE_HOME, or give a path"
)


def resolve(path: str) -> str:
    """The absolute path without links, each of which was judged: to resolve them once more, later, would be another
    look, at what may be another link by then.

    A link at ``path`` is ours, or root's, or that of the owner of the file: else it could have us make or change any
    file that we may write. On the way there it may also belong to the owner of the folder that it lies in, unless
    everybody may make one there: Linux has the same rule, and not every machine uses it (fs.protected_symlinks)."""
    real, steps, links = "/", path.split("/")[::-1], 0
    doubted: list[tuple[int, str]] = []  # whose link it is, and what to say of it
    while steps:
        place = os.path.normpath(os.path.join(real, steps.pop()))  # `real` has no links in it: `..` is what it seems
        found = _seen(place)
        if found is None or not stat.S_ISLNK(found.st_mode):
            real = place
            continue
        if not any(steps):
            doubted.append((found.st_uid, FOREIGN_LINK))
        elif _is_strange(found, os.stat(real)):
            doubted.append((found.st_uid, FOREIGN_STEP))
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink(place)
        real = "/" if target.startswith("/") else real
        steps += target.split("/")[::-1]
    file = _seen(real)
    for owner, doubt in doubted:
        if owner not in (os.geteuid(), 0) and (file is None or owner != file.st_uid):
            raise unavailable(path, doubt)
    return real


def _is_strange(found: os.stat_result, folder: os.stat_result) -> bool:
    """Somebody who is not its owner has made it in a folder where everybody may make files, as in /tmp."""
    return _open_to_all(folder) and found.st_uid != folder.st_uid


def _open_to_all(folder: os.stat_result) -> bool:
    """Everybody may make files there, and nobody may remove another's."""
    return bool(folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH)


def check_files(real: str) -> None:
    """Regular files with one name each. Where everybody may make files they are ours or those of the folder's owner:
    Linux has the same rule, and not every machine uses it (fs.protected_regular). When we are root, SQLite gives what
    lies beside the database to the owner of the database: it must not be a file of root's that somebody put there."""
    folder, database, us = os.stat(os.path.dirname(real)), os.lstat(real), os.geteuid()
    for found in (database, *[_seen(real + suffix) for suffix in BESIDE]):
        if found is None:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise unavailable(real, NO_FILE)
        if _open_to_all(folder) and found.st_uid not in (us, folder.st_uid):
            raise unavailable(real, FOREIGN_FILE)
        if found.st_nlink > 1:
            raise unavailable(real, SECOND_NAME)
        given_away = us == 0 and found.st_uid == 0 and database.st_uid != 0
        if given_away and found.st_size > 0:  # an empty one is being made by another process of root's
            raise unavailable(real, OF_ROOT)


def check_state_folder(path: str) -> None:
    """The folder of a file that nobody has named: root alone may use another user's."""
    found = os.stat(os.path.dirname(path))
    us = os.geteuid()
    if (us != 0 and found.st_uid not in (us, 0)) or found.st_mode & stat.S_IWOTH:
        raise unavailable(path, FOREIGN_FOLDER)


def give_to_owner_of_folder(path: str) -> None:
    """What root makes in a user's folder is that user's, as SQLite has it with what it keeps beside a database: else
    one call of root locks the user out."""
    folder = os.stat(os.path.dirname(path))
    if os.geteuid() == 0 and folder.st_uid != 0:
        give(path, folder.st_uid, folder.st_gid)


def give(path: str, user: int, group: int, mode: int | None = None) -> None:
    """Hand over what we have just made; it stays as it is where we may not, or where it is not the new one any more."""
    with suppress(OSError):
        made = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _is_new(made):
                os.chown(f"/proc/self/fd/{made}", user, group)
                if mode is not None:
                    os.chmod(f"/proc/self/fd/{made}", mode)
        finally:
            os.close(made)


def _is_new(made: int) -> bool:
    found = os.fstat(made)
    if found.st_uid != os.geteuid():
        return False
    if stat.S_ISDIR(found.st_mode):
        return not os.listdir(f"/proc/self/fd/{made}")
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size == 0


def _seen(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
