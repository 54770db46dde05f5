"""A file that somebody names on the command line, ``-`` for standard input: its text, or what is wrong with it."""

from __future__ import annotations

import sys

from leasehold.cli.exit_codes import USAGE, Ended
from leasehold.cli.printable import printable

MOST_BYTES = 64 * 1024 * 1024  # more is the wrong file


def text_of(path: str) -> str:
    """All of it. A file that cannot be read was named by mistake: 2."""
    try:
        if path == "-":
            found = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:
                found = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Ended(USAGE, "failed", f"{printable(path)}: {error.strerror}") from error
    if len(found) > MOST_BYTES:
        raise Ended(USAGE, "failed", f"{printable(path)}: it has over {MOST_BYTES >> 20} MiB: is it the right file?")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Ended(USAGE, "failed", f"{printable(path)}: this is no text in UTF-8") from error
