"""Shell completion: the scripts, and what they offer."""

from __future__ import annotations

import pytest

from tests.cli.desk import Desk

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
    assert offered(desk, "leasehold run --on") == {"--on-lost"}
    assert offered(desk, "leasehold run --on-lost ") == {"term", "kill", "warn"}


def test_names_of_resources(desk: Desk) -> None:
    """Names in the embedded store; a store behind a network is not asked."""
    with desk.hold.lock("report-export", 42), desk.hold.lock("rebuild"):
        assert offered(desk, "leasehold inspect re") == {"report-export:42", "rebuild"}
        assert offered(desk, "leasehold run rep") == {"report-export:42"}
        assert offered(desk, "leasehold inspect re", LEASEHOLD_URL="redis://127.0.0.1:1") == set()
        assert offered(desk, "leasehold inspect re", LEASEHOLD_URL="nonsense") == set()
