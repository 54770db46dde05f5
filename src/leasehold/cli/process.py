"""The signals of this process, and the process of the command that it runs.

No signal handler interrupts anything: signals are blocked in every thread, and the main thread waits for them.

The command's process is made before anything else. It waits until the lease is there, and then becomes the command.
Made that early it is a copy of a small process with one thread, and does its own preparations while we acquire the
lease. It stays in our process group, as with nice(1) or flock(1): Ctrl-C, Ctrl-Z and pipelines work as without us.
"""

from __future__ import annotations

import errno
import os
from _thread import get_ident  # ``threading`` is loaded when the command's process is made

from leasehold._core.light_typing import TYPE_CHECKING, NamedTuple
from leasehold.cli.output import ExitCode

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # ``signal`` makes enums of all these numbers, which takes milliseconds

__all__ = ["ABSENT", "HARMLESS", "Child", "ReceivedSignal", "Signals", "descendants", "inherited", "known", "signal"]

# ---------------------------------------------------------------- signals


def known(*names: str) -> set[int]:
    """The signals among these that the system has: where some are missing, a command must still be able to print that
    it needs Linux."""
    return {getattr(signal, name) for name in names if hasattr(signal, name)}


# Faults of our own, signals that cannot be caught, and those by which a terminal stops a background process.
UNTOUCHED = known(
    "SIGKILL", "SIGSTOP", "SIGTTIN", "SIGTTOU", "SIGCHLD",
    "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS",
)  # fmt: skip
HARMLESS = known("SIGCHLD", "SIGCONT", "SIGWINCH", "SIGURG")  # by default these do not end a process

SHORTEST = 0.0001  # seconds; a timer of 0 never fires


class ReceivedSignal(NamedTuple):
    """A signal; ``by_kernel``: no process sent it, the terminal did."""

    number: int
    by_kernel: bool


class Signals:
    """The signals that this process receives, from now on. To be made, and waited for, by the main thread.

    A signal that is ignored when we start (as ``nohup`` does with SIGHUP) stays ignored, for us and for the command.
    """

    def __init__(self) -> None:
        candidates = [one for one in signal.valid_signals() if one not in UNTOUCHED]
        watched = [one for one in candidates if signal.getsignal(one) != signal.SIG_IGN]
        self._watched = {*watched, signal.SIGCHLD, signal.SIGALRM}
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # were it ignored, the kernel would drop the exit codes
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        self._main = get_ident()

    def wait(self, seconds: float) -> ReceivedSignal | None:
        """The next one, or None after that time. An alarm ends the wait: CPython's ``sigtimedwait`` makes up a signal
        when the process was stopped meanwhile. A SIGALRM that a process sends while ours is pending is lost: the kernel
        keeps one of them."""
        signal.setitimer(signal.ITIMER_REAL, max(seconds, SHORTEST))
        info = signal.sigwaitinfo(self._watched)
        signal.setitimer(signal.ITIMER_REAL, 0)
        received = ReceivedSignal(info.si_signo, info.si_code > 0)
        return None if received == (signal.SIGALRM, True) else received

    def stop(self) -> None:
        """Stop this process, as SIGTSTP would. Not if SIGCONT has arrived since SIGTSTP did: a process that is stopped
        loses the SIGCONT that it has pending, and would stay stopped."""
        if signal.SIGCONT not in signal.sigpending():
            os.kill(os.getpid(), signal.SIGSTOP)

    def wake(self) -> None:
        """End the main thread's wait now; from any thread."""
        signal.pthread_kill(self._main, signal.SIGCHLD)


# ---------------------------------------------------------------- kernel
#
# What we use of Linux, and do without elsewhere: a child that dies with us, and a list of its descendants.


PR_SET_PDEATHSIG = 1
SIGKILL = 9
COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")  # what Python makes of the locale C


def die_with(parent: int) -> None:
    """Be killed when the thread that made this process ends. Children of this process do not inherit it."""
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(0)


def _prctl(option: int, value: int) -> None:
    """By the C part of ``ctypes``: the rest of it takes longer to load than all that the child does besides."""
    try:
        import _ctypes as c

        function = c.dlsym(c.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: this program and its libraries
        word = type("unsigned_long", (c._SimpleCData,), {"_type_": "L"})
        c.call_function(function, (option, word(value), word(0), word(0), word(0)))
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
    marks in their environment, and their descendants. Empty where there is no /proc."""
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
    except OSError:  # it has ended, or belongs to another user
        return set()


def _parent(pid: str) -> int:
    """0 for a process that has ended, or is a zombie."""
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
        start, self._start = os.pipe()
        self._error, error = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._start)
                _stand_by(command, mask, parent, start, error)
            finally:
                os._exit(ExitCode.NOT_EXECUTABLE)
        os.close(start)
        os.close(error)
        self.code: int | None = None  # once it has ended
        self.marks: set[bytes] = set()  # what is new in its environment, and in that of all its descendants

    def start(self, environment: dict[str, str]) -> None:
        """Let it become the command, with these additions to its environment."""
        lines = [f"{key}={value}".encode("utf-8", "surrogateescape") for key, value in environment.items()]
        self.marks = set(lines)
        try:
            os.write(self._start, b"\0".join(lines))
        except BrokenPipeError:  # it was killed: its exit code will show that
            pass
        os.close(self._start)
        self._start = -1

    def send(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def ended(self, status: int) -> None:
        """The process was reaped with this status."""
        code = os.waitstatus_to_exitcode(status)
        self.code = code if code >= 0 else ExitCode.of_signal(-code)

    def start_error(self) -> int:
        """After its end: the error number with which the command could not be started, or 0."""
        return int(os.read(self._error, 16) or b"0")

    def abandon(self) -> None:
        """The command has ended, or is not to be started: leave no process and no descriptor behind."""
        if self._start >= 0:
            os.close(self._start)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._error)


def _stand_by(command: list[str], mask: set[int], parent: int, start: int, error: int) -> None:
    """All that the child does: wait for its environment, then become the command. It does not return."""
    paths = _candidates(command[0])
    die_with(parent)
    lines = _read(start)
    if not lines:
        os._exit(0)
    environment = inherited()
    environment.update(line.split(b"=", 1) for line in lines.split(b"\0"))  # type: ignore[misc]  # each line has one
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would catch one that is meant for the command
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    why = _execute(paths, command, environment)
    os.write(error, str(why).encode())
    os._exit(ExitCode.NOT_FOUND if why in ABSENT else ExitCode.NOT_EXECUTABLE)


def _candidates(program: str) -> list[str]:
    if "/" in program:
        return [program]
    return [f"{folder or '.'}/{program}" for folder in os.environ.get("PATH", os.defpath).split(":") if program]


def _execute(paths: list[str], command: list[str], environment: dict[bytes, bytes]) -> int:
    """Returns only when none of the paths can be executed: the error number. A file that may not be executed outweighs
    one that does not exist."""
    why = errno.ENOENT
    for path in paths:
        try:
            os.execve(path, command, environment)  # noqa: S606  # to run it is the purpose of this process
        except OSError as error:
            if error.errno not in ABSENT:
                why = error.errno or errno.EACCES
    return why


def _read(pipe: int) -> bytes:
    data = b""
    while more := os.read(pipe, 65536):
        data += more
    return data
