"""The page of traps is complete: each citation leads to it, and each test that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "reference" / "traps.md"
LAST = 54
FILES = sorted(
    path
    for folder in ("src", "tests")
    for kind in ("*.py", "*.lua", "*.sql", "*.c")
    for path in (ROOT / folder).rglob(kind)
    if path != Path(__file__).resolve()  # it cites traps that do not exist
)

HEADING = re.compile(r"^### (\d+)\. .+$", re.MULTILINE)
GROUP = re.compile(r"^## (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| \[[^\]]+\]\(#([\w-]+)\) \| ([\d, ]+) \|$", re.MULTILINE)
# "trap 12", "Traps 9, 10", "traps 9 and 10", test_trap_09; a line may end in the middle, within a comment too.
CITED = re.compile(r"(?<![a-z])traps?[\s#_-]+(\d+(?:(?:, and |, | and )\d+)*)", re.IGNORECASE)
SHORT = re.compile(r"\w \((\d+(?:, \d+)*)\)\"")  # "a beat creates a claim (26)", as the entries of the model are called
NAMED = re.compile(r"`(tests/[^`]*)`")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)(?:\[(.+)\])?")


def cited(text: str, *, short: bool = False) -> set[int]:
    """The numbers of the traps that a source cites."""
    found = CITED.findall(text) + (SHORT.findall(text) if short else [])
    return {int(number) for numbers in found for number in re.findall(r"\d+", numbers)}


def numbers(page: str) -> list[int]:
    """The traps that a page explains, in their order on it."""
    return [int(number) for number in HEADING.findall(page)]


def grouped(page: str) -> dict[str, list[int]]:
    """The traps under each heading of the page."""
    _, *parts = GROUP.split(page)
    titles = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in parts[::2]]
    return {title: numbers(part) for title, part in zip(titles, parts[1::2], strict=True)}


@cache
def defined(path: Path) -> set[str]:
    """The functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)}


@cache
def strings(folder: Path) -> set[str]:
    """The texts in the files of a folder: the cases of its tests are among them."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def missing(name: str) -> bool:
    """Is a test, or the case of one, not where the page says that it is?"""
    found = TEST.fullmatch(name)
    if found is None:
        return True
    path, test, case = ROOT / found[1], found[2], found[3]
    if not path.is_file() or test not in defined(path):
        return True
    return case is not None and case not in strings(path.parent)


def parts(page: str) -> dict[int, str]:
    """What the page says under each number."""
    _, *found = HEADING.split(page)
    return {int(number): part for number, part in zip(found[::2], found[1::2], strict=True)}


@pytest.fixture(scope="module")
def page() -> str:
    """The page as it is written."""
    return PAGE.read_text(encoding="utf-8")


def test_every_citation_is_explained(page: str) -> None:
    """A comment, a docstring, a name or a message that cites a trap cites one of the page."""
    known, wrong = set(numbers(page)), {}
    for path in FILES:
        found = cited(path.read_text(encoding="utf-8"), short=path.parent.name == "model")
        if found - known:
            wrong[str(path.relative_to(ROOT))] = found - known
    assert wrong == {}


def test_the_numbers_have_no_gaps(page: str) -> None:
    """Each number is given once, and none is missing."""
    assert sorted(numbers(page)) == list(range(1, LAST + 1))


def test_the_table_leads_to_every_number(page: str) -> None:
    """It says under which heading a number stands, and each heading counts upwards."""
    table = {anchor: [int(number) for number in row.split(", ")] for anchor, row in ROW.findall(page)}
    assert table == grouped(page)
    assert all(found == sorted(found) for found in table.values())


def test_every_test_that_is_named_exists(page: str) -> None:
    """A path, a function or class in that file, and a case by the name that it has there."""
    named = NAMED.findall(page)
    assert len(named) > LAST
    assert [name for name in named if missing(name)] == []


def test_every_trap_is_shown(page: str) -> None:
    """None is without a test."""
    assert [number for number, part in parts(page).items() if "- Shown" not in part] == []


def test_the_checks_can_fail(page: str) -> None:
    """A citation of nothing, a number that is missing or given twice, and a test that is gone are found."""
    assert cited("# (trap 55)\nTraps 9, 10 and 56; def test_trap_07_x; traps\n    # 57") == {55, 9, 10, 56, 7, 57}
    assert cited('"a beat creates a claim (26, 58)": 1', short=True) == {26, 58}
    assert not cited("strap 3, trapped 4, trap '' TERM, trap that is 5")
    assert numbers(page.replace("\n### 26. ", "\n### 62. ")) != numbers(page)
    assert grouped(page.replace("\n## Clocks", "\n## Watches")) != grouped(page)
    there = "tests/model/test_broken_locks.py::test_a_broken_lock_is_caught"
    assert not missing(there) and not missing(f"{there}[a beat creates a claim (26)]")
    gone = [f"{there}s", f"{there}[no such case]", there.replace("locks", "lacks"), there.partition("::")[0], "tests/x"]
    assert all(missing(name) for name in gone)
