"""What others wrote, made safe to show: names, owners and metadata come from a store that anybody may have written to,
and a terminal obeys what it is sent."""

from __future__ import annotations


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
