"""Lua scripts, each put together from its own file and the parts that it includes."""

from __future__ import annotations

from pathlib import Path


def assemble(folder: Path, name: str) -> str:
    """The text to send: without the comments, which are for readers."""
    lines = []
    for line in (folder / f"{name}.lua").read_text("utf-8").splitlines():
        if line.startswith("-- include "):
            lines.append(assemble(folder, line.removeprefix("-- include ")))
        elif line and not line.lstrip().startswith("--"):
            lines.append(line)
    return "\n".join(lines)
