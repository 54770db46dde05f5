"""Supervises the command: passes signals on to it, and stops it when the lease is lost, before another can start.

A lease that is lost still has its margin: the time between the moment at which work must stop and the deadline, before
which the store grants it to no other holder. SIGTERM is sent at the beginning of the margin, SIGKILL after two thirds
of it, to the command and all its descendants. Where no time is left, SIGKILL is sent at once.
"""

from __future__ import annotations

import os

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.policy import margin
from leasehold.cli.output import ExitCode, Output
from leasehold.cli.process import Child, ReceivedSignal, Signals, descendants, known, signal
from leasehold.errors import LeaseLost
from leasehold.stores.clock import SystemClock

if TYPE_CHECKING:
    from leasehold.primitives.lease import Lease

# The terminal sends these to its whole foreground group: the command has them already.
FROM_TERMINAL = known("SIGINT", "SIGQUIT", "SIGTSTP", "SIGWINCH", "SIGHUP")
ENDING = known("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # their sender wants leasehold to end, not only the command
JOB_CONTROL = known("SIGTSTP", "SIGTTIN", "SIGTTOU")
TOO_LATE = ("expired", "taken")  # another holder may be at work by now
POLL_EVERY = 0.02  # seconds, while processes are about to die
LONGEST_WAIT = 60.0
UNKILLABLE = 10.0  # seconds after SIGKILL


class Supervisor:
    """Supervises one command under one lease."""

    def __init__(
        self, child: Child, lease: Lease, on_lost: str, on_revoke: str, signals: Signals, output: Output
    ) -> None:
        self._child = child
        self._lease = lease
        self._on_lost = on_lost
        self._on_revoke = on_revoke
        self._signals = signals
        self._output = output
        self._now = SystemClock().now
        self._stop_requested = False  # Ctrl-Z
        self._asked = False  # an operator has asked for the lease
        self._kill_at: float | None = None  # once it is being ended
        self.loss: LeaseLost | None = None
        self.ending = False  # a signal was received that is to end leasehold, too

    def watch(self) -> int:
        """Wait until the command, and all that must end with it, has ended; its exit code."""
        while not self._over():
            received = self._signals.wait(self._wait_for())
            self._check_lease()
            self._check_request()
            self._enforce()  # before SIGCONT is passed on: a command that was stopped goes on only under a lease
            if received is not None:
                self._handle(received)
            self._reap()
        return ExitCode.LOST if self._child.code is None else self._child.code

    def lost(self, at_release: LeaseLost | None) -> bool:
        """Whether the lease was lost: while the command ran or, as only the release found out, before it ended."""
        if at_release is not None and self.loss is None:
            report_loss(self._output, at_release, "it was over before the command was")
        return at_release is not None or self.loss is not None

    def _over(self) -> bool:
        if self._kill_at is None:
            return self._child.code is not None
        if self._child.code is not None and not self._processes():
            return True
        if self._now() < self._kill_at + UNKILLABLE:
            return False
        self._output.report("unkillable", "the command does not end, although it was killed")
        return True

    def _wait_for(self) -> float:
        if self._kill_at is not None:
            left = self._kill_at - self._now()
            return POLL_EVERY if left <= 0 or self._child.code is not None else left
        return LONGEST_WAIT if self.loss else min(max(self._lease.remaining(), POLL_EVERY), LONGEST_WAIT)

    # ------------------------------------------------------------ signals, and the end of processes

    def _handle(self, received: ReceivedSignal) -> None:
        number, by_kernel = received
        if number == signal.SIGCHLD:
            return
        self.ending = self.ending or number in ENDING
        if number == signal.SIGTSTP:
            self._stop_requested = True
        to_us_alone = number == signal.SIGHUP and os.getsid(0) == os.getpid()  # as the leader of the session
        if not by_kernel or number not in FROM_TERMINAL or to_us_alone:
            self._child.send(number)

    def _reap(self) -> None:
        """Collect the processes that have ended or stopped: orphans as well, when we are the first process of a
        container."""
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
        """A process other than the command has ended. A subclass that starts more processes overrides this."""

    def _changed(self, status: int) -> None:
        if not os.WIFSTOPPED(status):
            self._child.ended(status)
        elif self._stop_requested or os.WSTOPSIG(status) in JOB_CONTROL:
            self._stop_requested = False
            self._signals.stop()  # the shell waits for us, not for the command

    # ------------------------------------------------------------ an operator asks for the lease

    def _check_request(self) -> None:
        """It is ours until the command has ended. SIGTERM goes to all processes of the command: those that outlive it
        would work without a lease."""
        if self._asked or self.loss is not None or not self._lease._held.revocation_requested():
            return
        self._asked = True
        ends = self._on_revoke == "term"
        text = (
            f"an operator asks for the lease on {self._lease.resource}: the command {'is ended' if ends else 'goes on'}"
        )
        self._output.report("revoked", text, resource=self._lease.resource, fence=self._lease.fence)
        if ends:
            self._send_to_all(signal.SIGTERM)
            self._send_to_all(signal.SIGCONT)

    # ------------------------------------------------------------ losing the lease

    def _check_lease(self) -> None:
        if self.loss is None and self._lease.state == "lost":
            try:
                self._lease.check()
            except LeaseLost as loss:
                self._lose(loss)

    def _lose(self, loss: LeaseLost) -> None:
        self.loss = loss
        if self._on_lost == "warn":
            report_loss(self._output, loss, "the command goes on")
            return
        now, third = self._now(), margin(self._lease.ttl) / 3
        kill_at = min(now + 2 * third, self._lease.deadline - third)
        at_once = self._on_lost == "kill" or loss.reason in TOO_LATE or kill_at <= now
        self._kill_at = now if at_once else kill_at
        if not at_once:
            self._send_to_all(signal.SIGTERM)
            self._send_to_all(signal.SIGCONT)
        report_loss(self._output, loss, "the command is killed" if at_once else "the command is stopped")

    def _enforce(self) -> None:
        """Called again and again: while the processes are listed, new ones may be forked."""
        if self._kill_at is not None and self._now() >= self._kill_at:
            self._send_to_all(signal.SIGKILL)

    def _send_to_all(self, number: int) -> None:
        for pid in self._processes():
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def _processes(self) -> list[int]:
        """The command and its descendants, as far as they are alive."""
        alive = descendants(os.getpid(), self._child.marks)
        return alive or ([self._child.pid] if self._child.code is None else [])


def report_loss(output: Output, loss: LeaseLost, consequence: str) -> None:
    output.report("lost", f"the lease on {loss.resource} is lost ({loss.reason}): {consequence}",
                  resource=loss.resource, reason=loss.reason, fence=loss.fence)  # fmt: skip
