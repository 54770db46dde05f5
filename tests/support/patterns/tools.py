"""What tests of patterns and their programs share: waiting for something, a journal, and a word to the test."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 30.0  # seconds after which a test fails in place of waiting on


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Look, with an end, until something is so."""
    give_up = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < give_up, f"{what} never came true"
        time.sleep(0.002)
    return found


def note(path: str, line: str) -> None:
    """A line in a journal, in one write: lines stay whole, however many write."""
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(journal, f"{line}\n".encode())
    finally:
        os.close(journal)


def say(answer: Any) -> None:
    """From a program to the test: one line of JSON, at once."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
