"""The same random ops for the ledger and for every store: each reply, each push and the state at the end are equal."""

from __future__ import annotations

import os
import pkgutil
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import leasehold.stores
from leasehold._core import ops
from leasehold.errors import LeaseholdError
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from leasehold.stores.postgresql import store as postgresql_store
from leasehold.stores.sqlite import database
from leasehold.stores.sqlite.sockets import SocketFolder
from tests.model.differential import subjects
from tests.model.differential.machine import PlainLeases, play
from tests.model.differential.subjects import ON_SERVERS, STORES, LedgerSubject, Opener, Subject, postgresql, redis
from tests.model.differential.wrong import WRONG
from tests.model.differential.wrong_scripts import WRONG_SCRIPTS, break_scripts
from tests.model.differential.wrong_statements import WORST, WRONG_FOR_CROWDS, WRONG_STATEMENTS, break_statement
from tests.support.servers.clock import OneClock
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import EVERY, RedisServer

pytestmark = pytest.mark.timeout(240)  # beside others; alone the longest takes fifteen seconds
WITHOUT_SERVERS: list[Opener] = list(STORES.values())
NEVER = 10**9
DAY = 86_400
STILL = ("--jemalloc-bg-thread", "no")  # it would wait in vain for a clock that stands, and take a whole core for that
SWEEP_ONE = MemoryStore._sweep_one
# What is noticed seldom: the rules by which it is noticed come often, and all want what is said after the colon.
SELDOM = {
    "IgnoresTheFence": "release: mutex",
    "NeverDowngrades": "renew_as: readers and writers",
    "a lock-delay is forgotten": "claim_oddly release",
    "a holder who is gone was told": "revoke shut_news",
    "a slot is given twice": ": permits",
    "a writer goes on writing": "renew_as: readers and writers",
    "a request forgets why": "revoke",
    "an eviction needs no force": "evict claim",
    "any ticket will do": "adopt",
    "notes last for a day": "evict time_passes",
    "one who does not listen is granted (trap 25)": "shut_box release",
    "release compares the owner alone": "release: mutex",
    "what was noted is not listed": "evict search",
    "whoever asks again is noted again": "revoke",
    "whoever asks once stays in line": "claim_oddly",
    "whoever is asked to give back is not told": "revoke",
    "whoever keeps it unused is not told of a claim": "renew_for_others claim: mutex",
    "whoever watches is not told": "watch release",
}


@pytest.fixture(autouse=True)
def no_sweeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old names are swept at random turns, and with them the reason why somebody's claim is gone: here a run must
    depend on its seed alone."""
    monkeypatch.setattr(database, "SWEEP_EVERY", NEVER)
    monkeypatch.setattr(postgresql_store, "SWEEP_EVERY", NEVER)
    monkeypatch.setattr(MemoryStore, "_sweep_one", lambda self, now: None)


@pytest.fixture(scope="module")
def turned_redis() -> Iterator[tuple[OneClock, RedisServer]]:
    """A server that sees the same clock as everybody else."""
    clock = OneClock()
    with RedisServer(None, *STILL, clock=clock) as server:
        yield clock, server


@pytest.fixture(scope="module")
def turned_postgres() -> Iterator[tuple[OneClock, PostgresServer]]:
    """The same with PostgreSQL."""
    clock = OneClock()
    with PostgresServer(clock=clock) as server:
        yield clock, server


def test_stores_answer_like_the_ledger_quick() -> None:
    """Every reply, push and final state of the stores without servers is the ledger's: a short run for everyday."""
    play(WITHOUT_SERVERS, number=1, examples=30)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_stores_without_servers_answer_like_the_ledger(number: int) -> None:
    """Every reply, push and final state is the ledger's, also when the wall clock alone is set back."""
    play(WITHOUT_SERVERS, number, examples=40)


@pytest.mark.slow
@pytest.mark.parametrize("number", [20, pytest.param(21, marks=pytest.mark.soak)])
def test_every_store_answers_like_the_ledger(number: int, turned_redis: tuple[OneClock, RedisServer]) -> None:
    """Every reply, push and final state of every store is the ledger's, on one clock."""
    clock, server = turned_redis
    play([*WITHOUT_SERVERS, *[store(server) for store in ON_SERVERS.values()]], number, examples=20, clock=clock)


@pytest.mark.slow
def test_redis_answers_like_the_ledger_when_its_clock_is_set_back(turned_redis: tuple[OneClock, RedisServer]) -> None:
    """Often, and between renewals that close doors: an end is bounded once, not twice."""
    clock, server = turned_redis
    play([redis(server)], number=941, examples=20, clock=clock, theme="mutex", often="renew wall_steps")


@pytest.mark.slow
@pytest.mark.parametrize("examples", [10, pytest.param(150, marks=pytest.mark.soak)])
def test_postgresql_answers_like_the_ledger(examples: int, turned_postgres: tuple[OneClock, PostgresServer]) -> None:
    """Every reply, push and final state is the ledger's, also when the clock of the server is set back."""
    clock, server = turned_postgres
    play([postgresql(server)], number=31, examples=examples, clock=clock)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [20, pytest.param(300, marks=pytest.mark.soak)])
def test_plain_leases_answer_like_the_ledger(examples: int, turned_postgres: tuple[OneClock, PostgresServer]) -> None:
    """Where one statement is enough, it does what the ledger would."""
    clock, server = turned_postgres
    play([*WITHOUT_SERVERS, postgresql(server)], number=32, examples=examples, clock=clock, machine=PlainLeases)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [10, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
def test_every_redis_answers_like_the_ledger(program: Callable[[], str], examples: int) -> None:
    """The oldest that is supported, today's, and Valkey."""
    clock = OneClock()
    with RedisServer(None, *STILL, executable=program(), clock=clock) as server:
        play([redis(server)], number=22, examples=examples, clock=clock)


@pytest.mark.slow
def test_sweeping_changes_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old names are tidied after every turn, and nobody can tell, except that reasons are forgotten sooner."""
    monkeypatch.setattr(database, "SWEEP_EVERY", 1)
    monkeypatch.setattr(MemoryStore, "_sweep_one", SWEEP_ONE)
    play(WITHOUT_SERVERS, number=12, examples=30, swept=True)


@pytest.mark.parametrize("name", STORES)
def test_sweeping_keeps_a_door_closed(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A holder that died under a long ``at_least`` is tidied up; nobody is granted before that is over."""
    monkeypatch.setattr(database, "SWEEP_EVERY", 1)
    monkeypatch.setattr(MemoryStore, "_sweep_one", SWEEP_ONE)
    clock = ManualClock()
    with closing(STORES[name](clock, tmp_path)) as store:
        door_stays_closed(store, clock)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_SERVERS)
def test_expiry_keeps_a_door_closed(name: str, turned_redis: tuple[OneClock, RedisServer], tmp_path: Path) -> None:
    """The same where keys expire by themselves."""
    clock, server = turned_redis
    with closing(ON_SERVERS[name](server)(clock, tmp_path)) as store:
        door_stays_closed(store, clock)


def door_stays_closed(store: Subject, clock: ManualClock) -> None:
    """The lease is over and its tombstone too; the door is not."""
    (granted,) = store.ask([ops.Claim("job", "host:1:a.1", 1_000)], 0, "sync")
    assert isinstance(granted, ops.Granted)
    store.ask([ops.Renew("job", "host:1:a.1", granted.fence, 1_000, closed_ms=600_000)], 0, "sync")
    clock.advance(65)
    store.ask([ops.Inspect("another")] * 4, 0, "sync")
    assert store.ask([ops.Claim("job", "host:2:b.1", 1_000, enqueue=False)], 0, "sync") == [ops.Busy("", 535_000)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_SERVERS)
def test_a_clock_that_is_set_back_costs_no_note(
    name: str, turned_redis: tuple[OneClock, RedisServer], tmp_path: Path
) -> None:
    """Each is kept for its 30 days, whatever is noted after the step; and one that is over takes no other's place."""
    clock, server = turned_redis
    with closing(ON_SERVERS[name](server)(clock, tmp_path)) as store:
        both = (LedgerSubject(clock), store)

        def evict(numbers: range) -> None:
            for subject in both:
                for owner in [f"host:{number}:a.1" for number in numbers]:
                    (granted,) = subject.ask([ops.Claim("job", owner, 1_000)], 0, "sync")
                    assert isinstance(granted, ops.Granted)
                    subject.ask([ops.Evict("job", owner, granted.fence, "request", 0, True)], 0, "sync")

        def noted() -> list[str]:
            seen, found = [subject.ask([ops.Inspect("job")], 0, "sync") for subject in both]
            assert found == seen
            return [note.owner for view in found if isinstance(view, ops.View) for note in view.notes]

        evict(range(15))
        clock.step_wall(-DAY)
        evict(range(15, 20))
        clock.advance(30 * DAY + 1)
        assert noted() == [f"host:{number}" for number in range(15)]
        evict(range(20, 23))
        assert noted() == [f"host:{number}" for number in (*range(15), 20, 21, 22)]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_stores_answer_like_the_ledger_for_long() -> None:
    """Every reply, push and final state is the ledger's, over many lives. LEASEHOLD_SEED replays."""
    play(WITHOUT_SERVERS, seed(), examples=6_000, steps=80)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_store_answers_like_the_ledger_for_long(turned_redis: tuple[OneClock, RedisServer]) -> None:
    """The same with those that have a server, which are slower."""
    clock, server = turned_redis
    openers = [*WITHOUT_SERVERS, *[store(server) for store in ON_SERVERS.values()]]
    play(openers, seed(), examples=2_000, steps=80, clock=clock)


def seed() -> int:
    """A new one each time, unless one is to be played again."""
    return int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32))


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_wrong_store_is_found(wrong: type[LedgerSubject]) -> None:
    """The machine finds a store that is wrong on purpose: it can fail."""

    def opener(clock: ManualClock, folder: Path) -> Subject:
        return wrong(clock)

    often, _, theme = SELDOM.get(wrong.__name__, "").partition(": ")
    with pytest.raises(AssertionError, match="ledger"):
        play([opener], number=5, examples=300, shrink=False, often=often, theme=theme)


def test_a_lost_push_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a real store behind its port is found out: here SQLite wakes nobody."""
    monkeypatch.setattr(SocketFolder, "send", lambda self, push: None)
    with pytest.raises(AssertionError, match="sqlite pushes"):
        play([STORES["sqlite"]], number=6, examples=300, shrink=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_SCRIPTS)
def test_a_wrong_script_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, turned_redis: tuple[OneClock, RedisServer]
) -> None:
    """Also what is wrong inside a server is found out."""
    clock, server = turned_redis
    monkeypatch.setattr(subjects, "PUSH_WITHIN", 0.3)  # it never comes
    break_scripts(monkeypatch, WRONG_SCRIPTS[name])
    often, _, theme = SELDOM.get(name, "").partition(": ")
    with pytest.raises((AssertionError, LeaseholdError), match=r"redis (answers|pushes|keeps)|Redis at"):
        play([redis(server)], number=9, examples=300, shrink=False, clock=clock, often=often, theme=theme)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] * (name not in WORST)) for name in WRONG_STATEMENTS]
)
def test_a_wrong_statement_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, turned_postgres: tuple[OneClock, PostgresServer]
) -> None:
    """The same with PostgreSQL."""
    clock, server = turned_postgres
    break_statement(monkeypatch, *WRONG_STATEMENTS[name])
    with pytest.raises((AssertionError, LeaseholdError), match=r"postgresql (answers|pushes|keeps)|PostgreSQL at"):
        play([postgresql(server)], number=9, examples=300, shrink=False, clock=clock, machine=PlainLeases)


@pytest.mark.soak
@pytest.mark.parametrize("name", WRONG_FOR_CROWDS)
def test_a_wrong_statement_is_found_by_a_crowd(
    name: str, monkeypatch: pytest.MonkeyPatch, turned_postgres: tuple[OneClock, PostgresServer]
) -> None:
    """The same for those who wait."""
    clock, server = turned_postgres
    monkeypatch.setattr(subjects, "PUSH_WITHIN", 0.3)  # it never comes
    break_statement(monkeypatch, *WRONG_FOR_CROWDS[name])
    often, _, theme = SELDOM.get(name, "").partition(": ")
    with pytest.raises((AssertionError, LeaseholdError), match=r"postgresql (answers|pushes|keeps)|PostgreSQL at"):
        play([postgresql(server)], number=9, examples=300, shrink=False, clock=clock, often=often, theme=theme)


def test_every_store_takes_part() -> None:
    """A store that exists and is not compared fails the suite: nothing is left out quietly."""
    helpers = {"clock", "mailbox", "concurrency", "place", "state_text"}
    helpers |= {"record", "etcd", "zookeeper"}  # no second copy of the rules: they run the ledger, and have a model
    existing = {module.name for module in pkgutil.iter_modules(leasehold.stores.__path__)} - helpers
    assert existing == {*STORES, *ON_SERVERS, "postgresql"}
