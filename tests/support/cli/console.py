"""The command line in the process of the test: quick, and with a store whose clock the test advances."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from leasehold.cli import clear
from leasehold.cli.commands import commands
from leasehold.coordinator import Leasehold
from leasehold.observe import log
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore

SPACE = "console"


class Done(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def document(self) -> Any:
        """The JSON that it printed for programs."""
        return json.loads(self.out)


class Console:
    """Types commands. With ``answer`` there is a terminal, on which somebody answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        self._monkeypatch = monkeypatch
        self.url = url

    def run(self, *words: str, answer: str | None = None) -> Done:
        """Run one command to its end."""
        with self._monkeypatch.context() as patch:
            patch.setattr(log, "RECORDS", dict(log.RECORDS))  # a command logs nothing
            patch.setattr(clear, "terminal_to_ask", lambda: answer is not None)
            for name in ("LEASEHOLD_URL", "LEASEHOLD_NAMESPACE", "LEASEHOLD_INSTANCE", "SUDO_USER"):
                patch.delenv(name, raising=False)
            done = CliRunner().invoke(commands, ["--url", self.url, *words], input=answer)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout, done.stderr)


class Stage(Console):
    """Commands on a store in memory. Time passes only when the test, or a command that sleeps, advances the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch, f"memory://{SPACE}")
        self.clock = ManualClock(wall=time.time())
        self.store = MemoryStore(self.clock)
        self.store.share_as(SPACE)
        self.hold = Leasehold(self.store)
        monkeypatch.setattr(clear, "sleep", self.clock.advance)


@contextmanager
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage that leaves nothing behind."""
    made = Stage(monkeypatch)
    try:
        yield made
    finally:
        made.hold.close()
        MemoryStore.unshare(SPACE)
