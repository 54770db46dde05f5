"""Minding the command: signals go to it, and when the lease is lost it is stopped before anybody else can start.

Lost, a lease still has its margin: the time between the moment at which work must stop and the deadline, before which
the store gives it to nobody. TERM comes at its beginning, KILL at two thirds of it, to the command and to all that
descends from it. Where there is no time left, KILL comes at once.
"""

from __future__ import annotations

import os

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.policy import margin
from leasehold.cli import child as kernel
from leasehold.cli import exit_codes
from leasehold.cli.child import Child
from leasehold.cli.output import Output
from leasehold.cli.signals import ReceivedSignal, Signals, known, signal
from leasehold.errors import LeaseLost
from leasehold.stores.clock import SystemClock

if TYPE_CHECKING:
    from leasehold.primitives.lease import Lease

# The terminal sends these to its whole foreground group: the command has them already.
FROM_TERMINAL = known("SIGINT", "SIGQUIT", "SIGTSTP", "SIGWINCH", "SIGHUP")
JOB_CONTROL = known("SIGTSTP", "SIGTTIN", "SIGTTOU")
TOO_LATE = ("expired", "taken")  # somebody else may be at work by now
LOOK_AGAIN = 0.02  # seconds, for those that are about to die
LONGEST_NAP = 60.0
UNKILLABLE = 10.0  # seconds after KILL


class Supervisor:
    """Of one command, under one lease."""

    def __init__(self, child: Child, lease: Lease, on_lost: str, signals: Signals, voice: Output) -> None:
        self._child = child
        self._lease = lease
        self._on_lost = on_lost
        self._signals = signals
        self._voice = voice
        self._now = SystemClock().now
        self._asked_to_stop = False  # Ctrl-Z
        self._kill_at: float | None = None  # once it is being ended
        self.loss: LeaseLost | None = None

    def watch(self) -> int:
        """Until the command has ended, and all that must end with it. Its exit code."""
        while not self._over():
            heard = self._signals.wait(self._patience())
            self._look_at_lease()
            self._enforce()  # before it hears SIGCONT: a command that was stopped goes on only under a lease
            if heard is not None:
                self._hear(heard)
            self._reap()
        return exit_codes.LOST if self._child.code is None else self._child.code

    def _over(self) -> bool:
        if self._kill_at is None:
            return self._child.code is not None
        if self._child.code is not None and not self._family():
            return True
        if self._now() < self._kill_at + UNKILLABLE:
            return False
        self._voice.say("unkillable", "the command does not end, although it was killed")
        return True

    def _patience(self) -> float:
        if self._kill_at is not None:
            wait = self._kill_at - self._now()
            return LOOK_AGAIN if wait <= 0 or self._child.code is not None else wait
        return LONGEST_NAP if self.loss else min(max(self._lease.remaining(), LOOK_AGAIN), LONGEST_NAP)

    # ------------------------------------------------------------ signals, and the end of processes

    def _hear(self, heard: ReceivedSignal) -> None:
        number, by_kernel = heard
        if number == signal.SIGCHLD:
            return
        if number == signal.SIGTSTP:
            self._asked_to_stop = True
        leader = number == signal.SIGHUP and os.getsid(0) == os.getpid()  # then it was sent to us alone
        if not by_kernel or number not in FROM_TERMINAL or leader:
            self._child.send(number)

    def _reap(self) -> None:
        """Who has ended or was stopped. As the first process of a container we have orphans, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child.pid:
                self._changed(status)
            else:
                self._other_ended(pid, status)

    def _other_ended(self, pid: int, status: int) -> None:
        """For those who start more than the command."""

    def _changed(self, status: int) -> None:
        if not os.WIFSTOPPED(status):
            self._child.ended(status)
        elif self._asked_to_stop or os.WSTOPSIG(status) in JOB_CONTROL:
            self._asked_to_stop = False
            os.kill(os.getpid(), signal.SIGSTOP)  # the shell waits for us, not for the command

    # ------------------------------------------------------------ losing the lease

    def _look_at_lease(self) -> None:
        if self.loss is None and self._lease.state == "lost":
            try:
                self._lease.check()
            except LeaseLost as loss:
                self._lose(loss)

    def _lose(self, loss: LeaseLost) -> None:
        self.loss = loss
        if self._on_lost == "warn":
            tell_loss(self._voice, loss, "the command goes on")
            return
        now, third = self._now(), margin(self._lease.ttl) / 3
        kill_at = min(now + 2 * third, self._lease.deadline - third)
        at_once = self._on_lost == "kill" or loss.reason in TOO_LATE or kill_at <= now
        self._kill_at = now if at_once else kill_at
        if not at_once:
            self._send_to_all(signal.SIGTERM)
            self._send_to_all(signal.SIGCONT)
        tell_loss(self._voice, loss, "the command is killed" if at_once else "the command is stopped")

    def _enforce(self) -> None:
        """Again and again: while we look, more may be born."""
        if self._kill_at is not None and self._now() >= self._kill_at:
            self._send_to_all(signal.SIGKILL)

    def _send_to_all(self, number: int) -> None:
        for pid in self._family():
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def _family(self) -> list[int]:
        """The command, and all that it started and that is alive."""
        known = kernel.descendants(os.getpid(), self._child.marks)
        return known or ([self._child.pid] if self._child.code is None else [])


def tell_loss(voice: Output, loss: LeaseLost, so: str) -> None:
    voice.say("lost", f"the lease on {loss.resource} is lost ({loss.reason}): {so}", resource=loss.resource,
              reason=loss.reason, fence=loss.fence)  # fmt: skip
