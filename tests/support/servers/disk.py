"""The disk of a server, which a test fills. No file system is mounted for it, so no rights are needed."""

from __future__ import annotations

from tests.support.servers.preload import SharedFile, library


class Disk:
    """It has room until it is filled. Then a server can overwrite what it has, and no file can grow (``disk.c``)."""

    def __init__(self) -> None:
        self._full = SharedFile("disk", 1)

    def fill(self) -> None:
        """From now on whatever needs more room fails with ENOSPC."""
        self._full.page[0] = 1

    def free(self) -> None:
        """There is room again."""
        self._full.page[0] = 0

    def environment(self) -> dict[str, str]:
        """What a server needs to see this disk."""
        return {"LD_PRELOAD": str(library("disk")), "LEASEHOLD_DISK": str(self._full.path)}
