"""Breaks a copy of the sources in one place after the other, and shows that the tests of faults notice each.

    .venv/bin/python tools/mutants.py            every mutant
    .venv/bin/python tools/mutants.py epoch      those whose names contain the word
    .venv/bin/python tools/mutants.py --list

A mutant is a text that is replaced in one file, as often as it stands there. One whose text is gone is reported too: the
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
TESTS = ["test_replies.py", "test_cancellations.py", "test_interrupts.py", "test_closed.py"]
SECONDS = 400  # for one run: a mutant that hangs is noticed as well


class Mutant(NamedTuple):
    """A mistake that somebody could make: what it is, and where."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = [
    # ------------------------------------------------------------ an acquire that is interrupted
    Mutant("a thread: no clean-up", "primitives/lock.py", "self._clean_up(flow, attempt, grant, thread, error)", "pass"),
    Mutant("a task: no clean-up", "primitives/lock.py", "self._clean_up(flow, attempt, grant, task, error)", "pass"),
    Mutant("the attempt is not known", "primitives/lock.py", "engine.pending.add(attempt)", "pass"),
    Mutant("the attempt stays", "primitives/lock.py", "engine.pending.discard(attempt)", "pass"),
    Mutant("the grant is not released", "primitives/base_lock.py", "self._release_in_background(held)\n", "pass\n"),
    Mutant("no withdrawal after an interrupt", "primitives/base_lock.py", "self._engine.withdraw(attempt)", "pass"),
    Mutant("no withdrawal after an error", "_core/flows.py", "    await pending.withdraw_later()\n    if", "    if"),
    Mutant("the connection is not given back", "primitives/base_lock.py", "while borrowed:", "while False:"),
    Mutant(
        "the connection is given back before the reply",
        "primitives/lock.py",
        "watched = connection if events is None else events.observed_connection(connection)",
        "watched = connection; self._finish(attempt, borrowed)",
    ),
    # ------------------------------------------------------------ a body that is interrupted at its ends
    Mutant("a thread: the beginning", "primitives/lock.py", "self._enter(lease, thread)\n        except BaseException:\n            self._abandon(lease)", "self._enter(lease, thread)\n        except BaseException:\n            pass"),
    Mutant("a task: the beginning", "primitives/lock.py", "self._enter(lease, task)\n        except BaseException:\n            self._abandon(lease)", "self._enter(lease, task)\n        except BaseException:\n            pass"),
    Mutant("a thread: the end", "primitives/lock.py", "self._abandon(lease or self._innermost(current_thread), depth)", "pass"),
    Mutant("a task: the end", "primitives/lock.py", "self._abandon(lease or self._innermost(self._driver.task), depth)", "pass"),
    # ------------------------------------------------------------ a release that is not confirmed
    Mutant("no second try of a release", "_core/flows.py", "        await ops.Defer(op._replace(again=True), holding.ttl_ms / 1000)\n", ""),
    Mutant("a refused release counts", "_core/flows.py", "        if holding.phase != LOST:  # a lost lease", "        if False:  # a lost lease"),
    # ------------------------------------------------------------ replies
    Mutant("an unanswered claim is forgotten", "_core/claims.py", "        self.unanswered += 1\n", ""),
    Mutant("a claim in doubt is given up", "_core/claims.py", "if not self.unanswered:\n                raise error", "raise error"),
    Mutant("a late reply is read", "stores/redis/connection.py", "        except Broken as error:\n            self.drop()\n            raise failures.unanswered", "        except Broken as error:\n            self._socket.busy = False\n            raise failures.unanswered"),
    Mutant("an interrupted socket is used", "stores/redis/connection.py", "socket is None or socket.busy or", "socket is None or"),
    Mutant("a doubled reply is read", "stores/redis/sockets.py", "if self._next() is not NOTHING:\n            raise NotSent", "if False:\n            raise NotSent"),
    Mutant("a loop: an interrupted socket is used", "stores/redis/loop_connection.py", "        self._unsent.clear()  # whether these have left is unknown, as with all others\n        self.abort()", "        pass"),
    Mutant("a loop: a doubled reply is read", "stores/redis/loop_connection.py", "except (hiredis.HiredisError, IndexError) as error:", "except IndexError:\n            pass\n        except hiredis.HiredisError as error:"),
    Mutant("a loop: a cancelled task loses its place", "stores/redis/loop_connection.py", "future = waiting[0][0]\n                    if", "while len(waiting) > 1 and waiting[0][0].done():\n                        waiting.popleft()\n                    future = waiting[0][0]\n                    if"),
    Mutant("a loop: the place goes first", "stores/redis/loop_connection.py", "future = waiting[0][0]\n                    if not future.done():\n                        future.set_result(reply)\n                    waiting.popleft()", "future = waiting.popleft()[0]\n                    if not future.done():\n                        future.set_result(reply)\n                    pass"),
    Mutant("a script that is unknown", "stores/redis/connection.py", 'startswith("NOSCRIPT")', 'startswith("NEVER")'),
    Mutant("a loop: a script that is unknown", "stores/redis/loop_connection.py", 'startswith("NOSCRIPT")', 'startswith("NEVER")'),
    Mutant("a refusal is a grant", "stores/redis/connection.py", "            if type(reply) is ReplyError:\n                raise failures.refusal(self._server.target.server, reply) from reply\n", "            if type(reply) is ReplyError:\n                reply = [1, 10**15, op.ttl_ms] if hasattr(op, 'ttl_ms') else [3]\n"),
    # ------------------------------------------------------------ closed and forked
    Mutant("a closed coordinator registers", "_runtime/engine.py", "            if self.closed:\n                raise StoreUnavailable(CLOSED)\n", ""),
    Mutant("a closed coordinator acquires", "_runtime/engine.py", "        if self.closed:\n            shutdown.wait_for_exit()\n            raise StoreUnavailable(CLOSED)\n", "        pass\n"),
    Mutant("close() withdraws nothing", "_runtime/engine.py", "self.watchdog.postpone(Defer(withdrawal, 0))", "pass"),
    Mutant("close() gives nothing back", "_runtime/engine.py", "self.watchdog.give_back({*self.watchdog.leases(), *self.registry.releasing()}, \"closed\")", "pass"),
    Mutant("close() forgets a release", "_runtime/engine.py", "{*self.watchdog.leases(), *self.registry.releasing()}", "self.watchdog.leases()"),
    Mutant("the epoch is not checked", "_runtime/sync.py", "if engine.epoch != epoch:", "if False:"),
    Mutant("a child keeps its parent's leases", "_runtime/watchdog.py", "            held.forked(self.transitions)", "            pass"),
    Mutant("a child keeps its parent's connections", "stores/redis/store.py", "            connection.forked()", "            pass"),
]  # fmt: skip


def copy_with(mutant: Mutant, folder: Path) -> str:
    """Make the mutant there; a reason when that is impossible."""
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "leasehold" / mutant.file
    text = file.read_text()
    if mutant.old not in text:
        return f"its text is no longer in {mutant.file}"
    file.write_text(text.replace(mutant.old, mutant.new))
    return ""


def survives(folder: Path) -> tuple[bool, str]:
    """Do the tests pass with these sources? And the first that failed."""
    tests = [str(ROOT / "tests/integration/faults" / name) for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "LEASEHOLD_SOON": "3"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False, "it hangs"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode == 0, (failed or ["?"])[0].partition("::")[2][:80]


def main() -> int:
    """The number of mutants that were not noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args()
    missed = 0
    for mutant in [one for one in MUTANTS if chosen.word in one.name]:
        if chosen.list:
            print(f"{mutant.file:40} {mutant.name}")
            continue
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mutant-") as temporary:
            folder = Path(temporary) / "src"
            why = copy_with(mutant, folder)
            alive, test = (True, why) if why else survives(folder)
        missed += alive
        verdict = "CANNOT BE MADE" if why else "SURVIVES" if alive else "noticed"
        print(f"{verdict:14} {mutant.name:45} {time.monotonic() - begun:4.0f} s  {test}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
