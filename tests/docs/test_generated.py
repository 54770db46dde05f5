"""What a page shows of the guarantees is what the library says."""

from __future__ import annotations

from leasehold._core.guarantee_table import STORES
from leasehold._core.schemes import OPENED
from tests.docs.generated import BEGIN, END, PAGE, generated


def test_the_page_shows_the_guarantees() -> None:
    """Its tables are those of the data: `python -m tests.docs.generated` writes them."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert generated(page) == page


def test_other_tables_are_found() -> None:
    """A page whose tables were changed by hand is not what the data says."""
    page = PAGE.read_text(encoding="utf-8")
    changed = page.replace("| **lost** |", "| holds |")
    assert generated(changed) == page != changed


def test_every_store_has_a_section() -> None:
    """The reasons stand under the URL of their store."""
    page = PAGE.read_text(encoding="utf-8")
    heads = [line for line in page.splitlines() if line.startswith("### What ")]
    assert heads == [f"### What {STORES[store]} promises" for store in OPENED]
