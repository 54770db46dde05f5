"""Breaks a copy of the sources in one place after the other, and shows that the tests of faults notice each.

    .venv/bin/python tools/mutants.py            every mutant
    .venv/bin/python tools/mutants.py fork       those whose names contain the word
    .venv/bin/python tools/mutants.py --list

A mutant replaces texts in one file, wherever they stand there. One of whose texts none is left is reported, too: the
code has moved on, and the mutant must follow. Exit status 1: a mutant survived, or could not be made.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TESTS = ("test_replies", "test_cancellations", "test_refusals", "test_interrupts", "test_forks", "test_closed")
SECONDS = 400  # for one run: a mutant that hangs is noticed as well


class Mutant(NamedTuple):
    """A mistake that somebody could make: what it is, and where."""

    name: str
    file: str
    changes: dict[str, str]


LOCK, BASE_LOCK, SYNC = "primitives/lock.py", "primitives/base_lock.py", "_runtime/sync.py"
ENGINE, FLOWS, CLAIMS = "_runtime/engine.py", "_core/flows.py", "_core/claims.py"
THREAD, SOCKET = "stores/redis/connection.py", "stores/redis/sockets.py"
LOOP, LOOP_SOCKET = "stores/redis/loop_connection.py", "stores/redis/loop_socket.py"

MUTANTS = [
    # ------------------------------------------------------------ an acquire that is interrupted
    Mutant(
        "a thread does not clean up",
        LOCK,
        {
            "self._clean_up(flow, attempt, grant, thread, error)": "pass",
            "self._clean_up(attempt, grant, thread, error)": "pass",
        },
    ),
    Mutant(
        "a task does not clean up",
        LOCK,
        {
            "self._clean_up(flow, attempt, grant, task, error)": "pass",
            "self._clean_up(attempt, grant, task, error)": "pass",
        },
    ),
    Mutant("the attempt is not known", LOCK, {"engine.pending.add(attempt)": "pass"}),
    Mutant("the attempt stays", LOCK, {"engine.pending.discard(attempt)": "pass"}),
    Mutant("the grant is not released", BASE_LOCK, {"self._release_in_background(held)\n": "pass\n"}),
    Mutant("an interrupted claim is not withdrawn", BASE_LOCK, {"self._engine.withdraw(attempt)": "pass"}),
    Mutant("a claim in doubt is not withdrawn", FLOWS, {"    await pending.withdraw_later()\n    if": "    if"}),
    Mutant("the connection is not given back after an error", BASE_LOCK, {"while borrowed:": "while False:"}),
    Mutant(
        "the connection is given back before the reply",
        LOCK,
        {
            "grant = sync.drive(": "self._finish(attempt, borrowed)\n            grant = sync.drive(",
            "grant = self._claim(": "engine.connections.give_back(connection)\n            grant = self._claim(",
        },
    ),
    # ------------------------------------------------------------ a body that is interrupted at its ends
    Mutant(
        "a body that cannot begin is not given up",
        LOCK,
        {"except BaseException:\n            self._abandon(lease)\n": "except BaseException:\n            pass\n"},
    ),
    Mutant(
        "a thread does not give up a body",
        LOCK,
        {
            "self._abandon(lease or self._innermost(current_thread), depth)": "pass",
            "self._abandon(lease or self._innermost(current_thread()), depth)": "pass",
        },
    ),
    Mutant(
        "a task does not give up a body",
        LOCK,
        {
            "self._abandon(lease or self._innermost(self._driver.task), depth)": "pass",
            "self._abandon(lease or self._innermost(self._driver.task()), depth)": "pass",
        },
    ),
    # ------------------------------------------------------------ replies that do not come, or are errors
    Mutant(
        "no second try of a release",
        FLOWS,
        {"        await ops.Defer(op._replace(again=True), holding.ttl_ms / 1000)\n": ""},
    ),
    Mutant("an unanswered claim is forgotten", CLAIMS, {"        self.unanswered += 1\n": ""}),
    Mutant(
        "a claim in doubt is given up",
        CLAIMS,
        {"if not self.unanswered:\n                raise": "if True:\n                raise"},
    ),
    Mutant("an unknown script is an error", THREAD, {'startswith("NOSCRIPT")': 'startswith("NEVER")'}),
    Mutant("an unknown script is an error, on a loop", LOOP, {'startswith("NOSCRIPT")': 'startswith("NEVER")'}),
    Mutant(
        "an error reply is a confirmation",
        THREAD,
        {"raise failures.refusal(self._server.target.server, reply) from reply": "reply = [5]"},
    ),
    # ------------------------------------------------------------ replies that are taken for others
    Mutant(
        "a late reply is read",
        THREAD,
        {
            "            self.drop()\n            raise failures.unanswered": (
                "            self._socket.busy = False\n            raise failures.unanswered"
            )
        },
    ),
    Mutant(
        "an interrupted socket is used",
        THREAD,
        {"socket is None or socket.busy or": "socket is None or", "and not socket.busy and": "and"},
    ),
    Mutant("a reply that came twice is read", SOCKET, {"self._expect_no_reply()\n": "pass\n"}),
    Mutant(
        "an interrupted socket is used, on a loop",
        LOOP_SOCKET,
        {"        self._unsent.clear()  # whether these have left is unknown": "        return\n        # unknown"},
    ),
    Mutant(
        "a reply that is interrupted is lost, on a loop",
        LOOP_SOCKET,
        {"future = waiting[0][0]\n": "future = waiting.popleft()[0]\n", "waiting.popleft()  # last": "pass  # last"},
    ),
    Mutant(
        "the place of a cancelled task goes to the next, on a loop",
        LOOP_SOCKET,
        {
            "future = waiting[0][0]\n": (
                "while len(waiting) > 1 and waiting[0][0].done():\n                        waiting.popleft()\n"
                "                    future = waiting[0][0]\n"
            )
        },
    ),
    # ------------------------------------------------------------ closed and forked
    Mutant(
        "a closed coordinator registers a lease",
        ENGINE,
        {"            if self.closed:\n                raise StoreUnavailable(CLOSED)\n": ""},
    ),
    Mutant("close() withdraws nothing", ENGINE, {"self.watchdog.postpone(Defer(withdrawal, 0))": "pass"}),
    Mutant(
        "close() forgets a release that is under way",
        ENGINE,
        {"{*self.watchdog.leases(), *self.registry.releasing()}": "self.watchdog.leases()"},
    ),
    Mutant("after a fork the child registers the lease", ENGINE, {"if self.epoch != epoch:": "if False:"}),
    Mutant(
        "after a fork the child sends for its parent",
        "_runtime/connections.py",
        {"connection.close()  # the store has dropped": "pass  # the store has dropped"},
    ),
    Mutant("after a fork the child holds as well", "_runtime/watchdog.py", {"held.forked(self.transitions)": "pass"}),
]


def make(mutant: Mutant, folder: Path) -> bool:
    """Copy the sources there and break them. False: none of its texts is there."""
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "leasehold" / mutant.file
    text = before = file.read_text()
    for old, new in mutant.changes.items():
        text = text.replace(old, new)
    file.write_text(text)
    return text != before


def run_tests(folder: Path) -> str:
    """The first test that fails with these sources; nothing when all pass."""
    tests = [f"tests/integration/faults/{name}.py" for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "LEASEHOLD_SOON": "3"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "it hangs"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (failed or [f"exit status {done.returncode}"])[0].partition("::")[2] if done.returncode else ""


def judge(mutant: Mutant) -> bool:
    """Is it noticed? Says so."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as temporary:
        folder = Path(temporary) / "src"
        made = make(mutant, folder)
        test = run_tests(folder) if made else ""
    verdict = "noticed" if test else "SURVIVES" if made else "CANNOT BE MADE"
    sys.stdout.write(f"{verdict:14} {mutant.name:58} {time.monotonic() - begun:4.0f} s  {test}\n")
    sys.stdout.flush()
    return bool(test)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if given.word in mutant.name]
    if given.list:
        sys.stdout.writelines(f"{mutant.file:32} {mutant.name}\n" for mutant in chosen)
        return 0
    verdicts = [judge(mutant) for mutant in chosen]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
