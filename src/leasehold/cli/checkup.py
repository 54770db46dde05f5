"""``--health COMMAND`` of ``leasehold elect``: a shell command that says whether we are fit to lead."""

from __future__ import annotations

import os
import threading

from leasehold.cli import kernel
from leasehold.cli.signals import signal

LOOK_AGAIN = 1.0  # seconds


class Checkup:
    """Asked by a thread of the library. It is the main thread that reaps processes, so that tells it how they ended.
    ``mask``: the signals that the command blocks, as it would without us."""

    def __init__(self, command: str, mask: set[int]) -> None:
        self._command = command
        self._mask = mask
        self._changed = threading.Condition()
        self._pid = 0  # of the one that runs now
        self._status = 0  # of the one that has ended
        self._over = threading.Event()

    def __call__(self) -> bool:
        with self._changed:  # nobody is told of its end before it has a number
            if self._over.is_set():
                return True
            self._pid = self._spawn()
            while self._pid and not self._over.is_set():
                self._changed.wait(LOOK_AGAIN)
            return self._over.is_set() or self._status == 0

    def _spawn(self) -> int:
        """What it prints is no output of the command that we run."""
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
        return os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", self._command],
            kernel.inherited(),
            file_actions=actions,
            setsigmask=self._mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )

    def ended(self, pid: int, status: int) -> None:
        """A process was reaped."""
        with self._changed:
            if pid == self._pid:
                self._pid, self._status = 0, status
                self._changed.notify_all()

    def stop(self) -> None:
        """Nobody reaps any more, and nobody asks: leave no process behind."""
        with self._changed:
            self._over.set()
            self._changed.notify_all()
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                self._pid = 0
