"""How long ``leasehold run`` takes until its command runs: ``python -m benchmarks.startup``.

It uses the embedded store without contention, and the contenders alternate in one run. A command has begun when its
first byte arrives: ``echo`` alone is measured as well, to show what it adds.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import leasehold

GOAL = 3.0  # times python -c pass
ROUNDS = 40
SCRIPT = "import sys\nfrom leasehold.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"

CONNECT = "import leasehold; leasehold.connect('memory://')"
# What it would be if the library imported ``typing`` in place of ``leasehold._core.light_typing``.
WITH_TYPING = f"""
import sys, types, typing
module = sys.modules["leasehold._core.light_typing"] = types.ModuleType("light_typing")
vars(module).update({{name: getattr(typing, name) for name in (*typing.__all__, "TYPE_CHECKING")}})
module.TypeVarTuple = lambda name, **options: typing.TypeVarTuple(name)
{CONNECT}
"""


def to_the_end(*command: str) -> Callable[[], float]:
    """Measures until the process has ended."""

    def run() -> float:
        began = time.perf_counter()
        os.waitpid(os.posix_spawn(command[0], command, os.environ), 0)
        return time.perf_counter() - began

    return run


def to_the_first_byte(*command: str) -> Callable[[], float]:
    """Measures until the process writes to standard output."""

    def run() -> float:
        reading, writing = os.pipe()
        began = time.perf_counter()
        actions = [(os.POSIX_SPAWN_DUP2, writing, 1)]
        process = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        os.close(writing)
        assert os.read(reading, 1)
        took = time.perf_counter() - began
        os.close(reading)
        os.waitpid(process, 0)
        return took

    return run


def measure(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each contender in turn, round after round; the first round only fills caches."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            took = run()
            if number:
                times[name].append(took * 1000)
    return times


def main() -> None:
    """About ten seconds."""
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "leasehold")  # as an installer writes it
        script.write_text(f"#!{sys.executable}\n{SCRIPT}")
        script.chmod(0o755)
        os.environ["LEASEHOLD_URL"] = f"sqlite:///{name}/leases.db"
        os.environ["PYTHONPATH"] = str(Path(leasehold.__file__).parents[1])
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        python = sys.executable
        print("start-up ...", file=sys.stderr)
        times = measure(
            {
                "python -c pass": to_the_end(python, "-c", "pass"),
                "import leasehold": to_the_end(python, "-c", "import leasehold"),
                "import leasehold; leasehold.connect": to_the_end(python, "-c", "import leasehold; leasehold.connect"),
                "leasehold.connect('memory://')": to_the_end(python, "-c", CONNECT),
                "the same with typing, not light_typing": to_the_end(python, "-c", WITH_TYPING),
                "leasehold run job -- echo, until it runs": to_the_first_byte(
                    str(script), "run", "job", "--", "/bin/echo", "up"
                ),
                "echo alone": to_the_first_byte("/bin/echo", "up"),
            },
            ROUNDS,
        )
    base = times["python -c pass"]
    print(f"\nStart-up; the goal for leasehold run is {GOAL:g} × python -c pass")
    print(f"  {'':<44}{'median ms':>12}{'fastest ms':>12}{'× pass':>9}{'× fastest':>11}")
    for what, many in times.items():
        median, fastest = statistics.median(many), min(many)
        ratios = f"{median / statistics.median(base):>9.2f}{fastest / min(base):>11.2f}"
        print(f"  {what:<44}{median:>12.1f}{fastest:>12.1f}{ratios}")


if __name__ == "__main__":
    main()
