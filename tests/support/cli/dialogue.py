"""Somebody at a terminal, who is asked by a command."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.cli.desk import SOON, Desk


class Dialogue:
    """Somebody at a terminal. What is said there is standard error; standard output goes to a pipe."""

    def __init__(self, process: subprocess.Popen[str], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self.shown = ""

    def until(self, words: str) -> None:
        """Read until these were said."""
        give_up = time.monotonic() + SOON
        while words not in self.shown:
            assert time.monotonic() < give_up, f"{words!r} was never said: {self.shown!r}"
            if select.select([self._terminal], [], [], 0.1)[0]:
                self.shown += os.read(self._terminal, 65536).decode()

    def type(self, text: str, after: str = "> ") -> None:
        """Type it when we are asked."""
        self.until(after)
        self.shown = ""
        os.write(self._terminal, text.encode())

    def interrupt(self, after: str) -> None:
        """Ctrl-C when we are asked. Python notices one that comes between the question and the read only with the next
        one, so it is pressed until the process has ended."""
        self.until(after)
        give_up = time.monotonic() + SOON
        while self.process.poll() is None:
            assert time.monotonic() < give_up, "it goes on"
            os.write(self._terminal, b"\x03")
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(2)

    def ended(self) -> tuple[int, str]:
        """The exit code and what went to standard output."""
        out, _ = self.process.communicate(timeout=SOON)
        while select.select([self._terminal], [], [], 0)[0]:
            try:
                self.shown += os.read(self._terminal, 65536).decode()
            except OSError:  # Linux says so when the other end is gone
                break
        return self.process.returncode, out


@contextmanager
def at_terminal(desk: Desk, *arguments: str) -> Iterator[Dialogue]:
    """``leasehold`` with a terminal of its own, whose Ctrl-C and Ctrl-D mean what they mean."""
    ours, theirs = pty.openpty()
    process = desk.start(*arguments, stdin=theirs, stderr=theirs, start_new_session=True, preexec_fn=_take_terminal)
    os.close(theirs)
    try:
        yield Dialogue(process, ours)
    finally:
        os.close(ours)


def _take_terminal() -> None:
    """So that Ctrl-C on it reaches the process."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
