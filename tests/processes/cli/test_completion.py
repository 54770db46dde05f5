"""Shell completion: the scripts, and what they offer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.cli.desk import SOON, SOURCE, Desk

pytestmark = pytest.mark.slow


def offered(desk: Desk, line: str, **environment: str) -> set[str]:
    """What bash would offer at the end of a line."""
    words = line.split(" ")
    env = {"_LEASEHOLD_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), **environment}
    return {item.partition(",")[2] for item in desk.run(env=env).stdout.splitlines() if item}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(desk: Desk, shell: str) -> None:
    """Each shell gets one that asks us."""
    done = desk.run("completion", shell)
    assert (done.returncode, "_LEASEHOLD_COMPLETE" in done.stdout) == (0, True)


def test_commands_and_options(desk: Desk) -> None:
    """Commands, options and their choices."""
    assert offered(desk, "leasehold i") == {"inspect"}
    assert offered(desk, "leasehold run --on") == {"--on-lost", "--on-revoke"}
    assert offered(desk, "leasehold run --on-lost ") == {"term", "kill", "warn"}


def test_names_of_resources(desk: Desk) -> None:
    """Names in the embedded store; a store behind a network is not asked."""
    with desk.hold.lock("report-export", 42), desk.hold.lock("rebuild"):
        assert offered(desk, "leasehold inspect re") == {"report-export:42", "rebuild"}
        assert offered(desk, "leasehold run rep") == {"report-export:42"}
        assert offered(desk, "leasehold inspect re", LEASEHOLD_URL="redis://127.0.0.1:1") == set()
        assert offered(desk, "leasehold inspect re", LEASEHOLD_URL="nonsense") == set()


def test_only_what_a_shell_leaves_alone(desk: Desk) -> None:
    """bash puts a name on the line as it is: one that would mean something to it is not offered."""
    with desk.hold.lock("job; reboot"), desk.hold.lock("job", "$HOME"), desk.hold.lock("job", "ü-1"):
        assert offered(desk, "leasehold inspect jo") == {"job:ü-1"}


ASK = """
leasehold() { "$PYTHON" -m leasehold "$@"; }
env() { (export "$1" "$2"; shift 2; "$@"); }  # env(1) knows no functions
eval "$(leasehold completion bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$' :='
_leasehold_completion leasehold
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("leasehold inspect jo", ["job:17", "job:18"]),
        ("leasehold inspect job:1", ["17", "18"]),
        ("leasehold inspect job:", ["17", "18"]),
        ("leasehold inspect 'job:1", ["job:17", "job:18"]),
        ("leasehold run --on-lost=k", ["kill"]),
        ("leasehold inspect ", ["job:17", "job:18"]),
    ],
)
def test_bash(desk: Desk, line: str, replies: list[str]) -> None:
    """It breaks words at colons and replaces what stands behind the last one, unless that is in quotes."""
    environment = {**os.environ, "LEASEHOLD_URL": desk.url, "PYTHONPATH": str(SOURCE), "PYTHON": sys.executable}
    with desk.hold.lock("job", 17), desk.hold.lock("job", 18):
        command = ["bash", "-c", ASK, "bash", line]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SOON, check=False)
    assert (sorted(done.stdout.split()), done.stderr) == (replies, "")
