"""What a command of ours prints on standard error, in words or in JSON, and the codes that it exits with.

Standard output belongs to the command that ``leasehold run`` starts.
"""

from __future__ import annotations

import sys

from leasehold._core.light_typing import Any


class ExitCode:
    """The codes of ours; otherwise a command exits with the code of the command that it ran.

    Those from 64 on are of sysexits.h, 126 and 127 of the shells. Constants, not an enum: ``enum`` takes milliseconds
    to import.
    """

    NO = 1  # nothing is there, or nothing was done; of ``leaks``: not all keys have an end
    USAGE = 2
    UNAVAILABLE = 69  # the store cannot be reached
    BUSY = 75  # another process holds it: try again later
    LOST = 76  # the lease ended before the command did
    CONFIG = 78  # a bad URL, a missing extra
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127

    @staticmethod
    def of_signal(number: int) -> int:
        """The code with which shells report that a signal ended a process."""
        return 128 + number


class CommandEnded(Exception):
    """Ends the command with an exit code and, unless ``event`` is empty, a message. The fields are for programs."""

    def __init__(self, code: int, event: str = "", text: str = "", **fields: object) -> None:
        super().__init__(text)
        self.code = code
        self.event = event
        self.fields = fields


class Output:
    """Prints one line for each event: in words, the events that people should know; in JSON, all of them."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        # Who holds the lease is shown to people who wait at a terminal, and to programs.
        self.shows_progress = as_json or (sys.stderr is not None and sys.stderr.isatty())

    def report(self, event: str, text: str, **fields: Any) -> None:
        """Print an event for people and programs."""
        if self._as_json:
            self.record(event, message=text, **fields)
        else:
            _print(f"leasehold: {printable(text)}")

    def record(self, event: str, **fields: Any) -> None:
        """Print an event for programs only."""
        if self._as_json:
            import json  # most runs print nothing

            _print(json.dumps({"event": event, **fields}))


def _print(line: str) -> None:
    """A line that cannot be printed, because nothing reads it any more, must not end the command."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(line + "\n")  # in one piece: the command writes there, too
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


# ---------------------------------------------------------------- untrusted text
#
# Names, owners and metadata come from a store to which others may have written, and a terminal obeys the control
# characters that it is sent.


def printable(text: str) -> str:
    """The text with control characters (C1 as well), line breaks, and characters that are invisible or turn the
    direction of writing shown as escapes, ``\\x1b``."""
    return text if text.isprintable() else "".join([char if char.isprintable() else _escape(char) for char in text])


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def width(text: str) -> int:
    """How many columns of a terminal it takes: two for ideographs and emoji, none for an accent that joins a letter."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(char) in ("Mn", "Me") else 2 if east_asian_width(char) in "WF" else 1 for char in text)
