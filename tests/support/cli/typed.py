"""The command line in the process of the test: quick, for commands that start no process of their own."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from leasehold.cli.commands import commands
from leasehold.observe import log

VARIABLES = ("LEASEHOLD_URL", "LEASEHOLD_NAMESPACE", "LEASEHOLD_ID_KEY", "LEASEHOLD_REQUIRE_SHARED")


class Typed(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def document(self) -> Any:
        """The JSON that it printed for programs; there is nothing else."""
        assert (self.code, self.err) == (0, "")
        return json.loads(self.out)


def typed(*words: str, **environment: str) -> Typed:
    """Run one command to its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "RECORDS", dict(log.RECORDS))  # a command logs nothing
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        done = CliRunner().invoke(commands, list(words), prog_name="leasehold")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Typed(done.exit_code, done.stdout, done.stderr)
