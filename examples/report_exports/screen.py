"""What people see: a line that changes while it runs, and the figures at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

GREEN, RED, PLAIN = "\033[32m", "\033[31m", "\033[0m"
SUMMARY = """\
Report exports: {workers} workers, {seconds:g} s, {guarded}, seed {seed}
  exports committed       {exports:>5}
  workers frozen, killed  {frozen:>5}, {killed}
  leases lost             {noticed:>5}   that the worker noticed (LeaseLost)
  stale writes tried      {stale_tried:>5}
  stale writes accepted   {stale_accepted:>5}
  updates lost            {updates_lost:>5}
"""


class Progress:
    """On a terminal one line that is rewritten, elsewhere a line every two seconds. On standard error: standard output
    is for the result."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._moves = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._pause = 0.5 if self._moves else 2.0
        self._next = 0.0
        self._began = 0.0

    def show(self, text: str) -> None:
        """Replace the line."""
        self._stream.write(f"\r\033[K{text}" if self._moves else f"{text}\n")
        self._stream.flush()

    def update(self, figures: Callable[[], Mapping[str, Any]]) -> None:
        """Show the figures, if it is time for it: to compute them costs something, too."""
        now = time.monotonic()
        if now < self._next:
            return
        self._began = self._began or now
        line = "{exports} exports, {frozen} frozen, {killed} killed; stale writes: {stale_tried} tried, "
        self.show(f"{now - self._began:4.0f} s  " + (line + "{stale_accepted} accepted").format(**figures()))
        took = time.monotonic() - now  # a long history takes long to judge, and the chaos waits for it
        self._next = now + max(self._pause, 10 * took)

    def end(self) -> None:
        """Clear the line."""
        if self._moves:
            self.show("")


def summary(found: Mapping[str, Any]) -> str:
    """The figures, and what they mean."""
    text = SUMMARY.format(**found, guarded="with the guard" if found["guard"] else "WITHOUT a guard")
    return text + _painted(*_meaning(found))


def _meaning(found: Mapping[str, Any]) -> tuple[str, str]:
    if found["clean"] and found["guard"]:
        return "No late worker has changed anything. See the same without a guard: --no-guard", GREEN
    if found["clean"]:
        return "No worker came too late this time: that was luck. Once more, or longer: --seconds 30", PLAIN
    if found["guard"]:
        return f"The guard let something through. Please report it, with the seed {found['seed']}.", RED
    return "A lease alone does not stop a paused worker: it wrote late, over what its successor had written.", RED


def _painted(text: str, colour: str) -> str:
    """Without colours for NO_COLOR (https://no-color.org), on a dumb terminal and in a pipe."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return text if plain or colour == PLAIN else f"{colour}{text}{PLAIN}"
