"""Clients of an ensemble that stand still for longer than their leases and sessions last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.ensembles.members import Members
from tests.integration.ensembles.stage import SHORT
from tests.support.waiting import until
from tests.support.workers.crew import Crew

FLAVOURS = [("sync", "asyncio"), pytest.param(("asyncio", "sync"), marks=pytest.mark.soak)]
flavours = pytest.mark.parametrize("flavours", FLAVOURS, ids=lambda pair: pair[0])


@pytest.fixture
def crew(members: Members, tmp_path: Path) -> Iterator[Crew]:
    """Processes whose leases are there."""
    with closing(Crew(tmp_path, members.url())) as crew:
        yield crew


@flavours
def test_a_holder_stands_still(crew: Crew, members: Members, flavours: tuple[str, str]) -> None:
    """Past its lease and its session: the next one is granted after its deadline, a guard refuses its late write, and
    it takes part again as soon as it goes on."""
    frozen, other = crew.ready(*flavours)
    first = frozen.ask("acquire", kind="job", ttl=SHORT, wait=30)
    assert frozen.ask("write") == {"value": 1}
    frozen.stop()
    second = other.ask("acquire", kind="job", ttl=SHORT, wait=60)
    assert second["fence"] > first["fence"] and second["at"] > first["at"] + SHORT * 0.99
    assert other.ask("write") == {"value": 2}
    until(lambda: members.sessions() <= 1, "its session is over", every=0.02)
    frozen.go_on()
    assert frozen.ask("write")["error"] == "StaleOwner"
    until(lambda: frozen.ask("state")["state"] == "lost", "it knows")
    frozen.tell("acquire", kind="job", ttl=SHORT, wait=60)
    until(lambda: members.places() == 1, "it waits")
    assert other.ask("release")["released"] is True
    third = frozen.hear()
    assert third["fence"] > second["fence"] and frozen.ask("write") == {"value": 3}
    assert frozen.ask("release")["released"] is True


@flavours
def test_the_first_waiter_stands_still(crew: Crew, members: Members, flavours: tuple[str, str]) -> None:
    """It keeps the others waiting for seconds, whatever its session does; when it goes on it waits at the end."""
    holder, frozen, other = crew.ready("sync", *flavours)
    fences = [holder.ask("acquire", kind="job", ttl=SHORT, wait=30)["fence"]]
    for number, waiter in enumerate((frozen, other), 1):
        waiter.tell("acquire", kind="job", ttl=SHORT, wait=60)
        until(waiting(members, number), "it waits")
    frozen.stop()
    assert holder.ask("release")["released"] is True
    fences.append(other.hear()["fence"])
    assert other.ask("write") == {"value": 1}
    frozen.go_on()
    until(waiting(members, 1), "it waits again")
    assert other.ask("release")["released"] is True
    fences.append(frozen.hear()["fence"])
    assert frozen.ask("write") == {"value": 2} and frozen.ask("release")["released"] is True
    assert fences == sorted(set(fences))


def waiting(members: Members, count: int) -> Callable[[], bool]:
    """Do so many wait?"""
    return lambda: members.places() == count
