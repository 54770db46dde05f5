"""What ``leasehold run`` itself says: on standard error, for standard output is the command's. In words, or in JSON."""

from __future__ import annotations

import sys

from leasehold._core.light_typing import Any

# ---------------------------------------------------------------- printable
#
# What others wrote, made safe to show: names, owners and metadata come from a store that anybody may have written to,
# and a terminal obeys what it is sent.


def printable(text: str) -> str:
    """Control characters (C1 as well), line breaks, and what turns the direction of writing or cannot be seen are shown
    as escapes, ``\\x1b``."""
    return text if text.isprintable() else "".join([char if char.isprintable() else _escape(char) for char in text])


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def width(text: str) -> int:
    """How many columns of a terminal it takes: two for ideographs and emoji, none for an accent that joins a letter."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(char) in ("Mn", "Me") else 2 if east_asian_width(char) in "WF" else 1 for char in text)


# ---------------------------------------------------------------- voice


class Output:
    """One line for each event. People hear of what they should know; programs hear of everything."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        # Who waits is told who holds it: people on a terminal, and programs.
        self.tells_progress = as_json or (sys.stderr is not None and sys.stderr.isatty())

    def say(self, event: str, text: str, **fields: Any) -> None:
        """For people and programs."""
        if self._as_json:
            self.note(event, message=text, **fields)
        else:
            # most runs say nothing

            _print(f"leasehold: {printable(text)}")

    def note(self, event: str, **fields: Any) -> None:
        """For programs only."""
        if self._as_json:
            import json

            _print(json.dumps({"event": event, **fields}))


def _print(line: str) -> None:
    """Nobody may be there to hear it any more; the command matters more."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(line + "\n")  # in one piece: the command writes there, too
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
