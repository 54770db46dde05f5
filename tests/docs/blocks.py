"""The code blocks of a page, and what becomes of each: run, written to a file, or only shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIRST_PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = [*FIRST_PAGES, *(page for folder in ("docs", "examples") for page in sorted((ROOT / folder).rglob("*.md")))]

RUN = ("python", "console")
# Words for a person, or for another program. `sh` is what a reader types once and a test must not: it installs
# packages, starts or administers servers, or takes long; so it may begin with nothing but these.
SHOWN = ("text", "sh", "toml", "yaml", "ini", "json", "sql", "promql")
TYPED_ONCE = ("pip install", "make ", "docker run", "redis-server", "etcdctl ", "zkCli.sh ", "python -m examples.")

OPENING = re.compile(r"^(`{3,})(.*)$")
HIDDEN = re.compile(r"^(?:[ \t]+`{3}|[ \t]*~{3}).*", re.MULTILINE)  # fences that GitHub knows and we do not look for
TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """One code block: its language, the line of the page on which its code begins, and the file it names."""

    language: str
    line: int
    code: str
    title: str | None = None


def blocks(text: str) -> list[Block]:
    """Every code block of a page, in order."""
    return list(_blocks(text))


def _blocks(text: str) -> Iterator[Block]:
    lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        if not (opening := OPENING.match(line)):
            continue
        fence, words = opening.groups()
        body = []
        for _, inner in lines:
            if inner == fence:
                break
            body.append(inner)
        else:
            raise ValueError(f"line {number}: the block that begins here has no end")
        title = TITLE.search(words)
        yield Block(words.split(" ")[0], number + 1, "\n".join([*body, ""]), title[1] if title else None)


def runs(page: Path) -> bool:
    """Is there something in this page to run?"""
    return any(block.language in RUN for block in blocks(page.read_text(encoding="utf-8")))


def faults(text: str) -> list[str]:
    """What a test could not see, or would leave out without a word."""
    found = [f"a fence that is indented or made of tildes: {one.strip()}" for one in HIDDEN.findall(text)]
    known = blocks(text)
    for index, block in enumerate(known):
        if block.language not in RUN + SHOWN:
            found.append(f"line {block.line}: the language {block.language!r} is not declared in tests/docs/blocks.py")
        if block.language == "sh":
            found += [f"line {block.line}: `{line}` can be run, as console" for line in _lines(block) if _ours(line)]
        if block.title and not _used(block.title, known[index + 1 :]):
            found.append(f"line {block.line}: nothing that follows uses the file {block.title}")
    return found


def _lines(block: Block) -> list[str]:
    return [line for line in block.code.splitlines() if line and not line.startswith("#")]


def _ours(line: str) -> bool:
    return not line.startswith(TYPED_ONCE)


def _used(title: str, later: list[Block]) -> bool:
    """By a command, or by an import in Python."""
    module = Path(title).stem
    names = (title, f"import {module}", f"from {module} ")
    return any(name in block.code for block in later for name in names)
