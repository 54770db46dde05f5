"""Is the holder of a lease alive? By its process where that can be seen from here, else by its renewals.

An owner names a host and a process id, and that alone says neither which container it means nor which boot: host names
are shared by the containers of a pod, and process ids are given again. So the address of a holder ends with its place,
a digest of boot id and pid namespace (``stores.place``). Where that place can be seen from here, its process is found
or is gone for certain; where it cannot, only renewals tell. A holder without an address, such as one on Redlock, goes
by its host name. An answer says what was seen, and "unknown" is one of them. It decides nothing: an eviction goes by
renewals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from leasehold._core.policy import renew_after
from leasehold._runtime.identity import host_instance
from leasehold.cli.terminal import elapsed
from leasehold.primitives.inspection import Holder
from leasehold.stores.place import here, is_at, place_of

PROC = Path("/proc")
CLOCKS = 60.0  # seconds by which the clock of the store and that of this host may differ
FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's number for the namespace of the host itself
STOPPED = {"T": "it is stopped (SIGSTOP)", "t": "a debugger has stopped it", "D": "it waits for a device"}


class Liveness(NamedTuple):
    """``alive`` is None where it cannot be known. ``by`` is ``pid`` or ``renewals``, and ``why`` is for people."""

    alive: bool | None
    by: str
    why: str


def liveness(holder: Holder, address: str = "", proc: Path = PROC) -> Liveness:
    """Whether the holder is alive, as well as it can be known from here. ``address`` is where it gets its pushes."""
    instance, _, number = holder.owner.rpartition(":")
    if not (number.isascii() and number.isdigit() and int(number)):
        return by_renewals(holder, "it does not say which process it is")
    placed = _by_place(holder, int(number), address, proc) if address else None
    if placed is not None:
        return placed if placed.alive is not None else by_renewals(holder, placed.why)
    if instance != host_instance():
        return by_renewals(holder, f"it runs on {instance}, not on this host")
    if address and here(str(proc)):
        if _began_before_boot(holder, proc):
            return BEFORE_BOOT
        return by_renewals(holder, "it runs in a container that cannot be seen from here, or on another host")
    seen = _by_process(holder, int(number), proc)
    return by_renewals(holder, seen.why) if seen.alive is None else seen


# ---------------------------------------------------------------- by its renewals


def renewed_ago(holder: Holder) -> float | None:
    """How many seconds ago it was renewed, or granted. None for a client that only sets the key of the owner: nobody
    knows what its ttl was."""
    return None if holder.since is None else max(holder.ttl - holder.expires_in, 0.0)


def renewed_lately(holder: Holder) -> bool:
    """Within a third of its ttl, which is how often a live holder renews."""
    ago = renewed_ago(holder)
    return ago is not None and ago < renew_after(holder.ttl)


def by_renewals(holder: Holder, unseen: str) -> Liveness:
    """A holder that renewed lately is alive. Another may be: one that does not renew looks the same as a dead one."""
    ago, every = renewed_ago(holder), elapsed(renew_after(holder.ttl))
    if ago is None:
        return Liveness(None, "renewals", f"{unseen}, and nothing is known of its renewals")
    last = f"{unseen}; it last renewed {elapsed(ago)} ago"
    if renewed_lately(holder):
        return Liveness(True, "renewals", f"{last}, and a live holder renews every {every}")
    why = f"{last}, and a live holder renews every {every}: it is gone, frozen or cut off, or it does not renew"
    return Liveness(None, "renewals", why)


# ---------------------------------------------------------------- by its process


class Process(NamedTuple):
    """A process that is visible here. ``own_pid`` is what it calls itself, in the innermost of its pid namespaces;
    ``inner``: that is not the namespace of whoever looks."""

    pid: int
    own_pid: int
    inner: bool
    command: str
    state: str
    started: float  # seconds since 1970, by the clock of this host


BEFORE_BOOT = Liveness(False, "pid", "this host was started after the lease began")


def _by_place(holder: Holder, pid: int, address: str, proc: Path) -> Liveness | None:
    """By the process with this pid at the holder's place; None when that place cannot be seen from here."""
    booted, ours = _booted(proc), is_at(address, here(str(proc)))
    if booted is None:
        return None
    named = [one for one in _processes(proc, booted) if one.own_pid == pid]
    found = [one for one in named if (ours if not one.inner else is_at(address, place_of(one.pid, str(proc))))]
    alive = _alive(holder, pid, found)
    if alive is not None:
        return alive
    if found:
        return Liveness(False, "pid", f"process {pid} there began after the lease: it is another one")
    if not ours:
        return None
    return _hidden(pid, proc) or Liveness(False, "pid", f"its process {pid} is gone from this host")


def _by_process(holder: Holder, pid: int, proc: Path) -> Liveness:
    """By the process with this pid, of a holder that has the name of this host."""
    booted = _booted(proc)
    if booted is None:
        return _by_signal(pid)
    if _began_before_boot(holder, proc):
        return BEFORE_BOOT
    found = [one for one in _processes(proc, booted) if one.own_pid == pid]
    alive = _alive(holder, pid, found)
    if alive is not None:
        return alive
    if found:
        return _gone(proc, f"process {pid} here began after the lease: it is another one")
    return _hidden(pid, proc) or _gone(proc, f"its process {pid} is gone from this host")


def _alive(holder: Holder, pid: int, found: list[Process]) -> Liveness | None:
    """One of them, if it did not begin after the lease."""
    since = None if holder.since is None else holder.since.timestamp()
    ours = [one for one in found if since is None or one.started <= since + CLOCKS]
    for one in sorted(ours, key=lambda one: one.pid != pid):
        where = "runs on this host" if one.pid == pid else f"runs in a container of this host (here it is {one.pid})"
        state = f", but {STOPPED[one.state]}" if one.state in STOPPED else ""
        return Liveness(True, "pid", f"its process {pid} ({one.command}) {where}{state}")
    return None


def _began_before_boot(holder: Holder, proc: Path) -> bool:
    booted = _booted(proc)
    return booted is not None and holder.since is not None and holder.since.timestamp() < booted - CLOCKS


def _hidden(pid: int, proc: Path) -> Liveness | None:
    """With hidepid, the processes of other users are not listed."""
    if not (proc / str(pid)).exists() and _by_signal(pid).alive:
        return Liveness(None, "pid", f"a process {pid} runs here that this user may not look at")
    return None


def _gone(proc: Path, why: str) -> Liveness:
    """From a container, or for a user from whom processes are hidden, a process that is not seen may be there."""
    try:
        first = os.readlink(proc / "self" / "ns" / "pid") == FIRST_NAMESPACE
    except OSError:
        first = False
    if first and (proc / "1" / "stat").exists():
        return Liveness(False, "pid", why)
    return Liveness(None, "pid", f"{why}, but other containers that cannot be seen from here may have this host name")


def _by_signal(pid: int) -> Liveness:
    """Without /proc: a process can only be seen to be there. On Windows a signal would end it."""
    if os.name != "posix":
        return Liveness(None, "pid", "on this system processes cannot be looked up")
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # or no such number can be a pid
        return Liveness(False, "pid", f"its process {pid} is gone from this host")
    except PermissionError:
        pass
    return Liveness(True, "pid", f"a process {pid} runs on this host")


def _booted(proc: Path) -> float | None:
    """When this host was started, in seconds since 1970."""
    try:
        lines = (proc / "stat").read_text().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)


def _processes(proc: Path, booted: float) -> Iterator[Process]:
    """All that are visible and not dead."""
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                one = _process(entry, booted)
            except (OSError, ValueError, IndexError):  # it ended meanwhile
                continue
            if one.state not in "ZX":
                yield one


def _process(entry: Path, booted: float) -> Process:
    """proc(5): the command stands in brackets, and may contain anything; 22 is the start, in ticks since the boot."""
    head, _, tail = (entry / "stat").read_text(errors="replace").rpartition(")")
    fields = tail.split()
    started = booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    status = (entry / "status").read_text(errors="replace")
    known = [line.split() for line in status.splitlines() if line.startswith("NSpid:")]
    own_pid, inner = (int(known[0][-1]), len(known[0]) > 2) if known else (int(entry.name), False)
    return Process(int(entry.name), own_pid, inner, head.partition("(")[2], fields[0], started)
