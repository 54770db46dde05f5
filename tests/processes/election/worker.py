"""A process that stands for an election again and again, and writes down when it believed to lead.

Each line of its journal is one moment on a clock that all processes share: ``elected``, ``until`` (its local deadline
moved) and ``demoted``. What it wrote before it was killed stays.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from types import FrameType
from typing import Any

import leasehold


def now() -> float:
    """Seconds on a clock that all processes of this machine share; local deadlines are on it, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Journal:
    """Appended to, one line in one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, event: str, term: int, at: float, **more: Any) -> None:
        """At once: the next moment may be the last."""
        os.write(self._file, json.dumps({"event": event, "term": term, "at": at, **more}).encode() + b"\n")


def lead(term: leasehold.Term, journal: Journal, longest: float) -> None:
    """Lead until it is lost, or for so long."""
    began, until = now(), 0.0
    journal.write("elected", term.term, began, until=term.deadline)
    while term.state in ("held", "unsure") and now() < began + longest:
        if term.deadline != until:
            until = term.deadline
            journal.write("until", term.term, until)
        time.sleep(0.004)  # the work
    journal.write("demoted", term.term, now())


def main(url: str, path: str, ttl: float, seed: int) -> None:
    """Until somebody sends SIGTERM."""
    chance = random.Random(seed)
    with leasehold.connect(url) as hold:
        election = hold.election("leader", ttl=ttl, value=seed)

        def stop(number: int, frame: FrameType | None) -> None:
            if not election.resign():
                raise SystemExit(0)

        signal.signal(signal.SIGTERM, stop)
        journal = Journal(path)  # from here on it may be told to stop
        for term in election.campaign():
            lead(term, journal, chance.uniform(0.5, 3) * ttl)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
