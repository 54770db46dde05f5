"""One cell of the table of guarantees, shown on a real store: a holder, an event, a second claimant, and a guard.

The table says what must be seen. Where exclusion is kept, the second is granted only when the first has ended; where it
is lost, both are seen to hold at the same time. The guard sees the writes of both, and accepts no stale one anywhere.
Beside it is data without a guard, whose writers check their leases first: where exclusion is lost, a stale write lands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import leasehold
from leasehold import Lease, Leasehold, LeaseLost, NotHeld, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold._core.guarantee_table import TABLE, Cell
from leasehold._core.ports import Store
from leasehold.guards.memory import FenceGuard
from tests.support.waiting import PATIENCE, until

TTL = 3.0  # of a holder that renews: a busy machine may stand still for a second and more
LONG = 60.0  # of one that does not: it believes in its lease until the end of the test

RESOURCE = "report"

Event = Callable[[], object]
Target = str | Callable[[], Store]
Process = subprocess.Popen[str]
SOURCES = str(Path(leasehold.__file__).parents[1])


def now() -> float:
    """Seconds on the clock that leases use."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def nothing() -> None:
    """What is healed by itself."""


class Grant(NamedTuple):
    """A lease, and when it was received."""

    lease: Lease
    at: float


class Writer:
    """The data behind a guard that keeps its own record: which fences wrote. And data without a guard."""

    def __init__(self) -> None:
        self.accepted: list[int] = []
        self.unguarded: list[int] = []
        self._guard = FenceGuard()

    def write(self, lease: Lease | int) -> bool:
        """Whether a write with this lease, or with the fence of another process, is accepted."""
        if not isinstance(lease, int):
            self._write_unguarded(lease)
        try:
            self._guard.check(lease, resource=RESOURCE if isinstance(lease, int) else None)
        except StaleOwner:
            return False
        self.accepted.append(lease if isinstance(lease, int) else lease.fence)
        return True

    def _write_unguarded(self, lease: Lease) -> None:
        """As a careful holder does where there is no guard."""
        try:
            lease.check()
        except (LeaseLost, NotHeld):
            return
        self.unguarded.append(lease.fence)

    def judge(self, cell: Cell) -> None:
        """All is as this cell says. Without a guard, a stale write landed where exclusion is lost, and nowhere else."""
        self.no_stale_write()
        if cell.fences == "holds":
            stale = self.unguarded != sorted(self.unguarded)
            assert stale == (cell.exclusion == "lost"), f"without a guard: {self.unguarded}"

    def no_stale_write(self) -> None:
        """Every write that was accepted had at least the fence of the one before (I3)."""
        assert self.accepted == sorted(self.accepted), "a stale write was accepted"


def show(
    store: str,
    event: str,
    target: Target,
    happens: Event,
    heals: Event = nothing,
    second_target: Target | None = None,
    ttl: float = TTL,
) -> None:
    """While somebody holds a lease, ``happens()``; then another claims it, on its own side of a network if need be. All
    is as the table says. ``ttl`` is that of a holder that renews: longer than the store is away."""
    show_cell(TABLE[store][event], target, happens, heals, second_target, ttl)


def show_cell(
    cell: Cell,
    target: Target,
    happens: Event,
    heals: Event = nothing,
    second_target: Target | None = None,
    ttl: float = TTL,
) -> None:
    """The same for a cell that the caller has."""
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(leasehold.connect(one if isinstance(one, str) else one()))
            for one in (target, second_target or target)
        )
        data = Writer()
        if cell.exclusion == "lost":
            old, new = _two_holders(first, second, data, happens)
            heals()
        else:
            old, new = _one_after_the_other(cell, (first, second), data, happens, heals, ttl)
        _fences(cell, old, new, data, second)
        data.judge(cell)


def show_a_small_step(target: Target, happens: Event, second_target: Target | None = None) -> None:
    """A clock is set by less than what the table states: exclusion is kept."""
    kept = Cell("holds", "holds", "holds", "It is set by less than that.", "")
    show_cell(kept, target, happens, second_target=second_target)


def _two_holders(first: Leasehold, second: Leasehold, data: Writer, happens: Event) -> tuple[Lease, Lease]:
    """The first has not noticed what happened, because it does not renew, when the second is granted."""
    old = claim(first, ttl=LONG, renew=False).lease
    assert data.write(old)
    happens()
    new = claim(second, ttl=LONG, renew=False).lease
    assert new.remaining() > 0 < old.remaining(), "exclusion was not lost: two holders were expected"
    return old, new


def _one_after_the_other(
    cell: Cell, parties: tuple[Leasehold, Leasehold], data: Writer, happens: Event, heals: Event, ttl: float
) -> tuple[Lease, Lease]:
    """The second is granted when the first has released its lease, or knows that it lost it, and not before (I1)."""
    first, second = parties
    old = claim(first, ttl=ttl).lease
    ends: list[float] = []
    old.on_lost(lambda _: ends.append(now()))
    assert data.write(old)
    happens()
    with ThreadPoolExecutor(1) as threads:
        later = threads.submit(claim, second, ttl=LONG)
        before = old.deadline
        if cell.exclusion == "refused":
            until(lambda: ends, "its holder knows that it is lost")
            until(lambda: now() > old.deadline, "it is over")  # a renewal may have been confirmed after the event
            assert ends[0] <= old.deadline, "its holder believed in it for too long"
            assert not later.done(), "it was granted meanwhile"
        else:
            until(lambda: old.deadline > before or ends, "it is renewed after the event")
            assert not ends, "it was lost"
            assert not later.done(), "it was granted meanwhile"
            assert data.write(old)
            ends.append(now())
            old.release()
        heals()
        new = later.result(PATIENCE)
    assert new.at >= min(ends), "two held it at the same time"
    return old, new.lease


def _fences(cell: Cell, old: Lease, new: Lease, data: Writer, second: Leasehold) -> None:
    """They grow, and the guard refuses the old holder from then on; or they fall, and the guard refuses the new one
    until its coordinator has learnt the higher fence."""
    if cell.fences == "lost":
        assert new.fence < old.fence, "fences were expected to fall"
        assert not data.write(new), "the guard accepted a lower fence"
        new.release()
        new = claim(second, ttl=LONG).lease
    assert new.fence > old.fence
    assert data.write(new) and not data.write(old)


# ---------------------------------------------------------------- holders that are processes


HOLDER = """
import sys, leasehold
hold, lease = leasehold.connect(sys.argv[1]), None
while lease is None:
    try:
        lease = hold.lock("report", ttl=1.5, renew=False).acquire(wait=60)
    except leasehold.StoreUnavailable:  # nothing was taken: a busy machine was too slow for so short a lease
        pass
lease.check()
print(lease.fence, lease.deadline, flush=True)
sys.stdin.readline()
print("writes", flush=True)
print(lease.state, lease.remaining(), flush=True)
"""


def show_a_killed_holder(store: str, url: str) -> None:
    """kill -9: the next is granted when the ttl is over, and not before."""
    with _holder(url) as holder:
        _outlived(store, "client_crash", url, holder, signal.SIGKILL)


def show_a_frozen_holder(store: str, url: str) -> None:
    """SIGSTOP past its ttl, after it has checked its lease: the next is granted meanwhile. When it goes on it sends its
    write all the same, which only a guard refuses; at its next call it knows that it has lost."""
    with _holder(url) as holder:
        _outlived(store, "process_pause", url, holder, signal.SIGSTOP)
        holder.send_signal(signal.SIGCONT)
        said, _ = holder.communicate("\n", timeout=PATIENCE)
        assert said.split() == ["writes", "lost", "0.0"]


@contextmanager
def _holder(url: str) -> Iterator[Process]:
    """A process that takes the lease, says its fence and its deadline, and later how it stands."""
    command, environment = [sys.executable, "-c", HOLDER, url], {**os.environ, "PYTHONPATH": SOURCES}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _outlived(store: str, event: str, url: str, holder: Process, harm: signal.Signals) -> None:
    """The holder is harmed; the next one writes, and the late write of the first is refused."""
    assert TABLE[store][event][:3] == ("holds", "holds", "holds")
    data = Writer()
    assert holder.stdout is not None
    fence, deadline = holder.stdout.readline().split()
    assert data.write(int(fence))
    holder.send_signal(harm)
    with leasehold.connect(url) as hold:
        new = claim(hold, ttl=LONG)
        assert new.at >= float(deadline), "two held it at the same time"
        assert new.lease.fence > int(fence) and data.write(new.lease) and not data.write(int(fence))
    data.no_stale_write()


# ---------------------------------------------------------------- claims


def claim(hold: Leasehold, resource: str = RESOURCE, **options: float) -> Grant:
    """The lease, as soon as the store can be reached and grants it."""
    end = now() + PATIENCE
    while True:
        try:
            lease = hold.lock(resource, **options).acquire(wait=PATIENCE)  # type: ignore[arg-type]  # ttl and renew
        except (OutcomeUnknown, StoreUnavailable):
            assert now() < end, "the store cannot be reached"
            continue
        assert lease is not None
        return Grant(lease, now())
