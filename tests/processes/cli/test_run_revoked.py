"""An operator asks ``leasehold run`` for its lease: the command goes on, or is ended, as ``--on-revoke`` says."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.support.cli.desk import Desk, alive, pids

pytestmark = pytest.mark.slow

WITH_A_CHILD = "touch up; sleep 600 & echo $! > pid; wait"


def ask(desk: Desk, process: subprocess.Popen[Any]) -> int:
    """Ask for it, from a moment after it began on; the fence."""
    desk.until(lambda: desk.hold.revoke("job"), process)
    holder = desk.hold.inspect("job").holder
    return 0 if holder is None else holder.fence


def test_the_command_is_ended(desk: Desk) -> None:
    """With all that it started. The exit code is its own, and the lease is free at once."""
    process = desk.holding("job", "--ttl", "60s", "--on-revoke", "term", script=WITH_A_CHILD)
    desk.until(lambda: desk.path("pid").exists() and desk.path("pid").read_text().strip(), process)
    ask(desk, process)
    code, _, err = desk.ended(process)
    assert (code, err) == (143, "leasehold: an operator asks for the lease on job: the command is ended\n")
    assert not alive(*pids(desk.path("pid"))) and not desk.hold.inspect("job").held


def test_the_command_goes_on(desk: Desk) -> None:
    """A line says that somebody asks, once. Programs get it as an object."""
    script = "touch up; until [ -e go ]; do sleep 0.02; done; exit 7"
    with desk.path("said").open("w") as said:
        process = desk.start("run", "job", "--json", "--", "sh", "-c", script, stderr=said)
    desk.until(desk.path("up").exists, process)
    fence = ask(desk, process)
    desk.until(lambda: '"revoked"' in desk.path("said").read_text(), process)
    desk.hold.revoke("job")
    desk.path("go").touch()
    assert desk.ended(process)[0] == 7
    found = [json.loads(line) for line in desk.path("said").read_text().splitlines()]
    assert [one["event"] for one in found] == ["acquired", "revoked", "exited"] and found[1]["fence"] == fence
