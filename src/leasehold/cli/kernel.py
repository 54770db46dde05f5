"""What we need of Linux, and do without elsewhere: a child that dies with us, and all that descends from it."""

from __future__ import annotations

import os

PR_SET_PDEATHSIG = 1
SIGKILL = 9
COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")  # what Python makes of the locale C


def die_with(parent: int) -> None:
    """Be killed when the thread that made this process ends. Not inherited by children of ours."""
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:  # it was quicker
        os._exit(0)


def _prctl(option: int, value: int) -> None:
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value))
    except (ImportError, OSError, AttributeError):
        pass


def inherited() -> dict[bytes, bytes]:
    """Our environment as we got it: where the locale is C, as in a crontab, Python puts LC_CTYPE into its own."""
    environment = dict(os.environb)
    if environment.get(b"LC_CTYPE") in COERCED and (given := _environment("self")):
        del environment[b"LC_CTYPE"]
        environment.update(line.split(b"=", 1) for line in given if line.startswith(b"LC_CTYPE="))  # type: ignore[misc]  # it has one
    return environment


def descendants(ancestor: int, marks: set[bytes] | None = None) -> list[int]:
    """The living processes that descend from this one; also those whose parents have died, when they have all these
    marks in their environment, and whoever descends from them. Empty where there is no /proc."""
    try:
        parents = {int(entry): _parent(entry) for entry in os.listdir("/proc") if entry.isdigit()}
    except OSError:
        return []
    found = {ancestor, *(pid for pid in parents if marks and pid != ancestor and marks <= _environment(pid))}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= more
        grown = bool(more)
    return sorted(pid for pid in found - {ancestor} if parents[pid])


def _environment(pid: int | str) -> set[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:  # gone, or somebody else's
        return set()


def _parent(pid: str) -> int:
    """0 for one that is gone, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[1])
