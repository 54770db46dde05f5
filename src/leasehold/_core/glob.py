"""Patterns over the text form of resources: ``*`` is any text, ``?`` any one character, and everything else is itself.

Brackets and backslashes mean nothing here: a name may hold them.
"""

from __future__ import annotations


def matches(pattern: str, text: str) -> bool:
    """Does the whole text match? In time that grows with both lengths, whatever the pattern is."""
    at = place = 0
    star = held = -1  # where the last star stood, and where the text that it stands for ends
    while at < len(text):
        if place < len(pattern) and pattern[place] == "*":
            star, held = place, at
            place += 1
        elif place < len(pattern) and pattern[place] in ("?", text[at]):
            at += 1
            place += 1
        elif star >= 0:  # let the last star stand for one character more
            held += 1
            at, place = held, star + 1
        else:
            return False
    return pattern[place:].strip("*") == ""
