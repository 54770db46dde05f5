"""The contract of a result store, over every result store and every way to it."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.errors import StaleOwner
from leasehold.testing.results import CASES, TEXTS, Presenter
from tests.support.patterns.results.stage import OTHERS, WAYS, parameters


@pytest.mark.parametrize("results", parameters(WAYS), indirect=True)
@pytest.mark.parametrize("case", CASES)
def test_contract(case: str, results: Any) -> None:
    """The case holds for this results."""
    CASES[case](results)


@pytest.mark.parametrize("results", parameters(OTHERS), indirect=True)
def test_every_way_speaks_the_same(results: Any) -> None:
    """The other ways to the same places differ in how they speak: texts, numbers, names and refusals pass through."""
    for number, what in enumerate(["quotes", "marks", "beyond the first plane", "control characters"], 1):
        text, holder = TEXTS[what], Presenter(f"jöb:{{{what}}}", 2**53 + number)
        assert results.open(holder) is None
        results.write(holder, text, "1h")
        for found in (results.read(holder.resource), results.open(holder)):
            assert found[:2] == (text, holder.fence) and 0 <= found.age < 60 and 3500 < found.left <= 3600
        with pytest.raises(StaleOwner) as refused:
            results.write(holder._replace(fence=holder.fence - 1), "late", 60)
        assert refused.value.seen == holder.fence
    results.write(holder, None, 60)
    assert results.read(holder.resource) is None


def test_the_suite_finds_what_is_wrong() -> None:
    """A result store that accepts everything, and one that keeps nothing, fail all cases but those that do not ask
    for it."""
    from leasehold.patterns.results import MemoryResultStore

    class Credulous(MemoryResultStore):
        def open(self, lease: Any) -> Any:
            try:
                return super().open(lease)
            except StaleOwner:
                return self.read(lease.resource)

        def write(self, lease: Any, text: Any, keep: Any) -> None:
            try:
                super().write(lease, text, keep)
            except StaleOwner:
                super().write(Presenter(lease.resource, 2**63 - 1, "anybody"), text, keep)

    class Forgetful(MemoryResultStore):
        def read(self, resource: str) -> None:
            super().read(resource)

    assert {"an_older_fence_is_refused", "to_open_is_enough", "threads_at_once", "every_digit_counts"} <= failed(
        Credulous
    )
    assert {"what_is_written_is_read", "a_long_text", "none_removes_the_entry", "resources_are_apart"} <= failed(
        Forgetful
    )


def failed(kind: type[Any]) -> set[str]:
    """The cases that this kind of result store does not keep."""
    found = set()
    for name, case in CASES.items():
        try:
            case(kind())
        except (AssertionError, TypeError, AttributeError, ValueError, StaleOwner):
            found.add(name)
    return found
