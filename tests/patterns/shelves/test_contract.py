"""The contract of a shelf, over every shelf and every way to it."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.errors import StaleOwner
from leasehold.testing.results import CASES, TEXTS, Holder
from tests.patterns.shelves.stage import OTHERS, WAYS, parameters


@pytest.mark.parametrize("shelf", parameters(WAYS), indirect=True)
@pytest.mark.parametrize("case", CASES)
def test_contract(case: str, shelf: Any) -> None:
    """The case holds for this shelf."""
    CASES[case](shelf)


@pytest.mark.parametrize("shelf", parameters(OTHERS), indirect=True)
def test_every_way_speaks_the_same(shelf: Any) -> None:
    """The other ways to the same places differ in how they speak: texts, numbers, names and refusals pass through."""
    for number, what in enumerate(["quotes", "marks", "beyond the first plane", "control characters"], 1):
        text, holder = TEXTS[what], Holder(f"jöb:{{{what}}}", 2**53 + number)
        assert shelf.open(holder) is None
        shelf.write(holder, text, "1h")
        for found in (shelf.read(holder.resource), shelf.open(holder)):
            assert found[:2] == (text, holder.fence) and 0 <= found.age < 60 and 3500 < found.left <= 3600
        with pytest.raises(StaleOwner) as refused:
            shelf.write(holder._replace(fence=holder.fence - 1), "late", 60)
        assert refused.value.seen == holder.fence
    shelf.write(holder, None, 60)
    assert shelf.read(holder.resource) is None


def test_the_suite_finds_what_is_wrong() -> None:
    """A shelf that accepts everything, and one that keeps nothing, fail all cases but those that do not ask for it."""
    from leasehold.patterns.results import MemoryShelf

    class Credulous(MemoryShelf):
        def open(self, lease: Any) -> Any:
            try:
                return super().open(lease)
            except StaleOwner:
                return self.read(lease.resource)

        def write(self, lease: Any, text: Any, keep: Any) -> None:
            try:
                super().write(lease, text, keep)
            except StaleOwner:
                super().write(Holder(lease.resource, 2**63 - 1, "anybody"), text, keep)

    class Forgetful(MemoryShelf):
        def read(self, resource: str) -> None:
            super().read(resource)

    assert {"an_older_fence_is_refused", "to_open_is_enough", "threads_at_once", "every_digit_counts"} <= failed(
        Credulous
    )
    assert {"what_is_written_is_read", "a_long_text", "none_takes_it_away", "resources_are_apart"} <= failed(Forgetful)


def failed(kind: type[Any]) -> set[str]:
    """The cases that this kind of shelf does not keep."""
    found = set()
    for name, case in CASES.items():
        try:
            case(kind())
        except (AssertionError, TypeError, AttributeError, ValueError, StaleOwner):
            found.add(name)
    return found
