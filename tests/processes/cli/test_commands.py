"""The command line around its commands: version, help, mistakes, and a missing click."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import leasehold
from tests.support.cli.stage import run


def test_version(tmp_path: Path) -> None:
    """``--version`` says the name and the version, in one line."""
    done = run(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"leasehold {leasehold.__version__}\n")


def test_help_names_what_is_there(tmp_path: Path) -> None:
    """The help lists the commands of this version, and none that a later one brings."""
    done = run(tmp_path, "--help")
    listed = [line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines() if line.strip()]
    assert (done.returncode, listed) == (
        0,
        [
            "advise",
            "audit",
            "clear",
            "completion",
            "cron",
            "demo",
            "doctor",
            "elect",
            "guarantees",
            "guard",
            "inspect",
            "leaks",
            "ls",
            "revoke",
            "run",
            "status",
            "store",
            "top",
            "ttl",
        ],
    )


def test_mistakes_exit_with_2(tmp_path: Path) -> None:
    """An unknown command or option is a usage error: 2, said on standard error."""
    for arguments in (["levitate"], ["demo", "--levitate"], ["demo", "42"]):
        done = run(tmp_path, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Usage:" in done.stderr


def test_without_click_it_says_what_to_install() -> None:
    """The library needs no click; the command line says how to get it and exits with 78."""
    program = "import sys; sys.modules['click'] = None; import leasehold.cli; leasehold.cli.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 78
    assert "pip install 'leasehold[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plain_run_needs_no_click(tmp_path: Path) -> None:
    """It starts fast: click is not even looked for."""
    program = "import sys; sys.modules['click'] = None; import leasehold.cli; leasehold.cli.main()"
    arguments = ["--url", f"sqlite:///{tmp_path}/leases.db", "run", "job", "--", "echo", "up"]
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "up\n", "")


def test_without_click_a_mistake_in_a_run_is_told() -> None:
    """A run needs no click, so neither does hearing what is wrong with one: 2."""
    program = "import sys; sys.modules['click'] = None; import leasehold.cli; leasehold.cli.main()"
    command = [sys.executable, "-c", program, "--json", "run", "job", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (2, "leasehold: write -- before the command\n")
