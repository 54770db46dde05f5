"""Watches of etcd: what is watched, and the one thread that reads it while there is something to watch."""

from __future__ import annotations

import threading

from leasehold.stores.etcd.gateway import Gateway
from leasehold.stores.etcd.streams import Event, Reader, Watch

__all__ = ["Event", "Watch", "Watches"]


class Watches:
    """All watches of one process. From any thread."""

    def __init__(self, gateway: Gateway, probe_key: str) -> None:
        self._gateway = gateway
        self._probe_key = probe_key
        self._lock = threading.RLock()
        self._reader: Reader | None = None

    def add(self, watch: Watch, known: bool = True) -> None:
        """``known``: what it is to begin behind. Otherwise it fires soon, and the caller looks again."""
        with self._lock:
            if self._reader is None or not self._reader.add(watch, known):
                reader = Reader(self._gateway, self._probe_key)
                reader.start()
                self._reader = reader  # not before: an interrupt leaves none here that nobody runs
                reader.add(watch, known)

    def fire_all(self) -> None:
        """Everybody looks again."""
        reader = self._reader
        if reader is not None:
            reader.fire_all()

    def close(self) -> None:
        """Everybody looks again, and the thread has ended."""
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def forked(self) -> None:
        """In a child."""
        reader = self._reader
        self._lock = threading.RLock()
        self._reader = None
        if reader is not None:
            reader.forked()
