"""Whose files these are: what a stranger may have put in our way is refused, and what root makes is given to its user.

A look and a later use are two moments, and whoever may write in a folder can exchange what lies there in between. So
what is given away is held by a descriptor, and only while it is new and empty.
"""

from __future__ import annotations

import os
import stat

from leasehold.stores.sqlite.driver import suppress
from leasehold.stores.sqlite.failures import unavailable

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database
MOST_LINKS = 40  # as in the kernel

FOREIGN_LINK = "is a symbolic link of another user, who can lead it anywhere. Give the path that it leads to"
FOREIGN_FILE = (
    "lies in a folder where everybody may make files, and it, or what SQLite keeps beside it, is another user's. "
    "Choose a folder that only its users can write to"
)
NO_FILE = "is no regular file, or what lies beside it as -wal, -shm or -journal is none. Choose another path"
FOREIGN_FOLDER = (
    "lies in the state folder, and that is another user's, or everybody may write there. Make it yours alone, set "
    "XDG_STATE_HOME, or give a path"
)


def check_links(path: str) -> None:
    """A link at ``path`` is ours, or root's, or that of the owner of the file: else it could have us make or change any
    file that we may write."""
    trusted = {os.geteuid(), 0}
    with suppress(OSError):
        trusted.add(os.stat(path).st_uid)
    link = path
    for _ in range(MOST_LINKS):
        found = _seen(link)
        if found is None or not stat.S_ISLNK(found.st_mode):
            return
        if found.st_uid not in trusted:
            raise unavailable(path, FOREIGN_LINK)
        link = os.path.join(os.path.dirname(link), os.readlink(link))


def check_files(real: str) -> None:
    """Regular files. Where everybody may make files and nobody may remove another's, as in /tmp, they are ours or those
    of the folder's owner: Linux has the same rule, and not every machine uses it (fs.protected_regular)."""
    folder = os.stat(os.path.dirname(real))
    open_to_all = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    for name in (real, *(real + suffix for suffix in BESIDE)):
        found = _seen(name)
        if found is None:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise unavailable(real, NO_FILE)
        if open_to_all and found.st_uid not in (os.geteuid(), folder.st_uid):
            raise unavailable(real, FOREIGN_FILE)


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
