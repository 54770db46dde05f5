"""Turns docstrings, which are written for ``help()`` and for doctest, into Markdown for the reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
ROLE = re.compile(r":(?:func|class|meth|mod|attr):`~?([^`]+)`")
TRAP = re.compile(r"\s*\(trap \d+\)")  # citations are for readers of the code
DIRECTIVE = re.compile(r"\s*# doctest: .*$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Turns each example into a block of code, and each role into the name that it contains."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every object that is read."""
        if obj.docstring:
            obj.docstring.value = readable(obj.docstring.value)


def readable(text: str) -> str:
    """The docstring as a page shows it."""
    text = TRAP.sub("", ROLE.sub(r"`\1`", text))
    return EXAMPLE.sub(lambda found: f"```pycon\n{DIRECTIVE.sub('', found[0])}\n```", text)
