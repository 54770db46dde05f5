"""Sixty-four readers and writers of four coordinators, a fifth of whom give up or are cancelled: nobody overlaps,
nobody is overtaken, and nobody is left in the queue.

They arrive one after the other, so that their order is known: half of them while a writer keeps the gate, the others
while the first are being served. Fences are given in the order of grants: they must grow with the places.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import leasehold
from leasehold._core.ports import Store
from leasehold.stores.memory import MemoryStore
from leasehold.stores.redis import RedisStore
from leasehold.stores.sqlite import SQLiteStore
from tests.support.lock import look, nothing_left
from tests.support.waiting import PATIENCE, until, until_async

CROWD, COORDINATORS = 64, 4
FICKLE = 0.2  # of them do not wait for their turn
READERS = 0.6
Opener = Callable[[], Store]


class Person(NamedTuple):
    """Somebody in the crowd."""

    place: int
    shared: bool
    leaves_after: float | None  # seconds; None: it waits for its turn


def crowd(seed: int) -> list[Person]:
    """A different one for each seed; the share of the fickle is the same."""
    chance = random.Random(seed)
    fickle = set(chance.sample(range(CROWD), round(CROWD * FICKLE)))
    return [
        Person(place, chance.random() < READERS, chance.uniform(0.01, 0.15) if place in fickle else None)
        for place in range(CROWD)
    ]


class Book:
    """Who is inside, and who was: kept by those who come in and go out."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.inside: dict[int, bool] = {}
        self.fences: dict[int, int] = {}
        self.overlaps: list[object] = []
        self.came: set[int] = set()  # has been inside, or has left
        self._lock = threading.Lock()

    def enter(self, person: Person, lease: leasehold.ReadWriteLease | leasehold.AsyncReadWriteLease) -> None:
        """With its lease in hand."""
        with self._lock:
            self.inside[person.place] = person.shared
            if len(self.inside) > 1 and not all(self.inside.values()):
                self.overlaps.append(dict(self.inside))
            if lease.shared != person.shared or lease.fence is None:
                self.overlaps.append(lease)
            else:
                self.fences[person.place] = lease.fence
            self.came.add(person.place)

    def leave(self, person: Person) -> None:
        """Before it gives its lease back."""
        with self._lock:
            del self.inside[person.place]

    def arrived(self, person: Person) -> bool:
        """Has it been seen: in the queue, inside, or on its way out?"""
        if person.place in self.came:
            return True
        view = look(self.store, "doc:1")
        metas = [*[one.meta for one in view.queue], *[one.meta for one in view.holders]]
        return person.place in [json.loads(meta).get("place") for meta in metas if meta]

    def thinned(self, people: list[Person]) -> bool:
        """Have half of the fickle who stand before the gate left again? The others will later, or be served."""
        fickle = {one.place for one in people[: CROWD // 2] if one.leaves_after is not None}
        return 2 * len(fickle & self.came) >= len(fickle)

    def judge(self, people: list[Person]) -> None:
        """What must be so when all have gone."""
        assert not self.overlaps and not self.inside
        places = list(dict(sorted(self.fences.items(), key=lambda item: item[1])))
        assert places == sorted(places), "somebody was overtaken"
        patient = {one.place for one in people if one.leaves_after is None}
        assert patient <= set(places), "somebody waited in vain"
        assert len(places) < CROWD and len(self.came) == CROWD


@pytest.fixture(params=["memory", *[pytest.param(one, marks=pytest.mark.slow) for one in ("sqlite", "redis")]])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """How a coordinator gets to the store that all of them share."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "sqlite":
        return lambda: SQLiteStore(str(tmp_path / "leases.db"))
    url = request.getfixturevalue("redis_url")
    return lambda: RedisStore(url)


@pytest.fixture
def book(opener: Opener) -> Iterator[Book]:
    """An empty one, which looks with a store of its own."""
    book = Book(opener())
    yield book
    book.store.close()


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_threads(opener: Opener, book: Book, seed: int) -> None:
    """The fickle wait for some tenths of a second and give up, wherever they stand by then."""
    people = crowd(seed)
    holds = [leasehold.connect(opener()) for _ in range(COORDINATORS)]
    errors: list[BaseException] = []

    def visit(person: Person) -> None:
        doc = holds[person.place % COORDINATORS].rwlock("doc", 1)
        side = doc.read if person.shared else doc.write
        try:
            lease = side(meta={"place": person.place}).acquire(wait=person.leaves_after)
            if lease is not None:
                book.enter(person, lease)
                time.sleep(0.001)  # so that others would be seen inside
                book.leave(person)
                assert lease.release() is True
        except BaseException as error:  # told by the test
            errors.append(error)
        book.came.add(person.place)

    gate = holds[0].rwlock("doc", 1).write().acquire(wait=0)
    assert gate is not None
    threads = [threading.Thread(target=visit, args=[one], daemon=True) for one in people]
    for person in people:
        if person.place == CROWD // 2:
            until(lambda: book.thinned(people), "some have left")
            gate.release()
        threads[person.place].start()
        until(lambda person=person: book.arrived(person), f"{person} arrives")  # type: ignore[misc]  # a default
    for thread in threads:
        thread.join(PATIENCE)
    assert not errors and not any(thread.is_alive() for thread in threads)
    book.judge(people)
    until(lambda: nothing_left(book.store, "doc:1"), "nobody is left")
    for hold in holds:
        hold.close()


# ---------------------------------------------------------------- tasks


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
async def test_tasks(opener: Opener, book: Book, seed: int) -> None:
    """The fickle are cancelled, wherever they are by then: in the queue, between grant and body, or inside."""
    people = crowd(seed)
    holds = [leasehold.aio.connect(opener()) for _ in range(COORDINATORS)]

    async def visit(person: Person) -> None:
        doc = holds[person.place % COORDINATORS].rwlock("doc", 1)
        side = doc.read if person.shared else doc.write
        try:
            async with side(meta={"place": person.place}) as lease:
                book.enter(person, lease)
                try:
                    await asyncio.sleep(0.001)
                finally:
                    book.leave(person)
        finally:
            book.came.add(person.place)

    gate = await holds[0].rwlock("doc", 1).write().acquire(wait=0)
    assert gate is not None
    tasks: list[asyncio.Task[None]] = []
    for person in people:
        if person.place == CROWD // 2:
            await until_async(lambda: book.thinned(people), "some have left")
            await gate.release()
        tasks.append(asyncio.create_task(visit(person)))
        if person.leaves_after is not None:
            asyncio.get_running_loop().call_later(person.leaves_after, tasks[-1].cancel)
        await until_async(lambda person=person: book.arrived(person), f"{person} arrives")  # type: ignore[misc]  # a default
    outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)
    assert {type(one) for one in outcomes} <= {type(None), asyncio.CancelledError}
    assert [place for place, one in enumerate(outcomes) if one is not None and people[place].leaves_after is None] == []
    book.judge(people)
    await until_async(lambda: nothing_left(book.store, "doc:1"), "nobody is left")
    for hold in holds:
        await hold.close()
