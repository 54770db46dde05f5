"""A terminal of 80 × 24 in which a command runs, captured from tmux."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from typing import Self

from tests.support.cli.desk import COMMAND, SOON, SOURCE, Desk


class Terminal:
    """A tmux of its own, with one command in one pane. It ends with the command."""

    def __init__(self, desk: Desk, *words: str) -> None:
        tmux = shutil.which("tmux")
        assert tmux is not None, "tmux is missing: tools/servers.sh installs it"
        self._tmux = [tmux, "-f", "/dev/null", "-S", str(desk.path("tmux.sock"))]
        ended = shlex.quote(str(desk.path("ended")))
        command = f"{shlex.join([*COMMAND, *words])}; echo $? > {ended}"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("LEASEHOLD_", "TMUX"))}
        self._environment = {**kept, "PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        self._do("new-session", "-d", "-x", "80", "-y", "24", command)

    def _do(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=self._environment, capture_output=True, text=True, timeout=SOON, check=False
        )
        return done.stdout

    def lines(self) -> list[str]:
        """The screen."""
        return self._do("capture-pane", "-p").splitlines()

    def shows(self, text: str) -> list[str]:
        """Wait until it does."""
        give_up = time.monotonic() + SOON
        lines = self.lines()
        while not any(text in line for line in lines):
            assert time.monotonic() < give_up, "\n".join(lines)
            time.sleep(0.1)  # each look is a process
            lines = self.lines()
        return lines

    def keys(self, *keys: str) -> None:
        """Press them."""
        self._do("send-keys", *keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, if it has not ended."""
        self._do("kill-server")
