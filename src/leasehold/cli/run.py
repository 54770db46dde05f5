"""``leasehold run``: a command under a lease, from asking for it to the exit code."""

from __future__ import annotations

import errno
import gc
import os

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold.cli import exit_codes
from leasehold.cli.arguments import RunRequest
from leasehold.cli.child import ABSENT, Child
from leasehold.cli.exit_codes import CommandEnded
from leasehold.cli.output import Output
from leasehold.cli.signals import HARMLESS, Signals, signal

if TYPE_CHECKING:
    from leasehold.cli.lease_thread import LeaseThread
    from leasehold.coordinator import Leasehold
    from leasehold.primitives.election import Election
    from leasehold.primitives.lease import Lease
    from leasehold.primitives.lock import Lock

FOR_A_SHELL = frozenset(" \t\n|&;<>$*?`()")  # what no name of a program has, as a rule
OF_A_SHELL = frozenset(
    (
        ".", ":", "alias", "case", "cd", "eval", "exec", "export", "for", "if", "set", "shift", "source", "trap",
        "ulimit", "umask", "unset", "until", "while", "{",
    )
)  # fmt: skip
PROGRESS_AFTER, PROGRESS_EVERY = 1.0, 10.0  # seconds


def run(request: RunRequest) -> int:
    """Run the command under the lease; the exit code."""
    voice = Output(request.as_json)
    child = None
    try:
        if not hasattr(signal, "sigwaitinfo"):
            raise CommandEnded(
                exit_codes.CONFIG, "failed", "leasehold run needs Linux: this system cannot wait for signals"
            )
        signals = Signals()
        child = prepared(request, signals)
        return _under_a_lease(request, voice, signals, child)
    except CommandEnded as ended:
        if ended.event:
            voice.say(ended.event, str(ended), **ended.fields)
        return ended.code
    finally:
        if child is not None:
            child.abandon()


def prepared(request: RunRequest, signals: Signals) -> Child:
    try:
        return Child(request.command, signals.mask)
    except OSError as error:
        raise CommandEnded(
            exit_codes.NOT_EXECUTABLE, "failed", f"no process can be started: {os.strerror(error.errno or 0)}"
        ) from error


def _under_a_lease(request: RunRequest, voice: Output, signals: Signals, child: Child) -> int:
    from leasehold.cli.coordinator import open_lock  # the rest of the library: the child prepares meanwhile
    from leasehold.cli.lease_thread import LeaseThread

    hold, lock = open_lock(request, voice)
    with hold:
        tenure = LeaseThread(lock, signals.wake)
        lease = await_lease(request, voice, signals, tenure, hold, lock)
        child.start(environment(lease))
        gc.enable()
        from leasehold.cli.supervisor import Supervisor, tell_loss  # it runs already

        voice.note("acquired", resource=lease.resource, fence=lease.fence, ttl=lease.ttl, pid=child.pid)
        supervisor = Supervisor(child, lease, request.on_lost, signals, voice)
        code = supervisor.watch()
        loss = tenure.finish(lost=supervisor.loss is not None)
        if loss is not None and supervisor.loss is None:
            tell_loss(voice, loss, "it was over before the command was")
        voice.note("exited", resource=lease.resource, code=code)
    complain_about_start(request, child)
    return code if loss is None and supervisor.loss is None else exit_codes.LOST


def environment(lease: Lease) -> dict[str, str]:
    """For the child alone, and never read by us: it must not be taken for us (trap 45). So no secret is in it."""
    from leasehold._core.rules import SEMAPHORE
    from leasehold._core.types import public_owner

    told = {
        "LEASEHOLD_FENCE": str(lease.fence),
        "LEASEHOLD_RESOURCE": lease.resource,
        "LEASEHOLD_OWNER": public_owner(lease.owner),
    }
    if lease._held.shared:
        told["LEASEHOLD_SHARED"] = "1"
    if lease._held.rule == SEMAPHORE:  # fences grow for each slot, and that is what a guard is told
        from leasehold._core.rules import slot_name

        slot = lease._held.slots[0]
        told.update(LEASEHOLD_RESOURCE=slot_name(lease.resource, slot), LEASEHOLD_SLOT=str(slot))
    return told


def complain_about_start(request: RunRequest, child: Child) -> None:
    why, program = child.why_not(), request.command[0]
    if why in ABSENT:
        raise CommandEnded(
            exit_codes.NOT_FOUND, "failed", f"{program}: command not found{_hint(request)}", command=program
        )
    if why:
        hint = _hint(request) if why == errno.ENAMETOOLONG else ""
        raise CommandEnded(exit_codes.NOT_EXECUTABLE, "failed", f"{program}: {os.strerror(why)}{hint}", command=program)


def _hint(request: RunRequest) -> str:
    """No shell reads the command. Who quoted a whole line of it, or begins with what only a shell knows, meant one."""
    program = request.command[0]
    sets = program.partition("=")
    if not (FOR_A_SHELL & set(program) or program in OF_A_SHELL or (sets[1] and sets[0].isidentifier())):
        return ""
    import shlex  # only for those who are told so

    return f"; for a line that a shell is to read, write: -- sh -c {shlex.quote(' '.join(request.command))}"


# ---------------------------------------------------------------- waiting


def await_lease(
    request: RunRequest, voice: Output, signals: Signals, tenure: LeaseThread, hold: Leasehold, lock: Lock | Election
) -> Lease:
    """Until it is granted. A signal that would end us ends the waiting at once, and nothing is left behind."""
    patience = PROGRESS_AFTER
    while tenure.lease is None:
        if tenure.error is not None:
            raise _refused(request, tenure.error)
        heard = signals.wait(patience)
        if heard is None:
            patience = PROGRESS_EVERY
            gc.enable()  # this may take hours
            if voice.tells_progress:
                _tell_progress(voice, hold, lock)
        elif heard.number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif heard.number not in HARMLESS:
            raise CommandEnded(exit_codes.of_signal(heard.number))
    return tenure.lease


def _refused(request: RunRequest, error: BaseException) -> BaseException:
    from leasehold.cli.coordinator import failed
    from leasehold.errors import NotAcquired

    if not isinstance(error, NotAcquired):
        return failed(error)
    fields = {"resource": error.resource, "holder": error.holder, "retry_in": error.retry_in}
    quiet = request.skip_ok and not request.as_json
    return CommandEnded(request.busy_code, "" if quiet else "busy", _who(error.resource, error.holder), **fields)


def _tell_progress(voice: Output, hold: Leasehold, lock: Lock | Election) -> None:
    from leasehold.errors import LeaseholdError

    try:
        seen = hold.inspect(lock)
    except LeaseholdError:  # whoever waits hears of it soon enough
        return
    holder = seen.holder.owner if seen.holder else None
    ahead = len(seen.waiters) - 1
    text = f"waiting: {_who(lock.resource, holder)}" + (f"; {ahead} more wait" if ahead > 0 else "")
    voice.say("waiting", text, resource=lock.resource, holder=holder, waiters=len(seen.waiters))


def _who(resource: str | None, holder: str | None) -> str:
    return f"{resource} is held by {holder}" if holder else f"{resource} is busy"
