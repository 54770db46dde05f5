"""What tests of patterns and their programs share: waiting for something, a journal, and a word to the test."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


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
