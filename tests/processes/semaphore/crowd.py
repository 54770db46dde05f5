"""A crowd of processes around one semaphore, of whom one in five dies with SIGKILL while it holds.

``python -m tests.processes.semaphore.crowd URL EVIDENCE TURNS SEED``: it ends when there were so many turns. The dead
are replaced. Whoever watches sees no more than the processes do.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import leasehold
from leasehold.errors import StaleOwner
from tests.processes.semaphore import evidence
from tests.support.workers.journal import open_journal

LIMIT, TTL, WORKERS = 4, 0.5, 6
MORTAL, GREEDY = 0.2, 0.25  # one in five is killed, one in four wants two permits


def life(url: str, data: str, turns: int, seed: int) -> None:
    """Turn after turn, until there were enough or it is killed."""
    chance, journal = random.Random(seed), open_journal(data)
    with leasehold.connect(url) as hold:
        pool = hold.semaphore("pool", limit=LIMIT, ttl=TTL, wait=20)
        while evidence.count(journal) < turns:
            permit = pool.acquire(permits=2 if chance.random() < GREEDY else 1)
            if permit is None:
                raise TimeoutError("the semaphore is stuck")
            try:
                number = evidence.enter(journal, permit)
                time.sleep(chance.uniform(0, 0.01))  # its work
                if chance.random() < MORTAL:
                    os.kill(os.getpid(), signal.SIGKILL)
                evidence.leave(journal, number, permit)
            except StaleOwner:  # the machine stood still for a ttl
                continue
            finally:
                permit.release()


def hatch(url: str, data: str, turns: int, seed: int) -> int:
    """A child; its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            life(url, data, turns, seed)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def main(url: str, data: str, turns: int, seed: int) -> int:
    """How many were killed; whatever else happened to one of them is an error."""
    alive = {hatch(url, data, turns, seed * 1000 + number) for number in range(WORKERS)}
    killed = 0
    while alive:
        pid, status = os.wait()
        alive.remove(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            killed += 1
            alive.add(hatch(url, data, turns, seed * 1000 + WORKERS + killed))
        elif code:
            raise SystemExit(f"a worker ended with {code}")
    return killed


if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))}\n")
