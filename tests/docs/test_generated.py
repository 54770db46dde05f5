"""What a page shows of the guarantees is what the library says."""

from __future__ import annotations

from leasehold._core.guarantee_table import EVENTS, STORES
from leasehold._core.guarantees import guarantees
from leasehold._core.schemes import OPENED
from tests.docs.generated import COMPARED, MADE, PAGE, begin, end, generated


def test_the_page_shows_the_guarantees() -> None:
    """Its tables are those of the data: `python -m tests.docs.generated` writes them."""
    page = PAGE.read_text(encoding="utf-8")
    assert [(page.count(begin(part)), page.count(end(part))) for part in MADE] == [(1, 1)] * len(MADE)
    assert generated(page) == page


def test_other_tables_are_found() -> None:
    """A page whose tables were changed by hand is not what the data says."""
    page = PAGE.read_text(encoding="utf-8")
    changed = page.replace("| **lost** |", "| holds |")
    assert generated(changed) == page != changed


def test_the_comparison_has_every_difference() -> None:
    """It compares what servers promise, and leaves out only what is the same on all of them."""
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition(begin("comparison"))[2].partition(end("comparison"))[0]
    assert all(f"`{STORES[store]}`" in table for store in COMPARED)
    kept = {line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[3:] if line}
    columns = [guarantees(store) for store in COMPARED]
    for event, when in EVENTS.items():
        found = [column.under(event) for column in columns]
        differ = len({(one.exclusion, one.fences) if one.happens else None for one in found}) > 1
        assert (when in kept) == differ, when


def test_every_store_has_a_section() -> None:
    """The reasons stand under the URL of their store."""
    page = PAGE.read_text(encoding="utf-8")
    heads = [line for line in page.splitlines() if line.startswith("### What ")]
    assert heads == [f"### What {STORES[store]} promises" for store in OPENED]
