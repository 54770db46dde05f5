"""Run one page as a reader would:     python -W error -m tests.docs.play PAGE

In order: Python blocks as one program, console blocks in one shell beside it, blocks with a title into files of that
name in the working folder. A traceback names the line of the page.
"""

from __future__ import annotations

import faulthandler
import sys
from pathlib import Path
from types import CodeType, ModuleType

from tests.docs.blocks import Block, blocks
from tests.docs.terminal import Terminal

LONGEST = 140.0  # seconds for a page; then it says where it stands, and ends


def play(page: Path) -> None:
    """Every block of a page, where it stands."""
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    program = ModuleType("__main__")
    sys.modules["__main__"] = program  # so that what a page defines can be pickled
    written: set[Path] = set()
    with Terminal() as terminal:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.title:
                _write(Path(block.title), block.code, written)
            elif block.language == "python":
                exec(_compiled(block, page.name), program.__dict__)  # noqa: S102 - our own pages
            elif block.language == "console":
                sys.stdout.flush()
                terminal.enter(block.code, f"{page.name}, line {block.line}")


def _write(file: Path, code: str, written: set[Path]) -> None:
    """A file that several blocks name is shown in parts, one after the other."""
    file.parent.mkdir(exist_ok=True)
    before = file.read_text(encoding="utf-8") + "\n\n" if file in written else ""
    file.write_text(before + code, encoding="utf-8")
    written.add(file)


def _compiled(block: Block, name: str) -> CodeType:
    return compile("\n" * (block.line - 1) + block.code, name, "exec", dont_inherit=True)


if __name__ == "__main__":
    play(Path(sys.argv[1]))
