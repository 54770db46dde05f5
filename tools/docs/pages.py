"""Adds to MkDocs the pages outside docs/, the files that pages link to, and the navigation.

The site has the shape of the repository, so that a relative link leads to the same place on a Git host and in the
site. The navigation is docs/README.md: its headings are the sections and its links the pages, in that order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
BESIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FOLDERS = ("docs", "examples")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)[^)\s]*\)")  # also an image
ITEM = re.compile(rf"^- {LINK.pattern}", re.MULTILINE)


def on_config(config: MkDocsConfig) -> None:
    """Set the navigation before MkDocs reads it."""
    config.nav = [{"Leasehold": "README.md"}, {"All pages": "docs/README.md"}, *sections(INDEX.read_text("utf-8"))]


def sections(index: str) -> Iterator[dict[str, Any]]:
    """One section for each heading of the index; a heading with a single page is that page."""
    for part in index.split("\n## ")[1:]:
        heading, _, rest = part.partition("\n")
        pages = [{title: path(INDEX, link)} for title, link in ITEM.findall(rest)]
        yield pages[0] if len(pages) == 1 else {heading: pages}


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Put every page, and every file that a page links to, at its path in the repository."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    inside = [page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md"))]
    pages = [*(ROOT / name for name in BESIDE), *inside]
    for place in sorted({uri for page in pages for uri in (path(page, page.name), *linked(page))}):
        files.append(File(place, str(ROOT), config.site_dir, config.use_directory_urls))


def linked(page: Path) -> Iterator[str]:
    """The linked files of a page that are not pages: images, scripts, modules, the licence."""
    for _, link in LINK.findall(page.read_text("utf-8")):
        target = (page.parent / link).resolve()
        if ":" not in link and target.is_file() and target.is_relative_to(ROOT) and target.suffix != ".md":
            yield path(page, link)


def path(page: Path, link: str) -> str:
    """The target of a link of a page, relative to the root of the repository."""
    return (page.parent / link).resolve().relative_to(ROOT).as_posix()
