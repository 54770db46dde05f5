"""Signals, heard one after the other where it suits: they are blocked in every thread, and waited for.

No handler interrupts anything, and each signal tells where it came from. What is ignored when we start (as ``nohup``
does with SIGHUP) stays so, for us and for the command.
"""

from __future__ import annotations

import threading

from leasehold._core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # ``signal`` makes enums of all these numbers, which takes milliseconds

__all__ = ["HARMLESS", "ReceivedSignal", "Signals", "known", "signal"]


def known(*names: str) -> set[int]:
    """Those of these signals that this system has: a command must be able to say that it needs another one."""
    return {getattr(signal, name) for name in names if hasattr(signal, name)}


# Faults of our own, what cannot be caught, and what a terminal uses to stop those who disturb it from the background.
UNTOUCHED = known(
    "SIGKILL", "SIGSTOP", "SIGTTIN", "SIGTTOU", "SIGCHLD",
    "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "SIGSYS",
)  # fmt: skip
HARMLESS = known("SIGCHLD", "SIGCONT", "SIGWINCH", "SIGURG")  # these end nobody who does not ask for it

SHORTEST = 0.0001  # seconds; a timer of 0 never rings


class ReceivedSignal(NamedTuple):
    """A signal; ``by_kernel``: no process sent it, the terminal did."""

    number: int
    by_kernel: bool


class Signals:
    """Those of this process, from when this is made. To be made, and waited for, by the main thread."""

    def __init__(self) -> None:
        heeded = [one for one in signal.valid_signals() if one not in UNTOUCHED]
        watched = [one for one in heeded if signal.getsignal(one) != signal.SIG_IGN]
        self._watched = {*watched, signal.SIGCHLD, signal.SIGALRM}
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the exit codes along
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        self._main = threading.get_ident()

    def wait(self, seconds: float) -> ReceivedSignal | None:
        """The next one, or none in that time. An alarm tells that it is over: CPython's ``sigtimedwait`` makes up a
        signal when it was stopped meanwhile."""
        signal.setitimer(signal.ITIMER_REAL, max(seconds, SHORTEST))
        info = signal.sigwaitinfo(self._watched)
        signal.setitimer(signal.ITIMER_REAL, 0)
        heard = ReceivedSignal(info.si_signo, info.si_code > 0)
        return None if heard == (signal.SIGALRM, True) else heard

    def wake(self) -> None:
        """Let the main thread look around now; from any thread."""
        signal.pthread_kill(self._main, signal.SIGCHLD)
