"""What we need of Linux, and do without elsewhere: a child that dies with us, and all that descends from it."""

from __future__ import annotations

import os

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SIGKILL = 9


def die_with(parent: int) -> None:
    """Be killed when the thread that made this process ends. Not inherited by children of ours."""
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:  # it was quicker
        os._exit(0)


def adopt_orphans() -> None:
    """Whoever descends from us and loses its parent becomes our child: nobody hides by forking twice."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value))
    except (ImportError, OSError, AttributeError):
        pass


def descendants(ancestor: int) -> list[int]:
    """The processes that descend from this one and are alive. Empty where there is no /proc."""
    try:
        parents = {int(entry): _parent(entry) for entry in os.listdir("/proc") if entry.isdigit()}
    except OSError:
        return []
    found = {ancestor}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= more
        grown = bool(more)
    return sorted(found - {ancestor})


def _parent(pid: str) -> int:
    """0 for one that is gone, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[1])
