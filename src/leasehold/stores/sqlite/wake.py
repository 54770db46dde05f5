"""Waking a waiter of another process: a datagram to its Unix socket, in a folder beside the database.

A socket without a process behind it refuses a connection, so the same folder tells who is gone. The path of a
socket may have 108 bytes only; every name here is reached through the folder's descriptor, however deep it lies.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from itertools import islice

from leasehold.core.ops import Push
from leasehold.stores.sqlite.driver import socket, suppress
from leasehold.stores.sqlite.failures import foreign

STALE_AFTER = 60.0  # seconds: a younger socket may belong to a process that is about to listen
MAX_SWEPT = 1_000


class Folder:
    """Where the sockets of one database are bound. Opened when first needed, again when it was replaced."""

    __slots__ = ("_closed", "_fd", "_file", "_lock", "_sender", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._closed = False
        self._fd = -1
        self._file = (0, 0)
        self._sender: socket.socket | None = None

    def bind(self, name: str) -> socket.socket:
        """A socket that receives under this name. Raises OSError."""
        with self._lock:
            with suppress(FileExistsError):
                os.mkdir(self.path, mode=0o700)
            box = _datagram()
            try:
                box.bind(self._reach(name))
            except BaseException:
                box.close()
                raise
            return box

    def listed(self, name: str) -> bool:
        """Can others still find this name? Not when somebody removed the folder or emptied it."""
        return os.path.exists(os.path.join(self.path, name))

    def alive(self, name: str) -> bool:
        """False only when it is certain that nobody listens: dropping a live waiter would cost its place."""
        try:
            with self._lock:
                _knock(self._reach(name))
        except (ConnectionRefusedError, FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if foreign(error):
                raise
        return True

    def send(self, push: Push) -> None:
        """A lost hint costs its receiver one beat, so nothing is retried and nobody is told."""
        try:
            with self._lock:
                target = self._reach(push.address)
                if self._sender is None:
                    self._sender = _datagram()
                self._sender.sendto(encode(push), target)
        except OSError as error:
            if foreign(error):
                raise

    def sweep(self) -> None:
        """Remove what killed processes left behind."""
        try:
            with os.scandir(self.path) as found:
                entries = list(islice(found, MAX_SWEPT))
        except OSError:
            return
        old = time.time() - STALE_AFTER
        for entry in entries:
            with suppress(OSError):
                if entry.stat().st_mtime < old and not self.alive(entry.name):
                    os.unlink(entry.path)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(os.path.join(self.path, name))

    def close(self) -> None:
        with self._lock:
            self.forked()

    def forked(self) -> None:
        """Give back the descriptors, for ever. In a child the lock may be held by a thread that is not there."""
        self._closed = True
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _reach(self, name: str) -> str:
        """A short path to a name in the folder that stands there now."""
        if self._closed:
            raise OSError(errno.EBADF, "closed")
        found = os.stat(self.path)
        if self._fd < 0 or (found.st_ino, found.st_dev) != self._file:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            self._fd = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            opened = os.fstat(self._fd)
            self._file = (opened.st_ino, opened.st_dev)
        return f"/proc/self/fd/{self._fd}/{name}"


def _datagram() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def _knock(path: str) -> None:
    probe = _datagram()
    try:
        probe.connect(path)
    finally:
        probe.close()


def encode(push: Push) -> bytes:
    import json

    return json.dumps(push, separators=(",", ":")).encode()


def decode(data: bytes) -> Push | None:
    """None for a datagram that is no push: anybody who may write into the folder can send one."""
    import json

    try:
        address, event, resource, owner, fence, beat, remaining_ms, slots = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return None
    texts = all(isinstance(one, str) for one in (address, event, resource, owner))
    if not texts or not isinstance(slots, list):
        return None
    if not all(type(one) is int for one in (fence, beat, remaining_ms, *slots)):
        return None
    return Push(address, event, resource, owner, fence, beat, remaining_ms, tuple(slots))
