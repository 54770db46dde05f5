"""A program that uses a lock again and again, and is forked by a signal handler on every line of it.

It is a program of its own because a small process forks quickly. It prints what went wrong, and how many lines there
were. A child goes on with what its parent was doing, as it does when a handler forks: it must not hold what its parent
holds, and its parent must not notice.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import leasehold
from tests.support.faults.aftermath import expect_sound
from tests.support.faults.places import Line, Places
from tests.support.faults.user import ThreadUser, Use, familiar

WARM = 120  # uses after which the path is what it stays
MOST = 2000  # lines
CHILD_SECONDS = 60


class Fork:
    """Forks when it is called, and lets the child report to its parent."""

    def __init__(self) -> None:
        self.pid = -1
        self.states: list[str] = []  # of the lease, in the body
        self._read, self._write = os.pipe()

    def __call__(self) -> None:
        """What the signal handler does."""
        self.pid = os.fork()
        if self.pid == 0:
            self.states.clear()  # of a body that ran before the fork
            signal.alarm(CHILD_SECONDS)

    def end_child(self, use: Use) -> None:
        """In the child: what became of its use."""
        raised = use.raised.__name__ if use.raised else ""
        os.write(self._write, json.dumps([use.fences, raised, self.states]).encode())
        os._exit(0)

    def result(self) -> tuple[list[int], str, list[str]]:
        """In the parent: what the child says."""
        os.close(self._write)
        with os.fdopen(self._read) as pipe:
            text = pipe.read()
        os.waitpid(self.pid, 0)
        assert text, "the child died"
        fences, raised, states = json.loads(text)
        return fences, raised, states

    def close(self) -> None:
        """Nobody was forked."""
        os.close(self._read)
        os.close(self._write)


def fork_once(user: ThreadUser, other: leasehold.Leasehold, number: int, known: set[Line]) -> str:
    """Fork on the first line that is not known, and judge both. Where that was; nothing when there is none left."""
    fork = Fork()
    places = Places(1, fork, known)
    use = user.use(number, places, lambda lease: fork.states.append(lease.state))
    if fork.pid == 0:
        fork.end_child(use)
    if not places.where:
        fork.close()
        return ""
    known |= places.lines
    fences, raised, child_states = fork.result()
    assert use.raised is None and fork.states == ["held"], f"the parent notices: {use}, {fork.states}"
    assert child_states in ([], ["held"], ["lost"]) and raised in ("", "StoreUnavailable", "LeaseLost"), raised
    if child_states == ["held"]:
        assert fences != use.fences and raised == "", "a child that works on has a lease of its own"
    expect_sound(user, other, use)
    return places.where


def main(url: str) -> None:
    """Report as JSON."""
    user, other = ThreadUser(url), leasehold.connect(url)
    for _ in range(WARM):
        user.use(0)
    known: set[Line] = set()
    wrong = []
    for number in range(1, MOST):
        before = set(known)
        try:
            if not fork_once(user, other, familiar(user, number), known):
                break
        except AssertionError as error:
            places = ", ".join(f"line {line} of {Path(file).name}" for file, line in known - before)
            wrong.append(f"{places}: {error}")
    sys.stdout.write(json.dumps([len(known), wrong]))
    user.close()
    other.close()


if __name__ == "__main__":
    main(sys.argv[1])
