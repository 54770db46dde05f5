"""The reference is complete: every public module is listed, and every public name or imported one is on a page."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from inspect import ismodule
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, blocks

DIRECTIVE = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)
REFERENCE = ROOT / "docs" / "reference"
LISTED = (REFERENCE / "modules.md").read_text(encoding="utf-8")
MODULES = re.findall(r"^\| `(leasehold[\w.]*)` \|", LISTED, re.MULTILINE)
PUBLIC = [
    f"{module}.{name}"
    for module in MODULES
    for name in importlib.import_module(module).__all__
    if f"{module}.{name}" not in MODULES
]
TYPED = re.compile(r"\b(?:from|import) (leasehold[\w.]*)")
INSIDE = ("leasehold.stores.redis.protocol",)  # private: docs/redis.md prints scripts of it for other languages


def directives() -> list[str]:
    """The objects whose docstrings the reference shows, and the modules that it shows completely."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    return [name for name, options in DIRECTIVE.findall(pages) if "members: false" not in options]


def covered(name: str, known: list[str]) -> bool:
    """Is this object in the reference, by itself, with its module, or under another name?"""
    thing, last = pkgutil.resolve_name(name), name.rpartition(".")[2]
    found = [pkgutil.resolve_name(one) for one in known]
    return any(one is thing or (ismodule(one) and vars(one).get(last) is thing) for one in found)


def imported(page: Path) -> Iterator[str]:
    """The names that the examples of a page import from the library."""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("leasehold"):
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(page: Path) -> Iterator[str]:
    """The modules of the library that a page imports, in its programs and in the commands of its shell."""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "console":
            yield from TYPED.findall(block.code)
        elif block.language == "python":
            for node in ast.walk(ast.parse(block.code)):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "leasehold")
                elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("leasehold"):
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                    yield from (name if ismodule(pkgutil.resolve_name(name)) else str(node.module) for name in names)


@pytest.mark.parametrize("module", MODULES)
def test_public_modules_declare_their_names(module: str) -> None:
    """A public module has an ``__all__`` of names that exist, constants first, then classes, then functions."""
    declared = importlib.import_module(module).__all__
    assert declared == sorted(declared, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert [name for name in declared if not hasattr(importlib.import_module(module), name)] == []
    assert not any(part.startswith("_") for part in module.split("."))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_import_public_modules_only(page: Path) -> None:
    """No example of a page relies on a private module."""
    assert set(modules(page)) - set(MODULES) <= set(INSIDE)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_in_the_reference(name: str) -> None:
    """Every public name can be looked up."""
    assert covered(name, directives())


def test_what_examples_import_is_in_the_reference() -> None:
    """Everything that an example imports can be looked up."""
    known = directives()
    names = {name for page in PAGES for name in imported(page) if not name.startswith(INSIDE)}
    assert {name for name in names if not covered(name, known)} == set()


def test_the_reference_names_what_exists() -> None:
    """Each directive leads to an object with a docstring."""
    assert [name for name in directives() if not pkgutil.resolve_name(name).__doc__] == []


def test_the_check_can_fail() -> None:
    """A name that is on no page is found, and so is a private module."""
    assert "leasehold.stores.redis.protocol" in set(modules(ROOT / "docs" / "redis.md")) - set(MODULES)
    assert not covered("leasehold.guards.fence.accept", directives())
    assert covered("leasehold.errors.LeaseLost", directives())
