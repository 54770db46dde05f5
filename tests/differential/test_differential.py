"""The same random ops for the ledger and for every store: each reply, each push and the state at the end are equal."""

from __future__ import annotations

import os
import pkgutil
import random
from pathlib import Path

import pytest

import leasehold.stores
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from leasehold.stores.sqlite import database
from leasehold.stores.sqlite.wake import Folder
from tests.differential.machine import play
from tests.differential.subjects import STORES, LedgerSubject, Opener, Subject
from tests.differential.wrong import WRONG

EVERY_STORE: list[Opener] = list(STORES.values())
NEVER = 10**9
SWEEP_ONE = MemoryStore._sweep_one
RECORDS_MS = 55_000  # below the 60 s of a tombstone: an earlier look at a row then changes no reply


@pytest.fixture(autouse=True)
def no_sweeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old names are swept at random turns, and with them the reason why somebody's claim is gone: here a run must
    depend on its seed alone."""
    monkeypatch.setattr(database, "SWEEP_EVERY", NEVER)
    monkeypatch.setattr(MemoryStore, "_sweep_one", lambda self: None)


def test_stores_answer_like_the_ledger_quick() -> None:
    """Every reply, push and final state of every store is the ledger's: a short run for everyday."""
    play(EVERY_STORE, number=1, examples=40)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3])
def test_stores_answer_like_the_ledger(number: int) -> None:
    """Every reply, push and final state of every store is the ledger's."""
    play(EVERY_STORE, number, examples=150)


@pytest.mark.slow
def test_sweeping_changes_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old names are tidied after every turn, and nobody can tell."""
    monkeypatch.setattr(database, "SWEEP_EVERY", 1)
    monkeypatch.setattr(MemoryStore, "_sweep_one", SWEEP_ONE)
    play(EVERY_STORE, number=4, examples=40, within_ms=RECORDS_MS)


@pytest.mark.soak
def test_stores_answer_like_the_ledger_for_long() -> None:
    """Every reply, push and final state of every store is the ledger's, over many lives. LEASEHOLD_SEED replays."""
    number = int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32))
    play(EVERY_STORE, number, examples=10_000, steps=80)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_wrong_store_is_found(wrong: type[LedgerSubject]) -> None:
    """The machine finds a store that is wrong on purpose: it can fail."""

    def opener(clock: ManualClock, folder: Path) -> Subject:
        return wrong(clock)

    with pytest.raises(AssertionError, match="ledger"):
        play([opener], number=5, examples=300, shrink=False)


def test_a_lost_push_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a real store behind its port is found out: here SQLite wakes nobody."""
    monkeypatch.setattr(Folder, "send", lambda self, push: None)
    with pytest.raises(AssertionError, match="sqlite pushes"):
        play([STORES["sqlite"]], number=6, examples=300, shrink=False)


def test_every_store_takes_part() -> None:
    """A store that exists and is not compared fails the suite: nothing is left out quietly."""
    helpers = {"clock"}
    existing = {module.name for module in pkgutil.iter_modules(leasehold.stores.__path__)} - helpers
    assert existing == set(STORES)
