"""The page says what the capabilities say."""

from __future__ import annotations

from pathlib import Path

import pytest

import leasehold
from leasehold._core.types import Capabilities
from leasehold.errors import Unsupported
from leasehold.stores.redis.redlock.store import RedlockStore

PAGE = Path(__file__).parents[3] / "docs" / "redlock.md"
TESTS = PAGE.parents[1] / "tests" / "integration" / "redlock"
ROWS = {  # of the table "What it cannot do", by capability: the first cell, and words of the row
    "fair": ("order", "there is no queue"),
    "push": ("order", "a release wakes nobody"),
    "shared": ("read-write locks, semaphores", "Unsupported"),
    "groups": ("`all`", "Unsupported"),
    "handover": ("`transfer` and `adopt`, `evict` and `revoke`", "Unsupported"),
    "evictions": ("`transfer` and `adopt`, `evict` and `revoke`", "Unsupported"),
    "reservations": ("passing a lease on", "no fences can be reserved"),
    "lingering": ("`linger=`", "Unsupported"),
    "longest_ttl_ms": ("a ttl above `max_ttl`", "InvalidRequest"),
}
NOT_ON_THE_PAGE = {"durable_fences"}  # as on one Redis, whose page explains it
PROMISES = {  # the rows of "What it promises", by their beginning, and the tests that show them
    "a minority of nodes crashes, is cut off": (
        "test_schedules::test_kill_9_of_one_node",
        "test_trouble::test_a_minority_is_cut_off_and_comes_back",
        "test_trouble::test_a_slow_node_does_not_slow_the_majority",
    ),
    "a majority is gone": (
        "test_trouble::test_without_a_majority_nothing_is_taken",
        "test_trouble::test_a_majority_lost_while_held",
    ),
    "a node restarts, with or without its data": (
        "test_schedules::test_restart_without_data_does_not_count",
        "test_schedules::test_kill_9_of_one_node",
        "test_schedules::test_flushall_on_one_node",
    ),
    "a majority loses its data": (
        "test_schedules::test_flushall_on_all_nodes",
        "test_schedules::test_kill_9_of_a_majority",
    ),
    "the clock of a node jumps, and stays off": ("test_schedules::test_clock_that_is_still_off_does_not_count",),
    "the clock of a node jumps by less than 500 ms": (
        "test_schedules::test_clock_jumps_by_less_than_half_a_second",
        "test_schedules::test_clock_jumps_forward_on_one_node_and_is_set_right",
    ),
    "a holder is paused": ("test_schedules::test_pause_while_a_write_is_in_flight",),
    "a node starts with a clock that is behind": ("test_schedules::test_restart_without_data_that_looks_old",),
}
OTHERS = {"`durability=`", "results beside the leases"}  # no capability: refused by name


def rows(heading: str = "What it cannot do") -> dict[str, str]:
    """A table of the page: its first cells, and the rest of each row."""
    section = PAGE.read_text("utf-8").partition(f"## {heading}")[2].partition("\n\n|")[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ", 1) for line in section.splitlines()[2:]]
    return {one[0]: one[1] for one in cells}


def less_than_usual() -> set[str]:
    """The capabilities that the embedded store has, and a Redlock has not, or less."""
    usual, stated = Capabilities(), RedlockStore("redlock://a,b,c").capabilities
    return {name for name in Capabilities._fields if getattr(stated, name) < getattr(usual, name)}


def test_the_page_lists_what_it_cannot_do() -> None:
    """Every capability that is less than that of the embedded store has a row."""
    found = rows()
    assert less_than_usual() - NOT_ON_THE_PAGE == set(ROWS)
    assert [name for name, (cell, words) in ROWS.items() if words not in found.get(cell, "")] == []


def test_no_row_of_the_page_is_left_over() -> None:
    """Each stands for a capability that is less, or for what is refused by its name."""
    assert set(rows()) == {cell for cell, _ in ROWS.values()} | OTHERS


def test_what_is_refused_by_its_name() -> None:
    """The rows without a capability are true too."""
    hold = leasehold.connect("redlock://a,b,c")
    for ask in (
        lambda: hold.lock("job", durability="replicas:1"),
        lambda: hold.once("job"),
        lambda: hold.cron("* * * * *", "job"),
    ):
        with pytest.raises(Unsupported):
            ask()


def test_every_promise_of_the_page_has_its_tests() -> None:
    """No row without tests that show it, no row that is left over, and each test is there."""
    found = rows("What it promises")
    assert [row for row in found if not any(row.startswith(one) for one in PROMISES)] == []
    assert [one for one in PROMISES if not any(row.startswith(one) for row in found)] == []
    for name in {name for names in PROMISES.values() for name in names}:
        file, _, test = name.partition("::")
        assert f"def {test}(" in (TESTS / f"{file}.py").read_text("utf-8"), name
