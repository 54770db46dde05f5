"""An interrupt at every place of ``with hold.lock(...)`` where Python could deliver one: nothing stays locked."""

from __future__ import annotations

from collections.abc import Callable, Set
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import pytest

import leasehold
from tests.support.faults.aftermath import expect_sound
from tests.support.faults.places import Line, Places
from tests.support.faults.user import ThreadUser, familiar

pytestmark = [  # an interrupt came between the making of something and its use
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore:unclosed"),
]
MOST = 2000  # places
MANY = 5  # uses in a row that had fewer places: there are no more
MOST_WRONG = 3  # after which a test gives up: each costs the time in which something should have been free
WARM = 120  # uses after which the path is what it stays: connected, and all that is compiled late is compiled


def interrupt_everywhere(
    users: Callable[[], AbstractContextManager[Any]],
    other: leasehold.Leasehold,
    known: Set[Line] = frozenset(),
    named: Callable[[Any, int], int] = lambda user, number: number,
) -> int:
    """Use a lock again and again, and interrupt each use one place later; how many places there are. Where something is
    wrong, the report names the place."""
    wrong: list[Exception] = []
    missed = found = 0
    for nth in range(1, MOST):
        places = Places(nth, known=known)
        with users() as user:
            use = user.use(named(user, nth), places)
            if not places.where:  # it was over before: the paths of two uses are not always equally long
                missed += 1
                if missed == MANY:
                    break
                continue
            missed, found = 0, nth
            try:
                expect_sound(user, other, use)
            except AssertionError as error:
                error.add_note(f"after an interrupt in {places.where}: {use}")
                wrong.append(error)
        if len(wrong) == MOST_WRONG:
            break
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} places", wrong)
    return found


def warm(user: Any) -> Any:
    """The same user, with a connection."""
    for _ in range(WARM):
        user.use(0)
    return user


def places_of(user: Any, known: Set[Line] = frozenset()) -> Places:
    """Those of one use that is not interrupted."""
    with Places(known=known) as places:
        user.use(0)
    return places


def usual_count(user: Any) -> int:
    """How many places a use has. Now and then one has more, because it also tidies up: the shortest of a few counts."""
    return min(places_of(user).count for _ in range(MANY))


NAMES = {"a known name": familiar, "a new name": lambda user, number: number}


SOAK = pytest.param("postgresql", marks=pytest.mark.soak)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("url", ["redis", "sqlite", SOAK], indirect=True)
def test_an_interrupt_at_every_place(
    url: str, new_user: Callable[[str], Any], other: leasehold.Leasehold, name: str
) -> None:
    """Of a coordinator that is connected, and has used locks often."""
    with closing(warm(new_user(url))) as user:
        expected = usual_count(user)
        found = interrupt_everywhere(lambda: nullcontext(user), other, named=NAMES[name])
        assert found > expected * 0.9, "it was used in the same way"


@pytest.mark.parametrize(
    "url", ["postgresql", pytest.param("etcd", marks=pytest.mark.soak), "zookeeper"], indirect=True
)
def test_an_interrupt_on_every_line(url: str, other: leasehold.Leasehold) -> None:
    """One place of each line, of a store where every place takes too long."""
    known: set[Line] = set()
    with closing(warm(ThreadUser(url))) as user:
        for number in range(1, MOST):
            places = Places(1, known=known)
            use = user.use(familiar(user, number), places)
            if not places.where:
                break
            try:
                expect_sound(user, other, use)
            except AssertionError as error:
                error.add_note(f"after an interrupt at {places.where}")
                raise
            known |= places.lines
    assert len(known) > 50


@pytest.mark.parametrize("url", ["redis", pytest.param("sqlite", marks=pytest.mark.soak), SOAK], indirect=True)
def test_an_interrupt_at_every_place_of_the_first_use(
    url: str, new_user: Callable[[str], Any], other: leasehold.Leasehold
) -> None:
    """Of a coordinator that has to connect: on the lines that only the first use comes to."""
    with closing(warm(new_user(url))) as user:
        known = places_of(user).lines
    with closing(new_user(url)) as user:
        expected = places_of(user, known).count
    found = interrupt_everywhere(lambda: closing(new_user(url)), other, known)
    assert found > expected * 0.9, "it was used in the same way"
