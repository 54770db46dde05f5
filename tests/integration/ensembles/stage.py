"""A holder that renews, and claims that wait behind it, while something happens to the members of an ensemble.

What is judged at the end: nobody believed in the lease at the same time as another (I1), fences grew (I2), the guard
accepted no stale write (I3); all who waited were granted in the end; and nothing is left: no place in the queue, no
session, no thread and no socket.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from leasehold import LeaseLost, NotHeld, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.coordinator.stores import open_store
from leasehold.guards.memory import FenceGuard
from tests.integration.ensembles.members import Members
from tests.support.parties import FLAVOURS, Party
from tests.support.waiting import PATIENCE, until
from tests.support.workers import journal
from tests.support.workers.crew import report
from tests.support.workers.journal import now

RESOURCE = "job"
TTL = 15.0  # seconds: longer than any election
SHORT = 2.0  # of a lease that is to be lost
WAITERS = ("sync", "asyncio", "sync")
UNCERTAIN = (OutcomeUnknown, StoreUnavailable)
OVER = (LeaseLost, NotHeld)
PACE = 0.05  # seconds between two writes


Opened = TypeVar("Opened", bound=AbstractContextManager[Any])


class Inside(NamedTuple):
    """Somebody's time inside, as far as it believed in its lease."""

    since: float
    till: float
    fence: int
    owner: str


class Data(Protocol):
    """What the lease protects, behind a guard."""

    @property
    def accepted(self) -> Sequence[int]:
        """Which fences wrote, in their order."""

    def write(self, lease: Any) -> bool:
        """Whether it is accepted."""


class OwnData:
    """For threads of this process."""

    def __init__(self) -> None:
        self.accepted: list[int] = []
        self._guard = FenceGuard()
        self._lock = threading.Lock()

    def write(self, lease: Any) -> bool:
        """Whether it is accepted."""
        with self._lock:
            try:
                self._guard.check(lease)
            except StaleOwner:
                return False
            self.accepted.append(lease.fence)
            return True


class SharedData:
    """For several processes: a journal."""

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def accepted(self) -> list[int]:
        """As it says in the end."""
        return journal.read(self._path).fences

    def write(self, lease: Any) -> bool:
        """Whether it is accepted."""
        with closing(journal.open_journal(self._path)) as connection:
            try:
                journal.increment(connection, lease, lease.owner)
            except StaleOwner:
                return False
            return True


class Worker(threading.Thread):
    """Acquires, writes for a while, and gives back; so often as it is told. It goes on whatever happens."""

    def __init__(self, party: Party, data: Data, ttl: float, turns: int = 1) -> None:
        super().__init__(daemon=True)
        self.party, self.data, self.ttl, self.left = party, data, ttl, turns
        self.patience: Callable[[], float] | None = None  # how long it stays; None: until it is told to leave
        self.turns: list[Inside] = []
        self.lease: Any = None
        self.held = threading.Event()
        self.leave = threading.Event()
        self.lost = False
        self.errors: Counter[str] = Counter()
        self.wrong: list[BaseException] = []
        self.start()

    def run(self) -> None:
        """Until it has had its turns."""
        try:
            while self.left > 0:
                self._turn()
        except BaseException as error:  # the test reports it
            self.wrong.append(error)

    def _turn(self) -> None:
        try:
            lease = self.party.do(lambda hold: hold.lock(RESOURCE, ttl=self.ttl).acquire(wait=PATIENCE / 3))
        except UNCERTAIN as error:
            self.errors[type(error).__name__] += 1
            time.sleep(0.01)
            return
        if lease is None:
            return
        since = now()
        self.left -= 1
        self.lease = lease
        self.held.set()
        self._write(lease)
        self.turns.append(Inside(since, min(now(), lease.deadline), lease.fence, lease.owner))
        with suppress(*UNCERTAIN, *OVER):
            self.party.do(lambda _: lease.release())

    def _write(self, lease: Any) -> None:
        """Until it is told to leave, or has lost the lease, or its patience is over."""
        end = inf if self.patience is None else now() + self.patience()
        while True:
            self.data.write(lease)
            try:
                lease.check()
            except OVER:
                self.lost = True
                return
            if now() >= end or self.leave.wait(PACE):
                return


class Stage:
    """The holder, and those who wait."""

    def __init__(self, members: Members, stack: ExitStack) -> None:
        self.members = members
        self.data: Data = OwnData()
        self.workers: list[Worker] = []
        self.elsewhere: list[Inside] = []  # the turns of other processes
        self._stack = stack

    def enter(self, flavour: str, *servers: Any, ttl: float = TTL, turns: int = 1) -> Worker:
        """Somebody else, by way of these members."""
        party = FLAVOURS[flavour](open_store(self.members.url(*servers)))
        self._stack.callback(party.close)
        worker = Worker(party, self.data, ttl, turns)
        self.workers.append(worker)
        return worker

    def open(self, thing: Opened) -> Opened:
        """What is closed after everybody has left."""
        self._stack.enter_context(thing)
        return thing

    def hold(self, *servers: Any, ttl: float = TTL) -> Worker:
        """Somebody who holds."""
        holder = self.enter("sync", *servers, ttl=ttl)
        assert holder.held.wait(PATIENCE), holder.wrong
        return holder

    def queue(self, *servers: Any, ttl: float = TTL) -> list[Worker]:
        """Some who wait, in both flavours, and leave at once when they were granted."""
        waiters = [self.enter(flavour, *servers, ttl=ttl) for flavour in WAITERS]
        for waiter in waiters:
            waiter.leave.set()
        until(lambda: self.members.places() == len(waiters), "all of them wait", every=0.02)
        return waiters

    def end(self) -> None:
        """Everybody leaves; all who waited were granted; what is recorded is sound."""
        for worker in self.workers:
            worker.leave.set()
        for worker in self.workers:
            worker.join(PATIENCE)
            assert not worker.is_alive(), f"somebody is stuck: {worker.errors}"
        assert [error for worker in self.workers for error in worker.wrong] == []
        turns = [turn for worker in self.workers for turn in worker.turns] + self.elsewhere
        report(f"{len(turns)} turns, {dict(sum([worker.errors for worker in self.workers], Counter()))}")
        judge(turns, self.data.accepted)
        until(lambda: self.members.places() == 0, "nobody has a place", every=0.02)


def judge(turns: Sequence[Inside], accepted: Sequence[int]) -> None:
    """I1, I2 and I3. An owner has one grant in its life."""
    for one, other in pairwise(sorted(turn for turn in turns if turn.since < turn.till)):
        assert one.till <= other.since, f"{one} and {other} were inside together"
        assert one.fence < other.fence, f"{other.fence} came after {one.fence}"
    assert len({turn.owner for turn in turns}) == len(turns)
    assert list(accepted) == sorted(accepted), "a stale write was accepted"


@contextmanager
def stage(members: Members) -> Iterator[Stage]:
    """Afterwards nothing is left of those who were on it."""
    ports = {one.port for one in members.servers}
    threads = set(threading.enumerate())
    with ExitStack() as stack:
        made = Stage(members, stack)
        yield made
        made.end()
    ports |= {one.port for one in members.servers}  # some may have come meanwhile
    until(lambda: members.sessions() == 0, "no session is left", every=0.02)
    until(lambda: not sockets(ports), "no socket is left")
    until(lambda: not [one for one in threading.enumerate() if one not in threads], "no thread is left")


def sockets(ports: set[int]) -> list[str]:
    """Those of this process that are connected to these ports."""
    ours = set()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            ours.add(str(file.readlink()))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return [row[2] for row in rows if int(row[2].split(":")[1], 16) in ports and f"socket:[{row[9]}]" in ours]


Fault = Callable[[], object]


def nothing() -> None:
    """What is healed by itself."""


def survived(members: Members, fault: Fault, *servers: Any, ttl: float = TTL, before_healing: Fault = nothing) -> None:
    """The holder goes on through the fault: its lease is renewed afterwards, and those who wait get it next."""
    with stage(members) as played:
        holder = played.hold(*servers, ttl=ttl)
        played.queue(*servers, ttl=ttl)
        fault()
        until(members.leader, "there is a leader")
        renewed = now() + ttl  # a deadline that only a renewal after the fault can give
        until(lambda: holder.lost or holder.wrong or holder.lease.deadline > renewed, "its lease is renewed")
        assert not holder.lost and not holder.wrong, "the lease was lost"
        before_healing()
        members.heal()
