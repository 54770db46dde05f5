"""The reference is complete: whatever is public, or stands in an example, is on one of its pages."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from inspect import ismodule
from pathlib import Path

import pytest

import leasehold
from leasehold import advice, aio, errors, guards, patterns
from leasehold.guards import http, sql
from leasehold.patterns import idempotency, results
from tests.docs.blocks import PAGES, ROOT, blocks

DIRECTIVE = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)
REFERENCE = ROOT / "docs" / "reference"
PUBLIC = [
    *(f"leasehold.{name}" for name in leasehold.__all__ if name != "aio"),
    *(f"leasehold.aio.{name}" for name in aio.__all__),
    *(f"leasehold.errors.{name}" for name in errors.__all__),
    *(f"leasehold.guards.{name}" for name in guards.__all__),
    *(f"leasehold.guards.sql.{name}" for name in sql.__all__),
    *(f"leasehold.patterns.{name}" for name in patterns.__all__),
    *(f"leasehold.guards.http.{name}" for name in http.__all__),
    "leasehold.guards.memory.FenceGuard",
    "leasehold.guards.redis.FenceGuard",
    "leasehold.guards.s3.FenceGuard",
    "leasehold.testing.guards.CASES",
    *(f"leasehold.advice.{name}" for name in advice.__all__),
    *(f"leasehold.patterns.idempotency.{name}" for name in idempotency.__all__),
    *(f"leasehold.patterns.results.{name}" for name in results.__all__),
    "leasehold.testing.results.CASES",
    "leasehold.testing.results.Presenter",
]
INSIDE = ("leasehold.stores.redis.protocol",)  # pages show them for what they are: the inside


def directives() -> list[str]:
    """What the pages of the reference take from docstrings: objects, and modules with everything in them."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    return [name for name, options in DIRECTIVE.findall(pages) if "members: false" not in options]


def covered(name: str, known: list[str]) -> bool:
    """Is this object in the reference, by itself, with its module, or under another name?"""
    thing, last = pkgutil.resolve_name(name), name.rpartition(".")[2]
    found = [pkgutil.resolve_name(one) for one in known]
    return any(one is thing or (ismodule(one) and vars(one).get(last) is thing) for one in found)


def imported(page: Path) -> Iterator[str]:
    """What the examples of a page import from inside the library."""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("leasehold"):
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_in_the_reference(name: str) -> None:
    """Whoever may use a name can look it up."""
    assert covered(name, directives())


def test_what_examples_import_is_in_the_reference() -> None:
    """An example shows nothing that one cannot look up."""
    known = directives()
    names = {name for page in PAGES for name in imported(page) if not name.startswith(INSIDE)}
    assert {name for name in names if not covered(name, known)} == set()


def test_the_reference_names_what_exists() -> None:
    """Each directive leads to an object with a docstring."""
    assert [name for name in directives() if not pkgutil.resolve_name(name).__doc__] == []


def test_the_check_can_fail() -> None:
    """A name that no page takes up is found."""
    assert not covered("leasehold.guards.fence.accept", directives())
    assert covered("leasehold.errors.LeaseLost", directives())
