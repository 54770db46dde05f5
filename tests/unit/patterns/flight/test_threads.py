"""Threads of one process that want the same: one leads, the others wait for what it brings."""

from __future__ import annotations

import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, NotAcquired, StoreUnavailable
from leasehold._core.ops import Claim, Release, Reply, StoreOp
from leasehold.patterns import RemoteError
from leasehold.patterns.single_flight.single_flight import shared_flights
from leasehold.stores.memory import MemoryStore
from tests.support.waiting import until

CROWD = 40


def flights_of(hold: Any) -> Any:
    """The flights of a coordinator."""
    return shared_flights(hold).flights


class CountingStore(MemoryStore):
    """Counts claims and releases."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = self.releases = 0
        self.slow = threading.Event()  # releases wait for it
        self.slow.set()

    def execute(self, op: StoreOp) -> Reply:
        """As ever."""
        self.claims += isinstance(op, Claim)
        if isinstance(op, Release):
            self.releases += 1
            assert self.slow.wait(60)
        return super().execute(op)


@pytest.fixture
def store() -> CountingStore:
    """On the real clock: threads wait for one another."""
    return CountingStore()


@pytest.fixture
def hold(store: CountingStore) -> Iterator[leasehold.Leasehold]:
    """Of this test alone."""
    with leasehold.connect(store) as hold:
        yield hold


class Gate:
    """A function that stands still inside until it is let go, and counts who came in."""

    def __init__(self, outcome: Callable[[], Any] = lambda: "made") -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.calls = 0
        self.outcome = outcome

    def __call__(self) -> Any:
        """Come in, wait, and go."""
        self.calls += 1
        self.entered.release()
        assert self.open.wait(60)
        return self.outcome()

    def page(self, key: str) -> Any:
        """What is rebuilt."""
        return self()


@contextmanager
def crowd(function: Callable[[str], Any], count: int = CROWD) -> Iterator[list[Future[Any]]]:
    """So many calls at once, each in a thread of its own."""
    with ThreadPoolExecutor(count) as pool:
        yield [pool.submit(function, "a") for _ in range(count)]


def waiting(hold: Any, count: int) -> None:
    """Until so many follow the flight, as their number of waits on its event says."""
    flights = flights_of(hold)._flights
    until(lambda: any(len(one.done._cond._waiters) == count for one in flights.values()), f"{count} wait")


def test_one_leads_for_all(hold: leasehold.Leasehold, store: CountingStore) -> None:
    """One call of the function and one claim, however many callers; each gets a value of its own."""
    gate = Gate(lambda: ["made"])
    page = hold.single_flight("page", "{key}")(gate.page)
    with crowd(page) as calls:
        assert gate.entered.acquire(timeout=60)
        waiting(hold, CROWD - 1)
        gate.open.set()
        values = [call.result(60) for call in calls]
    assert values == [["made"]] * CROWD and len({id(one) for one in values}) == CROWD
    assert (gate.calls, store.claims) == (1, 1)
    assert not flights_of(hold)._flights


def test_an_error_is_for_all(hold: leasehold.Leasehold, store: CountingStore) -> None:
    """All who waited get the error itself, with the way that led to it."""
    error = ValueError("no")

    def fail() -> None:
        raise error

    gate = Gate(fail)
    page = hold.single_flight("page", "{key}")(gate.page)
    with crowd(page) as calls:
        assert gate.entered.acquire(timeout=60)
        waiting(hold, CROWD - 1)
        gate.open.set()
        assert {call.exception(60) for call in calls} == {error}
    assert (gate.calls, store.claims) == (1, 1)
    names = []
    trace = error.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names.count("fail") == 1 and len(names) < 20  # not a way for each of the crowd


def test_trouble_with_the_store_is_for_all(hold: leasehold.Leasehold, store: CountingStore) -> None:
    """All who waited get it, and it does not grow with each of them."""
    away = threading.Event()

    def execute(op: StoreOp) -> Reply:
        assert away.wait(60)
        raise StoreUnavailable("away")

    store.execute = execute  # type: ignore[method-assign]  # from now on
    page = hold.single_flight("page", "{key}")(Gate().page)
    with crowd(page) as calls:
        until(lambda: flights_of(hold)._flights, "one leads")
        waiting(hold, CROWD - 1)
        away.set()
        errors = [call.exception(60) for call in calls]
    del store.execute
    assert all(isinstance(error, StoreUnavailable) for error in errors)
    assert max(len(traceback.extract_tb(error.__traceback__)) for error in errors if error) < 60


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_no_outcome(hold: leasehold.Leasehold, interrupt: type[BaseException]) -> None:
    """Whoever led when it came gets it; one of the others takes over."""
    first = threading.Event()

    def outcome() -> str:
        if not first.is_set():
            first.set()
            raise interrupt
        return "made"

    gate = Gate(outcome)
    page = hold.single_flight("page", "{key}")(gate.page)
    found: list[Any] = []

    def call() -> None:
        try:
            found.append(page("a"))
        except BaseException as error:
            found.append(type(error))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert gate.entered.acquire(timeout=60)
    waiting(hold, 3)
    gate.open.set()
    for thread in threads:
        thread.join(60)
    assert sorted(map(str, found)) == sorted(map(str, [interrupt, "made", "made", "made"]))
    assert gate.calls == 2
    assert not hold.lock("page", "a").locked()


def test_the_wait_of_those_who_follow(hold: leasehold.Leasehold) -> None:
    """Who follows waits no longer than wait; the leader is at work, not waiting."""
    gate = Gate()
    page = hold.single_flight("page", "{key}")(gate.page)
    hasty = hold.single_flight("page", "{key}", wait=0.01)(gate.page)
    with ThreadPoolExecutor(1) as pool:
        leading = pool.submit(page, "a")
        assert gate.entered.acquire(timeout=60)
        with pytest.raises(NotAcquired, match="rebuilt in this process"):
            hasty("a")
        gate.open.set()
        assert leading.result(60) == "made"
    assert hasty("a") == "made"


def test_the_wait_of_one_who_leads(hold: leasehold.Leasehold) -> None:
    """While somebody else in the fleet rebuilds, wait is how long to wait for it."""
    gate = Gate()
    with hold.lock("page", "a"), pytest.raises(NotAcquired):
        hold.single_flight("page", "{key}", wait=0)(gate.page)("a")
    assert gate.calls == 0


def test_the_impatience_of_the_leader_is_its_own(hold: leasehold.Leasehold) -> None:
    """When the leader gives up, one that followed it with more patience leads."""
    gate = Gate()
    gate.open.set()
    hasty = hold.single_flight("page", "{key}", wait=0.3)(gate.page)
    patient = hold.single_flight("page", "{key}")(gate.page)
    lease = hold.lock("page", "a").acquire()
    assert lease is not None
    with ThreadPoolExecutor(2) as pool:
        leading = pool.submit(hasty, "a")
        until(lambda: flights_of(hold)._flights or leading.done(), "it leads")
        following = pool.submit(patient, "a")
        with pytest.raises(NotAcquired):
            leading.result(60)
        lease.release()
        assert following.result(60) == "made"


def test_asking_for_oneself(hold: leasehold.Leasehold) -> None:
    """A function that asks for the value it is to make would wait for itself: it is refused."""

    def deep(key: str) -> Any:
        return [page(key)] if key else "never"

    def forgetful(key: str) -> Any:
        return page.forget(key)

    for function in (deep, forgetful):
        page: Any = hold.single_flight("page", "{key}")(function)
        with pytest.raises(InvalidRequest, match="would wait for itself"):
            page("a")
    tree: Any = hold.single_flight("tree", "{depth}")(lambda depth: [tree(depth - 1)] if depth else [])
    assert tree(3) == [[[[]]]]


@pytest.mark.slow
def test_close_ends_the_waiting(store: CountingStore) -> None:
    """Those who follow hear that the coordinator is closed, also while the function goes on."""
    hold = leasehold.connect(store)
    gate = Gate()
    page = hold.single_flight("page", "{key}")(gate.page)
    with crowd(page, 3) as calls:
        assert gate.entered.acquire(timeout=60)
        waiting(hold, 2)
        hold.close()
        until(lambda: sum(call.done() for call in calls) == 2, "two have heard it")
        gate.open.set()
        errors = [call.exception(60) for call in calls]
    assert sum(isinstance(error, StoreUnavailable) for error in errors) == 2
    with pytest.raises(StoreUnavailable):
        page("a")


def test_forget_waits_for_a_rebuild(hold: leasehold.Leasehold) -> None:
    """What was being rebuilt when it was forgotten does not come back as fresh."""
    gate = Gate(lambda: gate.calls)
    page = hold.single_flight("page", "{key}")(gate.page)
    with ThreadPoolExecutor(2) as pool:
        rebuild = pool.submit(page, "a")
        assert gate.entered.acquire(timeout=60)
        forgetting = pool.submit(page.forget, "a")
        until(lambda: hold.inspect("page:a").waiters, "it waits in the queue")
        gate.open.set()
        assert rebuild.result(60) == 1
        forgetting.result(60)
        assert page("a") == 2


def test_nobody_joins_what_has_landed(hold: leasehold.Leasehold, store: CountingStore) -> None:
    """Who finds nothing in the cache, because it was forgotten, does not get what a flight brought before that: its
    doors are closed while its lease is still held."""
    calls: list[str] = []

    def make(key: str) -> int:
        calls.append(key)
        return len(calls)

    page = hold.single_flight("page", "{key}")(make)
    store.slow.clear()
    with ThreadPoolExecutor(2) as pool:
        landed = pool.submit(page, "a")
        until(lambda: store.releases == 1, "it has written, and gives its lease back")
        hold._results._records.clear()  # type: ignore[attr-defined] # what forget() would do in a moment
        newcomer = pool.submit(page, "a")
        until(lambda: store.claims == 2, "it asks on its own")
        store.slow.set()
        assert [landed.result(60), newcomer.result(60)] == [1, 2]


def elsewhere(hold: leasehold.Leasehold, store: CountingStore, gate: Gate, **here: Any) -> Future[Any]:
    """Another process waits for the lease while this one rebuilds, and then gets its turn; its function counts, too."""
    page = hold.single_flight("page", "{key}", **here)(gate.page)
    with ThreadPoolExecutor(2) as pool, leasehold.connect(store) as other:
        leading = pool.submit(page, "a")
        assert gate.entered.acquire(timeout=60)
        waits = pool.submit(other.single_flight("page", "{key}")(gate.page), "a")
        until(lambda: hold.inspect("page:a").waiters, "it waits")
        gate.open.set()
        leading.exception(60)
        waits.exception(60)
        return waits


def test_an_error_reaches_who_waits_elsewhere(hold: leasehold.Leasehold, store: CountingStore) -> None:
    """Also when errors are not kept: it is the outcome of the flight that was waited for."""

    def fail() -> None:
        raise ValueError("no")

    gate = Gate(fail)
    error = elsewhere(hold, store, gate).exception()
    assert isinstance(error, RemoteError) and error.was(ValueError)
    assert gate.calls == 1
    entry: Any = hold._results.read("page:a")
    assert entry.left > 20  # of the ttl: whoever waits behind many others must still find it


def test_what_cannot_be_read_is_not_waited_for(hold: leasehold.Leasehold, store: CountingStore) -> None:
    """A value of another version of the program is none: who waited for it makes its own."""
    gate = Gate()
    assert elsewhere(hold, store, gate, serializer=pickle).result() == "made"
    assert gate.calls == 2


def test_the_first_of_many_threads(store: CountingStore) -> None:
    """The call form is used by many threads at once, from the first moment on: they share what one of them made, and
    it is closed once."""
    hold = leasehold.connect(store)
    start = threading.Barrier(8)

    def call(_: int) -> Any:
        start.wait(60)
        return [hold.single_flight("page", "a").call(lambda: "made") for _ in range(50)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(call, range(8))) == [["made"] * 50] * 8
    finally:
        sys.setswitchinterval(interval)
    assert len(hold._closers) == 2  # the result store's, and the crew's
    hold.close()
