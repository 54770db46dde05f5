"""One failover after another while many parties take turns: nobody hangs, nothing leaks, and the guard holds."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from leasehold import LeaseholdError, StaleOwner
from leasehold.guards.memory import FenceGuard
from tests.integration.sentinel.service import RECOVERY, Service
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.soak]
HARMS = ("kill", "freeze", "cut") * 3
PARTIES = 4


class Turns:
    """What the parties do: take the lock, write under its fence, and give it back, until the end."""

    def __init__(self, service: Service) -> None:
        self.guard = FenceGuard()
        self.written: list[int] = []  # fences, in the order of the writes
        self.refused = 0
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=[service.party()], daemon=True) for _ in range(PARTIES)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, party: Any) -> None:
        while not self.over.is_set():
            try:
                lease = party.do(lambda hold: hold.lock("job", ttl=3).acquire(wait=5))
            except LeaseholdError:
                continue
            with self._lock:
                try:
                    self.guard.check(lease)
                    self.written.append(lease.fence)
                except StaleOwner:
                    self.refused += 1
            try:
                party.do(lambda _, lease=lease: lease.release())
            except LeaseholdError:
                pass

    def end(self) -> None:
        """Everybody stops."""
        self.over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a party hangs"


def test_one_failover_after_another(service: Service) -> None:
    """Primaries are killed, frozen and cut off in turn. After each, writes go on in twice the time of a recovery."""
    turns = Turns(service)
    for harm in HARMS:
        old = service.servers.primary
        if harm == "cut":
            service.servers.cut_replication()
        (old.freeze if harm == "freeze" else old.kill)()
        service.servers.await_another(old)
        written = len(turns.written)
        until(lambda: len(turns.written) > written, f"writes go on after {harm}", within=RECOVERY)  # noqa: B023
        (old.thaw if harm == "freeze" else old.start)()
        service.servers.heal()
    turns.end()
    assert turns.written == sorted(set(turns.written)), "the guard accepted an older fence"
    assert len(turns.written) > 10 * len(HARMS)
