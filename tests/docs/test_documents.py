"""What the documents say about the repository is true: links, commands, names, and the shape of the pages."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

from leasehold import errors
from leasehold.observe import metrics
from tests.docs.blocks import PAGES, ROOT, blocks

FIRST_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
DOCS = sorted((ROOT / "docs").rglob("*.md"))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
HEADING_OF = {
    "howto": "How-to",
    "guards": "Guards",
    "patterns": "Patterns",
    "concepts": "Concepts",
    "reference": "Reference",
    "decisions": "Decisions",
}
HEADINGS = ["Decision", "Why", "What it costs", "What would change our mind"]

BLOCK = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/+(?:work|root|home|Users|mnt|srv)(?:/|\b(?![.\w-]))")
REGISTRY = re.compile(
    r"--(?:extra-)?index-url|\b[\w.-]*(?:artifactory|nexus|registry|pypi|mirror)[\w-]*\.[a-z]{2,}\b|\.(?:internal|corp|lan)\b"
)
# What looks like a name of ours and is none: a logger, and metrics and attributes of OpenTelemetry.
NO_NAMES = {
    "leasehold.runtime",  # a logger
    "leasehold.zookeeper",
    "leasehold.cron",
    "leasehold.lease",
    "leasehold.kind",
    "leasehold.held",
    "leasehold.oldest_held",
    "leasehold.keys_without_ttl",
    *(f"leasehold.{name}" for name in (*metrics.COUNTERS, *metrics.HISTOGRAMS)),
}


def name(page: Path) -> str:
    """The path of a page in the repository."""
    return str(page.relative_to(ROOT))


def text(page: Path) -> str:
    """A page as it is written."""
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return BLOCK.sub("", text(page))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def code(page: Path) -> list[str]:
    """What a page sets as code: the lines of its blocks, and the spans in its text."""
    lines = [line for block in blocks(text(page)) for line in block.code.splitlines()]
    return [*lines, *re.findall(r"`([^`\n]+)`", prose(page))]


def broken(page: Path, link: str) -> bool:
    """Does a link lead nowhere in this repository? Other places are not asked."""
    if re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return True
    return bool(anchor) and (target.suffix != ".md" or anchor not in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link points to a file, and to a heading, that exists."""
    assert [link for link in LINK.findall(prose(page)) if broken(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_name_no_machine(page: Path) -> None:
    """A page is for everybody: it holds no path of somebody's machine, and no host of a package registry."""
    assert MACHINE_PATH.findall(text(page)) == []
    assert REGISTRY.findall(text(page)) == []


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_make_targets_exist(page: str) -> None:
    """Every `make target` that the first pages name is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", text(ROOT / "Makefile"), re.MULTILINE))
    named = {found[1] for line in code(ROOT / page) if (found := re.match(r"make ([a-z]+)\b", line))}
    assert named - targets == set()


def test_the_first_page_names_the_commands() -> None:
    """Who comes anew finds how to see it, how to test it and how to change it."""
    named = {line.split("#")[0].strip() for line in code(ROOT / "README.md")}
    assert {"make demo", "make test", "make quick", "make check", "make bench", "make docs"} <= named


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_public_names_exist(page: Path) -> None:
    """Every dotted name under `leasehold` that a page sets as code can be looked up."""
    for found in re.findall(r"(?<![\w./-])leasehold(?:\.[A-Za-z_]\w*)+", "\n".join(code(page))):
        if found not in NO_NAMES:
            pkgutil.resolve_name(found)


def test_the_first_page_lists_every_error() -> None:
    """The table of errors on the first page is complete, and names nothing that is not there."""
    table = set(re.findall(r"^\| `(\w+)`.*\|.*\|$", text(ROOT / "README.md").partition("## Errors")[2], re.MULTILINE))
    assert table == set(errors.__all__) - {"LeaseholdError"}


@pytest.mark.parametrize("page", DECISIONS, ids=name)
def test_decisions_have_one_shape(page: Path) -> None:
    """Each page of a decision has the same headings in the same order, under its own number."""
    found = re.findall(r"^(#+) (.+)$", prose(page), re.MULTILINE)
    assert found[0][0] == "#"
    assert found[0][1].startswith(page.name[:4] + ". ")
    assert [title for _, title in found[1:]] == HEADINGS


def test_decisions_are_numbered_without_gaps() -> None:
    """A number is given once, and none is missing."""
    numbers = [int(page.name[:4]) for page in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))


def test_the_index_lists_every_page() -> None:
    """docs/README.md leads to every page under docs, a decision under its own title."""
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in LINK.findall(text(index))}
    assert set(DOCS) - {index} - listed == set()
    titles = {text(page).partition("\n")[0].removeprefix("# ") for page in DECISIONS}
    assert {title for title in titles if f"[{title}]" not in text(index)} == set()


def test_the_index_is_ordered_by_need() -> None:
    """A page stands under the heading of its folder; the navigation of the site is made of these."""
    found = {part.partition("\n")[0]: part for part in text(ROOT / "docs" / "README.md").split("\n## ")[1:]}
    assert set(HEADING_OF.values()) <= set(found)
    for page in DOCS:
        folder = page.parent.name
        if folder in HEADING_OF:
            assert f"]({folder}/{page.name})" in found[HEADING_OF[folder]]


def test_the_checks_can_fail() -> None:
    """A broken link, a machine's path and a registry's host are found where they are."""
    assert broken(ROOT / "README.md", "docs/nothing.md")
    assert broken(ROOT / "README.md", "#no-such-heading")
    assert not broken(ROOT / "README.md", "#fences-jump")
    assert all(MACHINE_PATH.search(one) for one in ("see /home/me/x", "sqlite:////work/a.db", "`/root`"))
    assert not any(MACHINE_PATH.search(one) for one in ("src/home/x", "https://work.example", "~/work"))
    assert all(REGISTRY.search(one) for one in ("https://pypi.example.org/simple", "--index-url x", "host.internal"))
