"""Guarantees: every store states what holds under every event, in words and as data."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import leasehold
from leasehold._core.guarantee_table import EVENTS, STORES, TABLE, VERDICTS, Cell
from leasehold._core.guarantees import PROMISES, Guarantees, guarantees
from leasehold.advice.guarantees import markdown
from leasehold.errors import Unsupported
from leasehold.stores.memory import MemoryStore
from tests.support.tables import each

ROOT = Path(__file__).parents[3]
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")
CELLS = [(store, event, cell) for store, cells in TABLE.items() for event, cell in cells.items()]
every_cell = each("store, event, cell", CELLS, ids=[f"{store}, {event}" for store, event, _ in CELLS])


@cache
def defined(path: str) -> set[str]:
    """The functions of a file of tests."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def missing(test: str) -> bool:
    """Is this test not where the table says that it is?"""
    found = TEST.fullmatch(test)
    if found is None:
        return True
    path, name = found.groups()
    return not (ROOT / path).is_file() or name not in defined(path)


# ---------------------------------------------------------------- the table


def test_every_store_states_every_event() -> None:
    """In the same order, so that tables can stand beside each other."""
    assert list(TABLE) == list(STORES)
    assert {store: list(cells) for store, cells in TABLE.items()} == {store: list(EVENTS) for store in STORES}


@every_cell
def test_a_cell_is_whole(store: str, event: str, cell: Cell) -> None:
    """Known verdicts, one or more whole sentences, and a test unless this cannot happen."""
    verdicts = {cell.exclusion, cell.fences, cell.guarded}
    assert verdicts <= set(VERDICTS)
    assert ("never" in verdicts) == (verdicts == {"never"}) == (not cell.test)
    assert cell.why.strip() == cell.why and cell.why.endswith(".") and len(cell.why.split()) >= 4
    assert "|" not in cell.why and "\n" not in cell.why
    assert not cell.test or not missing(cell.test)


@every_cell
def test_guarded_writes_hold_wherever_something_can_happen(store: str, event: str, cell: Cell) -> None:
    """I3 has no exception. Fences fall only where a clock is behind, or where two servers grant beside each other."""
    assert cell.guarded in ("holds", "never")
    if cell.fences == "lost":
        assert event == "clock_back_and_loss" or (store, event) == ("sentinel", "partition")


def test_a_store_that_decides_alone_keeps_exclusion_while_it_has_its_data_and_its_clock() -> None:
    """What is promised of one server: see the invariant I1."""
    kept = ("client_crash", "process_pause", "server_pause", "partition", "crash_always", "crash_file", "clock_back")
    for store in ("memory", "sqlite", "redis"):
        assert {TABLE[store][event].exclusion for event in kept} <= {"holds", "refused", "never"}


def test_consensus_keeps_exclusion_while_a_majority_keeps_its_data() -> None:
    """It survives the loss of a server, which no other store promises; only a clock that is set far forward, and data
    that is gone, break it."""
    for store in ("etcd", "zookeeper"):
        lost = {event for event, cell in TABLE[store].items() if cell.exclusion == "lost"}
        assert lost == {"clock_forward", "clock_back_and_loss", "flush", "restore"}
        assert TABLE[store]["failover"].exclusion == TABLE[store]["crash_ensemble"].exclusion == "holds"


def test_replication_and_eviction_are_not_hidden() -> None:
    """Where exclusion cannot be promised, the table says so."""
    assert {TABLE[store]["failover"].exclusion for store in ("sentinel", "cluster")} == {"lost"}
    assert {TABLE[store]["eviction"].exclusion for store in ("redis", "sentinel", "cluster", "redlock")} == {"lost"}
    assert TABLE["redlock"]["clock_forward"].exclusion == TABLE["redis"]["clock_forward"].exclusion == "lost"


def test_every_loss_has_a_test_of_its_own() -> None:
    """Two cells of one store that state a loss are not shown by the same test."""
    for cells in TABLE.values():
        tests = [cell.test for cell in cells.values() if "lost" in cell[:3]]
        assert len(tests) == len(set(tests))


def test_a_test_that_is_not_there_is_found() -> None:
    """Neither a wrong name, nor a wrong file, nor something else passes for a test."""
    there = "tests/unit/core/test_guarantees.py::test_a_test_that_is_not_there_is_found"
    assert not missing(there)
    assert all(missing(one) for one in (f"{there}_either", there.replace("/core", ""), "tests/unit", "test_it", ""))


# ---------------------------------------------------------------- as data and in words


@each("store", STORES)
def test_one_store_as_data(store: str) -> None:
    """Stable names, types of JSON, and every event."""
    found = guarantees(store)
    plain = found.as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["store"] == store and plain["url"] == STORES[store]
    assert [one["event"] for one in plain["events"]] == list(EVENTS)
    assert set(plain["events"][0]) == {"event", "when", *PROMISES, "why", "test"}
    assert found.under("flush").why == TABLE[store]["flush"].why


@each("store", STORES)
def test_one_store_in_words(store: str) -> None:
    """What can happen is told, with its reason; what cannot is left out; every word is explained."""
    found = guarantees(store)
    text = str(found)
    for one in found.events:
        assert (f"\n{one.when}\n" in text) == (one.why in text.splitlines() or f"  {one.why}" in text) == one.happens
    assert all(f"{word}: {meaning}" in text for word, meaning in (*VERDICTS.items(), *PROMISES.items()))


def test_an_unknown_name() -> None:
    """Nothing is promised by default: a store that is not stated is Unsupported, an event a KeyError."""
    with pytest.raises(Unsupported, match=r"nothing is known about what the store consul promises"):
        guarantees("consul")
    with pytest.raises(KeyError):
        guarantees("memory").under("earthquake")


def test_as_tables() -> None:
    """One that compares the stores, one for each of them; each row has as many fields as its head."""
    text = markdown(STORES)
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) == 1 + len(STORES)
    for table in tables:
        assert len({row.count("|") for row in table.splitlines()}) == 1
    assert all(f"| {when} |" in tables[0] for when in EVENTS.values())


def test_a_table_leaves_out_what_happens_to_none() -> None:
    """With one store only its own events are rows."""
    rows = markdown(["memory"]).split("\n\n")[0].splitlines()[2:]
    assert len(rows) == sum(one.happens for one in guarantees("memory").events) < len(EVENTS)


def test_they_are_values() -> None:
    """Two of the same store are equal, and nobody can change them."""
    assert guarantees("redis") == guarantees("redis") != guarantees("redlock")
    assert isinstance(guarantees("redis"), Guarantees) and hash(guarantees("redis"))


# ---------------------------------------------------------------- of a coordinator


class Unheard(MemoryStore):
    """A store of which nothing is stated."""

    name = "unheard"


def test_of_a_coordinator() -> None:
    """Both flavours say what their store promises, closed or not, and nothing of a store that is not stated."""
    with leasehold.connect("memory://") as hold:
        assert hold.guarantees == leasehold.aio.connect("memory://").guarantees == guarantees("memory")
    assert isinstance(hold.guarantees, leasehold.Guarantees)
    with pytest.raises(Unsupported, match="unheard"):
        assert leasehold.connect(Unheard()).guarantees


def test_it_is_loaded_when_it_is_used() -> None:
    """A program that never asks does not load the table."""
    program = "import leasehold, sys; hold = leasehold.connect('memory://'); hold.lock('job').acquire().release(); "
    program += "assert not [name for name in sys.modules if 'guarantee' in name or 'schemes' in name]; hold.guarantees"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
