"""Lua scripts: put together from their files, and ready to be sent by their digest or in full.

Needs no hiredis: guards and result stores over a client use it too.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from leasehold._core.light_typing import NamedTuple


class Script(NamedTuple):
    """As bytes, so that a client with an encoding of its own sends it as it is."""

    sha: bytes
    text: bytes
    own: bool = True  # False: it runs a body that the user wrote, which may do anything


def make_script(*parts: str, own: bool = True) -> Script:
    text = "\n".join(parts).encode()
    return Script(hashlib.sha1(text, usedforsecurity=False).hexdigest().encode(), text, own)


def assemble(folder: Path, name: str) -> str:
    """The text of a file and of the files that it includes, without the comments, which are for readers."""
    lines = []
    for line in (folder / f"{name}.lua").read_text("utf-8").splitlines():
        if line.startswith("-- include "):
            lines.append(assemble(folder, line.removeprefix("-- include ")))
        elif line and not line.lstrip().startswith("--"):
            lines.append(line)
    return "\n".join(lines)
