"""How long ``leasehold run`` takes until its command runs.

It uses the embedded store without contention, and the contenders alternate in one run. A command has begun when its
first byte arrives: ``echo`` alone is measured as well, to show what it adds. The last line is the whole of a command
that does nothing, until the lease is given back and the process has ended.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import leasehold
from benchmarks.report.rows import Result, compare
from benchmarks.rounds import Setup

START_UP, MS = "Start-up on the embedded store", "ms"
PASS, RUN = "python -c pass", "leasehold run job -- echo, until it runs"
SCRIPT = "import sys\nfrom leasehold.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"

CONNECT = "import leasehold; leasehold.connect('memory://')"
# What it would be if the library imported ``typing`` in place of ``leasehold._core.light_typing``.
WITH_TYPING = f"""
import collections, collections.abc, functools, sys, types, typing
module = sys.modules["leasehold._core.light_typing"] = types.ModuleType("light_typing")
vars(module).update({{name: getattr(typing, name) for name in (*typing.__all__, "TYPE_CHECKING")}})
vars(module).update(vars(collections.abc), deque=collections.deque, lru_cache=functools.lru_cache)
module.TypeVarTuple = lambda name, **options: typing.TypeVarTuple(name)
{CONNECT}
"""


Start = Callable[[dict[str, str]], float]


def to_the_end(*command: str) -> Start:
    """Measures until the process has ended."""

    def run(environment: dict[str, str]) -> float:
        began = time.perf_counter()
        os.waitpid(os.posix_spawn(command[0], command, environment), 0)
        return time.perf_counter() - began

    return run


def to_the_first_byte(*command: str) -> Start:
    """Measures until the process writes to standard output."""

    def run(environment: dict[str, str]) -> float:
        reading, writing = os.pipe()
        began = time.perf_counter()
        actions = [(os.POSIX_SPAWN_DUP2, writing, 1)]
        process = os.posix_spawn(command[0], command, environment, file_actions=actions)
        os.close(writing)
        assert os.read(reading, 1)
        took = time.perf_counter() - began
        os.close(reading)
        os.waitpid(process, 0)
        return took

    return run


def measure(setup: Setup, contenders: dict[str, Start], environment: dict[str, str]) -> dict[str, list[float]]:
    """Each contender in turn, round after round, in ms; the first round only fills caches."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(setup.effort.starts + 1):
        setup.step("round", number, setup.effort.starts)
        for name, run in contenders.items():
            took = run(environment)
            if number:
                times[name].append(took * 1000)
    return times


def start(setup: Setup) -> Result:
    """Python alone, importing Leasehold, and the command line."""
    python = sys.executable
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "leasehold")  # as an installer writes it
        script.write_text(f"#!{python}\n{SCRIPT}")
        script.chmod(0o755)
        environment = {
            **os.environ,
            "LEASEHOLD_URL": f"sqlite:///{name}/leases.db",
            "PYTHONPATH": str(Path(leasehold.__file__).parents[1]),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # with it each start compiles everything
        contenders = {
            PASS: to_the_end(python, "-c", "pass"),
            "import leasehold": to_the_end(python, "-c", "import leasehold"),
            "import leasehold; leasehold.connect": to_the_end(python, "-c", "import leasehold; leasehold.connect"),
            "leasehold.connect('memory://')": to_the_end(python, "-c", CONNECT),
            "the same with typing, not light_typing": to_the_end(python, "-c", WITH_TYPING),
            RUN: to_the_first_byte(str(script), "run", "job", "--", "/bin/echo", "up"),
            "echo alone": to_the_first_byte("/bin/echo", "up"),
            "leasehold run job -- true, to its end": to_the_end(str(script), "run", "job", "--", "/bin/true"),
        }
        times = measure(setup, contenders, environment)
    rows = compare(START_UP, MS, times, PASS)
    rows += compare(START_UP, "fastest, ms", {name: [min(many)] for name, many in times.items()}, PASS)
    return Result(rows)


PIECES = {"start": start}
