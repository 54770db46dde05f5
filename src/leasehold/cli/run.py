"""``leasehold run``: a command under a lease, from the claim to the exit code."""

from __future__ import annotations

import errno
import gc
import os
import sys
from _functools import partial  # type: ignore[import-not-found]  # typeshed leaves it out

from leasehold._core.light_typing import TYPE_CHECKING, Any, lru_cache
from leasehold.cli.arguments import RunRequest
from leasehold.cli.output import CommandEnded, ExitCode, Output
from leasehold.cli.process import ABSENT, HARMLESS, Child, Signals, signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.cli.coordinator import LeaseThread
    from leasehold.coordinator import Leasehold
    from leasehold.primitives.election import Election
    from leasehold.primitives.lease import Lease
    from leasehold.primitives.lock import Lock

FOR_A_SHELL = frozenset(" \t\n|&;<>$*?`()")  # as a rule, no name of a program contains these
BUILT_IN = frozenset(
    (
        ".", ":", "alias", "case", "cd", "eval", "exec", "export", "for", "if", "set", "shift", "source", "trap",
        "ulimit", "umask", "unset", "until", "while", "{",
    )
)  # fmt: skip
PROGRESS_AFTER, PROGRESS_EVERY = 1.0, 10.0  # seconds


def run(request: RunRequest) -> int:
    """Run the command under the lease; the exit code."""
    output = Output(request.as_json)
    return exit_code_of(lambda: _run(request, output), output)


def exit_code_of(command: Callable[[], int], output: Output) -> int:
    """The exit code of one of our commands. When it ended early, report why."""
    try:
        return command()
    except CommandEnded as ended:
        if ended.event:
            output.report(ended.event, str(ended), **ended.fields)
        return ended.code


def open_signals(command: str) -> Signals:
    if not hasattr(signal, "sigwaitinfo"):
        text = f"leasehold {command} needs Linux: this system cannot wait for signals"
        raise CommandEnded(ExitCode.CONFIG, "failed", text)
    return Signals()


def _run(request: RunRequest, output: Output) -> int:
    signals = open_signals("run")
    child = prepared(request, signals)
    try:
        return measured(request, output, lambda: _recorded(request, output, signals, child))
    finally:
        child.abandon()


def measured(request: RunRequest, output: Output, command: Callable[[], int]) -> int:
    """The exit code of the command, whose metrics are served or written if the request asks for that."""
    if request.metrics_file is None and request.metrics_port is None:
        return command()
    from leasehold.cli.metrics import open_metrics

    request.metrics = open_metrics(request, output)
    try:
        return command()
    finally:
        request.metrics.close()


def _recorded(request: RunRequest, output: Output, signals: Signals, child: Child) -> int:
    """The exit code of the run, which its metrics tell as well."""
    if request.metrics is None:
        return _under_a_lease(request, output, signals, child)
    try:
        outcome = request.metrics.outcome_of(request.name)
    except ValueError:  # no name: what follows says so
        return _under_a_lease(request, output, signals, child)
    try:
        code = _under_a_lease(request, output, signals, child)
    except CommandEnded as ended:
        outcome.ended(ExitCode.BUSY if isinstance(ended, Busy) else ended.code, ran=False)
        raise
    outcome.ended(code, ran=True)
    return code


def prepared(request: RunRequest, signals: Signals) -> Child:
    """The process of the command. It is forked while this process has one thread."""
    if request.metrics is None:
        return _prepared(request, signals)
    request.metrics.pause()
    try:
        return _prepared(request, signals)
    finally:
        request.metrics.resume()


def _prepared(request: RunRequest, signals: Signals) -> Child:
    try:
        return Child(request.command, signals.mask)
    except OSError as error:
        raise CommandEnded(
            ExitCode.NOT_EXECUTABLE, "failed", f"no process can be started: {os.strerror(error.errno or 0)}"
        ) from error


def _under_a_lease(request: RunRequest, output: Output, signals: Signals, child: Child) -> int:
    # The rest of the library is imported now, while the child prepares. Not before the fork: each page of memory that
    # parent and child share is copied when it is written to, and Python writes to all that it uses.
    load_without_functools(request.url or os.environ.get("LEASEHOLD_URL") or "sqlite:")
    from leasehold.cli.coordinator import LeaseThread, open_lock

    hold, lock = open_lock(request, output)
    with hold:
        thread = LeaseThread(lock, signals.wake)
        lease = await_lease(request, output, signals, thread, hold, lock)
        child.start(environment(lease))
        collect_garbage()
        from leasehold.cli.supervisor import Supervisor  # imported when the command runs already

        output.record("acquired", resource=lease.resource, fence=lease.fence, ttl=lease.ttl, pid=child.pid)
        supervisor = Supervisor(child, lease, request.on_lost, request.on_revoke, signals, output)
        code = supervisor.watch()
        lost = supervisor.lost(thread.finish(lost=supervisor.loss is not None))
        output.record("exited", resource=lease.resource, code=code)
    check_start(request, child)
    return ExitCode.LOST if lost else code


def load_without_functools(url: str) -> None:
    """Load ``threading``, and ``_sqlite3`` if the store is embedded. Each imports ``functools`` for one name, which is
    written in C: the rest of it, with ``collections``, would take 2.5 ms. Nothing else sees this stand-in."""
    if "functools" in sys.modules:
        return
    light: Any = type(sys)("functools")
    light.partial, light.lru_cache = partial, lru_cache

    def withdraw() -> None:
        if sys.modules.get("functools") is light:
            del sys.modules["functools"]

    def rest(name: str) -> Any:  # should another version use more
        withdraw()
        return getattr(__import__("functools"), name)

    light.__getattr__ = rest
    sys.modules["functools"] = light
    try:
        import threading  # noqa: F401  # for those who import it from now on

        if url.startswith("sqlite:"):
            import _sqlite3  # noqa: F401  # likewise
    finally:
        withdraw()


def collect_garbage() -> None:
    """From now on. What is loaded stays, and the first collection would go through all of it while the command
    starts."""
    gc.freeze()
    gc.enable()


def environment(lease: Lease) -> dict[str, str]:
    """What the child's environment says of its lease. Leasehold never reads it: the child must not be taken for the
    holder (trap 45). So it contains no secret."""
    from leasehold._core.rules import SEMAPHORE
    from leasehold._core.types import public_owner

    variables = {
        "LEASEHOLD_FENCE": str(lease.fence),
        "LEASEHOLD_RESOURCE": lease.resource,
        "LEASEHOLD_OWNER": public_owner(lease.owner),
    }
    if lease._held.shared:
        variables["LEASEHOLD_SHARED"] = "1"
    if lease._held.rule == SEMAPHORE:  # each slot has its own sequence of fences, so a guard needs the slot's name
        from leasehold._core.rules import slot_name

        slot = lease._held.slots[0]
        variables.update(LEASEHOLD_RESOURCE=slot_name(lease.resource, slot), LEASEHOLD_SLOT=str(slot))
    return variables


def check_start(request: RunRequest, child: Child) -> None:
    """After the child's end: raise if it never became the command."""
    why, program = child.start_error(), request.command[0]
    if why in ABSENT:
        raise CommandEnded(
            ExitCode.NOT_FOUND, "failed", f"{program}: command not found{_hint(request)}", command=program
        )
    if why:
        hint = _hint(request) if why == errno.ENAMETOOLONG else ""
        raise CommandEnded(ExitCode.NOT_EXECUTABLE, "failed", f"{program}: {os.strerror(why)}{hint}", command=program)


def _hint(request: RunRequest) -> str:
    """No shell reads the command. A user who quotes a whole line, or begins with what only a shell knows, wants one."""
    program = request.command[0]
    variable = program.partition("=")
    if not (FOR_A_SHELL & set(program) or program in BUILT_IN or (variable[1] and variable[0].isidentifier())):
        return ""
    import shlex  # only where the hint is printed

    return f"; for a line that a shell is to read, write: -- sh -c {shlex.quote(' '.join(request.command))}"


# ---------------------------------------------------------------- waiting


class Busy(CommandEnded):
    """Another holds the lease. The exit code is what -E or --skip-ok make of it."""


def await_lease(
    request: RunRequest, output: Output, signals: Signals, thread: LeaseThread, hold: Leasehold, lock: Lock | Election
) -> Lease:
    """Wait until the lease is granted. A signal that would end us ends the wait at once, and nothing is left behind."""
    seconds = PROGRESS_AFTER
    while thread.lease is None:
        if thread.error is not None:
            raise _refused(request, thread.error)
        if not obey_signal(signals, seconds):
            seconds = PROGRESS_EVERY
            collect_garbage()  # this may take hours
            if output.shows_progress:
                _report_progress(output, hold, lock)
    return thread.lease


def obey_signal(signals: Signals, seconds: float) -> bool:
    """Wait for a signal while no command runs, and do as it says: end, or stop. False when none came in that time."""
    received = signals.wait(seconds)
    if received is None:
        return False
    if received.number == signal.SIGTSTP:
        signals.stop()
    elif received.number not in HARMLESS:
        raise CommandEnded(ExitCode.of_signal(received.number))
    return True


def _refused(request: RunRequest, error: BaseException) -> BaseException:
    from leasehold.cli.coordinator import failed
    from leasehold.errors import NotAcquired

    if not isinstance(error, NotAcquired):
        return failed(error)
    fields = {"resource": error.resource, "holder": error.holder, "retry_in": error.retry_in}
    quiet = request.skip_ok and not request.as_json
    return Busy(request.busy_code, "" if quiet else "busy", _state(error.resource, error.holder), **fields)


def _report_progress(output: Output, hold: Leasehold, lock: Lock | Election) -> None:
    from leasehold.errors import LeaseholdError

    try:
        seen = hold.inspect(lock)
    except LeaseholdError:  # the claim that waits meets the same error soon enough
        return
    holder = seen.holder.owner if seen.holder else None
    ahead = len(seen.waiters) - 1
    text = f"waiting: {_state(lock.resource, holder)}" + (f"; {ahead} more wait" if ahead > 0 else "")
    output.report("waiting", text, resource=lock.resource, holder=holder, waiters=len(seen.waiters))


def _state(resource: str | None, holder: str | None) -> str:
    return f"{resource} is held by {holder}" if holder else f"{resource} is busy"
