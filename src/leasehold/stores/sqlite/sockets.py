"""Waking a waiter of another process: a datagram to its Unix socket, in a folder beside the database.

A socket without a process behind it refuses a connection, so the same folder shows which processes are gone. The path
of a socket may have 108 bytes only; every name here is reached through the folder's descriptor, however deep it lies.

A user who may write beside the database could put another folder, or a link to one, in the place of ours (trap 50). So
the folder is opened without following links, checked by its descriptor, and used through that alone. A folder that is
not trusted is not used: waiters then poll, a few times a second.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from itertools import islice

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.ops import Push
from leasehold.stores.sqlite.failures import foreign
from leasehold.stores.sqlite.file import give
from leasehold.stores.sqlite.stdlib import datagram_socket, suppress

if TYPE_CHECKING:
    import socket

SUFFIX = ".wake"
NAME_BYTES = 8
STALE_AFTER = 60.0  # seconds: a younger socket may belong to a process that is about to listen
MAX_SWEPT = 1_000
PRIVATE = 0o700
SHARED = 0o1770  # of a database that its group may write: the sticky bit keeps each user to its own sockets
FOR_ALL_WHO_ENTER = 0o666  # a socket in a folder of several users: the folder decides who reaches it
PLACE_CHARACTERS = 4  # where a holder runs; see ``place``
DIGITS = frozenset("0123456789abcdef")
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def new_name() -> str:
    """A name that was never used before: the file of a socket outlives a killed process."""
    return os.urandom(NAME_BYTES).hex()


class SocketFolder:
    """The folder in which the sockets of one database are bound. Opened when it is first needed, and again when it was
    replaced."""

    __slots__ = ("_closed", "_fd", "_file", "_lock", "_sender", "_shared", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._closed = False
        self._fd = -1
        self._file = (0, 0, 0, 0)
        self._shared = False
        self._sender: socket.socket | None = None

    def bind(self, name: str) -> socket.socket:
        """A socket that receives under this name. Raises OSError."""
        with self._lock:
            try:
                folder = self._opened()
            except FileNotFoundError:
                self._make()
                folder = self._opened()
            connection = datagram_socket()
            try:
                connection.bind(f"/proc/self/fd/{folder}/{name}")
                if self._shared:
                    self._admit_others(name)
            except BaseException:
                connection.close()
                raise
            return connection

    def listed(self, name: str) -> bool:
        """True while others can find this name: not after the folder was removed or emptied."""
        with suppress(OSError), self._lock:
            return stat.S_ISSOCK(os.lstat(name, dir_fd=self._opened()).st_mode)
        return False

    def alive(self, name: str) -> bool:
        """False only when it is certain that no process receives there: dropping a live waiter would cost its place."""
        try:
            with self._lock:
                _probe(self._opened(), name)
        except (ConnectionRefusedError, FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if foreign(error):
                raise
        return True

    def send(self, push: Push) -> None:
        """A lost push costs its receiver one beat, so nothing is retried and no error is reported."""
        try:
            with self._lock:
                target = _pinned(self._opened(), push.address)
                try:
                    if self._sender is None:
                        self._sender = datagram_socket()
                    self._sender.sendto(encode(push), f"/proc/self/fd/{target}")
                finally:
                    os.close(target)
        except OSError as error:
            if foreign(error):
                raise

    def sweep(self) -> None:
        """Remove the sockets that killed processes of this user left behind, and nothing else."""
        try:
            with self._lock, os.scandir(self._opened()) as found:
                names = [entry.name for entry in islice(found, MAX_SWEPT)]
        except OSError:
            return
        old = time.time() - STALE_AFTER
        for name in names:
            with suppress(OSError), self._lock:
                if self._is_own(name, old) and not self.alive(name):
                    os.unlink(name, dir_fd=self._opened())

    def remove(self, name: str) -> None:
        with suppress(OSError), self._lock:
            if self._is_own(name):
                os.unlink(name, dir_fd=self._opened())

    def close(self) -> None:
        with self._lock:
            self.forked()

    def forked(self) -> None:
        """Close the descriptors for good. In a child the lock may be held by a thread that does not exist there."""
        self._closed = True
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        self._close_folder()

    # ------------------------------------------------------------ the folder

    def _opened(self) -> int:
        """The descriptor of the folder that is there now. Raises OSError, also for one that is not trusted."""
        if self._closed:
            raise OSError(errno.EBADF, "closed")
        found = os.lstat(self.path)
        if self._fd < 0 or _identity(found) != self._file:
            self._close_folder()
            # A link is refused: it could lead to a folder that is full of other files.
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                self._check(os.fstat(self._fd), self._database())
            except BaseException:
                self._close_folder()
                raise
        return self._fd

    def _check(self, folder: os.stat_result, database: os.stat_result | None) -> None:
        """It must belong to us or to the owner of the database, and only users who may write the database may write
        there."""
        us = os.geteuid()
        owners = {us} if database is None else {us, database.st_uid}
        writable = 0 if database is None else database.st_mode & stat.S_IWGRP
        if folder.st_uid not in owners or folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) & ~writable:
            raise PermissionError(errno.EPERM, "this folder is not ours, or open to others")
        self._file = _identity(folder)
        self._shared = folder.st_uid != us or bool(folder.st_mode & stat.S_IWGRP)

    def _database(self) -> os.stat_result | None:
        try:
            return os.stat(self.path.removesuffix(SUFFIX))
        except OSError:
            return None

    def _make(self) -> None:
        """For the owner of the database alone, or for its group too where that may write the database. Only the owner
        makes it, or root, who gives it to the owner: no other user would trust the folder of a third one."""
        database = self._database()
        if database is not None and os.geteuid() not in (0, database.st_uid):
            return
        with suppress(FileExistsError):
            os.mkdir(self.path, mode=PRIVATE)
            if database is not None:
                mode = SHARED if database.st_mode & stat.S_IWGRP else PRIVATE
                give(self.path, database.st_uid, database.st_gid, mode)

    def _close_folder(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # ------------------------------------------------------------ what is in it

    def _admit_others(self, name: str) -> None:
        """Let every user who may enter the folder send, whatever our umask made of the socket's mode. Where all users
        may enter, it stays as it is."""
        if self._file[3] & stat.S_IXOTH:
            return
        made = _pinned(self._fd, name)
        try:
            found = os.fstat(made)  # the folder's owner could have put a second name of another socket of ours there
            if found.st_uid == os.geteuid() and found.st_nlink == 1:
                os.chmod(f"/proc/self/fd/{made}", FOR_ALL_WHO_ENTER)
        finally:
            os.close(made)

    def _is_own(self, name: str, before: float | None = None) -> bool:
        """True for a socket of our user with a name of our form; with ``before``, one from before that time."""
        if not _is_name(name):
            return False
        found = os.lstat(name, dir_fd=self._opened())
        own = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
        return own and (before is None or found.st_mtime < before)


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    return (found.st_ino, found.st_dev, found.st_uid, found.st_mode)


def _is_name(name: str) -> bool:
    """True for a name of our form. Addresses come out of the database: one with a slash could lead to any socket of
    this machine."""
    name, place = name[: 2 * NAME_BYTES], name[2 * NAME_BYTES :]
    return (
        len(name) == 2 * NAME_BYTES
        and DIGITS.issuperset(name)
        and len(place) in (0, PLACE_CHARACTERS)
        and PLAIN.issuperset(place)
    )


def _pinned(folder: int, name: str) -> int:
    """A descriptor of the socket of that name, which is then reached without its name: no link is followed."""
    if _is_name(name):
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        if stat.S_ISSOCK(os.fstat(found).st_mode):
            return found
        os.close(found)
    raise FileNotFoundError(errno.ENOENT, "no socket of ours")


def _probe(folder: int, name: str) -> None:
    target = _pinned(folder, name)
    try:
        probe = datagram_socket()
        try:
            probe.connect(f"/proc/self/fd/{target}")
        finally:
            probe.close()
    finally:
        os.close(target)


def encode(push: Push) -> bytes:
    import json

    return json.dumps(push, separators=(",", ":")).encode()


def decode(data: bytes) -> Push | None:
    """None for a datagram that is no push: every user who may write into the folder can send one."""
    import json

    try:
        address, event, resource, owner, fence, beat, remaining_ms, slots, last = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return None
    texts = all(isinstance(one, str) for one in (address, event, resource, owner))
    if not texts or not isinstance(slots, list):
        return None
    if not all(type(one) is int for one in (fence, beat, remaining_ms, last, *slots)):
        return None
    return Push(address, event, resource, owner, fence, beat, remaining_ms, tuple(slots), last)
