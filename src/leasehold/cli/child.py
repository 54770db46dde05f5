"""The command's process. It is made before anything else, waits until the lease is there, and becomes the command.

Made that early it is a copy of a small process with one thread, and does its own preparing while we acquire the lease.
It stays in our process group, as with nice(1) or flock(1): Ctrl-C, Ctrl-Z and pipelines work as without us.
"""

from __future__ import annotations

import errno
import os

from leasehold.cli import exit_codes
from leasehold.cli.signals import signal

# ---------------------------------------------------------------- kernel
#
# What we need of Linux, and do without elsewhere: a child that dies with us, and all that descends from it.


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


# ---------------------------------------------------------------- child


ABSENT = (errno.ENOENT, errno.ENOTDIR)


class Child:
    """One process, which ``start`` turns into the command. ``mask``: the signals that it blocks, as it would without
    us."""

    def __init__(self, command: list[str], mask: set[int]) -> None:
        go, self._go = os.pipe()
        self._trouble, trouble = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._go)
                _stand_by(command, mask, parent, go, trouble)
            finally:
                os._exit(exit_codes.NOT_EXECUTABLE)
        os.close(go)
        os.close(trouble)
        self.code: int | None = None  # once it has ended
        self.marks: set[bytes] = set()  # what is new in its environment, and in that of all that it starts

    def start(self, environment: dict[str, str]) -> None:
        """Now."""
        lines = [f"{key}={value}".encode("utf-8", "surrogateescape") for key, value in environment.items()]
        self.marks = set(lines)
        try:
            os.write(self._go, b"\0".join(lines))
        except BrokenPipeError:  # somebody killed it: its exit code will say so
            pass
        os.close(self._go)
        self._go = -1

    def send(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def ended(self, status: int) -> None:
        """It was reaped with this status."""
        code = os.waitstatus_to_exitcode(status)
        self.code = code if code >= 0 else exit_codes.of_signal(-code)

    def why_not(self) -> int:
        """After its end: the error number with which the command could not be started, or 0."""
        return int(os.read(self._trouble, 16) or b"0")

    def abandon(self) -> None:
        """Not to be started, or over: leave no process and no descriptor behind."""
        if self._go >= 0:
            os.close(self._go)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._trouble)


def _stand_by(command: list[str], mask: set[int], parent: int, go: int, trouble: int) -> None:
    """In the child, to its end."""
    paths = _candidates(command[0])
    die_with(parent)
    lines = _read(go)
    if not lines:
        os._exit(0)
    environment = inherited()
    environment.update(line.split(b"=", 1) for line in lines.split(b"\0"))  # type: ignore[misc]  # each line has one
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    why = _become(paths, command, environment)
    os.write(trouble, str(why).encode())
    os._exit(exit_codes.NOT_FOUND if why in ABSENT else exit_codes.NOT_EXECUTABLE)


def _candidates(program: str) -> list[str]:
    if "/" in program:
        return [program]
    return [f"{folder or '.'}/{program}" for folder in os.environ.get("PATH", os.defpath).split(":") if program]


def _become(paths: list[str], command: list[str], environment: dict[bytes, bytes]) -> int:
    """Returns only when nothing can be executed: the error number. One that may not be outweighs one that is not."""
    why = errno.ENOENT
    for path in paths:
        try:
            os.execve(path, command, environment)  # noqa: S606  # it is all that we are for
        except OSError as error:
            if error.errno not in ABSENT:
                why = error.errno or errno.EACCES
    return why


def _read(pipe: int) -> bytes:
    data = b""
    while more := os.read(pipe, 65536):
        data += more
    return data
