"""Shows on standard error what a long run is doing: one line for each part, and on a terminal each of its steps."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

GREEN, RED, DIM = "32", "31", "2"
CLEAR_LINE = "\r\x1b[K"


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """The text in that colour on a terminal, unless NO_COLOR is set; else the text as it is."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


class Progress:
    """What is being done, of how much, and for how long."""

    def __init__(self, parts: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._parts, self._part = parts, 0
        self._head, self._began = "", 0.0

    def begin(self, part: str) -> None:
        """The next part begins."""
        self._part += 1
        self._head, self._began = f"[{self._part}/{self._parts}] {part}", time.monotonic()
        self._write(f"{self._head} ...")

    def step(self, what: str, number: int, count: int) -> None:
        """One step of the part begins; only a terminal shows it."""
        if self._stream.isatty():
            self._write(CLEAR_LINE + self._head + coloured(f" ... {what} {number} of {count}", DIM, self._stream))

    def end(self, outcome: str = "") -> None:
        """The part has ended."""
        took = f"{time.monotonic() - self._began:.0f} s"
        if self._stream.isatty():
            self._write(CLEAR_LINE + self._head)
        self._write(f" {took}{outcome and ': '}{coloured(outcome, RED, self._stream)}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
