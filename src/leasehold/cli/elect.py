"""``leasehold elect``: a command that runs while we lead, from one term to the next."""

from __future__ import annotations

import gc
import os

from leasehold.cli import codes
from leasehold.cli.arguments import Candidacy
from leasehold.cli.checkup import Checkup
from leasehold.cli.child import Child
from leasehold.cli.codes import Ended
from leasehold.cli.opening import open_election
from leasehold.cli.run import await_lease, complain_about_start, environment, prepared
from leasehold.cli.signals import HARMLESS, Heard, Signals, known, signal
from leasehold.cli.supervise import Supervisor, tell_loss
from leasehold.cli.tenure import Tenure
from leasehold.cli.voice import Voice
from leasehold.core.policy import renew_after
from leasehold.core.typed import Any
from leasehold.primitives.reign import UNFIT
from leasehold.stores.clock import SystemClock

ENDING = known("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # whoever sends one wants us to end, too


def elect(request: Candidacy) -> int:
    """Lead, again and again; the exit code."""
    voice = Voice(request.as_json)
    try:
        if not hasattr(signal, "sigwaitinfo"):
            raise Ended(codes.CONFIG, "failed", "leasehold elect needs Linux: this system cannot wait for signals")
        signals = Signals()
        while True:
            code, rest = _stand(request, voice, signals)
            if code is not None:
                return code
            gc.collect()  # what the last term left behind: the next command is forked from this process
            idle(signals, rest)
    except Ended as ended:
        if ended.event:
            voice.say(ended.event, str(ended), **ended.fields)
        return ended.code


def _stand(request: Candidacy, voice: Voice, signals: Signals) -> tuple[int | None, float]:
    """One term, from the command's process to its end. The exit code; None: stand again, after so many seconds. All
    threads of it have ended by then, so that the next process is forked from one that has none."""
    child = prepared(request, signals)
    checkup = None if request.health is None else Checkup(request.health, signals.mask)
    try:
        return _lead(request, voice, signals, child, checkup)
    finally:
        child.abandon()


def _lead(
    request: Candidacy, voice: Voice, signals: Signals, child: Child, checkup: Checkup | None
) -> tuple[int | None, float]:
    hold, election = open_election(request, checkup)
    with hold:
        tenure = Tenure(election.campaign(), signals.wake)
        term: Any = await_lease(request, voice, signals, tenure, hold, election)
        child.start({**environment(term), "LEASEHOLD_TERM": str(term.term)})
        voice.note("elected", resource=term.resource, term=term.term, ttl=term.ttl, pid=child.pid)
        supervisor = Regent(child, term, signals, voice, checkup)
        code = supervisor.watch()
        if checkup is not None:
            checkup.stop()
        loss = tenure.finish(lost=supervisor.loss is not None)
        if loss is not None and supervisor.loss is None:
            tell_loss(voice, loss, "it was over before the command was")
        voice.note("exited", resource=term.resource, code=code)
    complain_about_start(request, child)
    if supervisor.loss is None:
        return (code if loss is None else codes.LOST), 0.0
    if request.once or supervisor.ending:
        return codes.LOST, 0.0
    return None, renew_after(term.ttl) if supervisor.loss.reason in UNFIT else 0.0


class Regent(Supervisor):
    """Of one command in one term. Processes of the health check end here, too."""

    def __init__(self, child: Child, term: Any, signals: Signals, voice: Voice, checkup: Checkup | None) -> None:
        super().__init__(child, term, "term", signals, voice)
        self._checkup = checkup
        self.ending = False  # somebody wants us to end, not only the command

    def _hear(self, heard: Heard) -> None:
        self.ending = self.ending or heard.number in ENDING
        super()._hear(heard)

    def _other_ended(self, pid: int, status: int) -> None:
        if self._checkup is not None:
            self._checkup.ended(pid, status)


def idle(signals: Signals, seconds: float) -> None:
    """Who was not fit to lead waits before it stands again. A signal that would end us does so now."""
    now = SystemClock().now
    until = now() + seconds
    while (left := until - now()) > 0:
        heard = signals.wait(left)
        if heard is None:
            continue
        if heard.number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif heard.number not in HARMLESS:
            raise Ended(codes.of_signal(heard.number))
