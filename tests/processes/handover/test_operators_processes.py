"""Operators and holders in different processes: who is told at once, who is refused, and what is remembered."""

from __future__ import annotations

import time

import pytest

from tests.processes.handover.conftest import ON_REDIS, ON_SQLITE, flavour_of
from tests.support.waiting import until
from tests.support.workers import journal
from tests.support.workers.crew import SLACK, Crew

pytestmark = pytest.mark.slow

HOUR = 3600
TTL = 1.5
ODD = ['"; DROP TABLE notes; --', "{\"by\": 'x'} \\ %s", "🔥 שלום 🔥", "🔒" * 300]


def test_a_holder_elsewhere_hears_of_its_eviction_at_once(crew: Crew) -> None:
    """Long before its next renewal; what it writes afterwards is refused once somebody newer has written."""
    holder, operator = crew.spawn(flavour_of(crew)), crew.spawn()
    lease = holder.ask("acquire", kind="job", ttl=HOUR)
    until(lambda: operator.ask("revoke", kind="job")["reached"], "it listens")
    holder.tell("until_lost")
    done = operator.ask("evict", kind="job", fence=lease["fence"], reason="it hangs", delay=0, force=True)
    lost = holder.hear()
    assert (lost["lost"], lost["error"], lost["reason"]) == (True, "LeaseLost", "evicted")
    newer = operator.ask("acquire", kind="job", ttl=HOUR)
    assert newer["fence"] > done["fence"] > lease["fence"] and operator.ask("write") == {"value": 1}
    refused = holder.ask("write")
    assert (refused["error"], refused["seen"]) == ("StaleOwner", newer["fence"])
    assert holder.ask("release")["released"] is False
    assert [grant.fence for grant in crew.peek("job").holders] == [newer["fence"]]


@ON_SQLITE
def test_a_victim_that_stood_still(crew: Crew) -> None:
    """It hears of nothing, and wakes when another has written: refused, by the guard and by the clock."""
    victim, operator, waiter = crew.ready("sync", "sync", "sync")
    lease = victim.ask("acquire", kind="job", ttl=TTL)
    waiter.tell("acquire", kind="job", ttl=5)
    crew.waiting("job", 1)
    crew.freeze(victim)
    at = journal.now()
    done = operator.ask("evict", kind="job", fence=lease["fence"], reason="it hangs")
    granted = waiter.hear()
    assert at + done["closed_for"] - 0.05 <= granted["at"] <= at + TTL + SLACK, (
        "the door was closed for what it had left"
    )
    assert waiter.ask("write") == {"value": 1}
    victim.go_on()
    assert victim.ask("write")["error"] == "StaleOwner"
    lost = victim.ask("until_lost")
    assert lost["error"] == "LeaseLost" and lost["reason"] in ("evicted", "expired", "taken")
    assert [grant.fence for grant in crew.peek("job").holders] == [granted["fence"]]


def test_a_holder_elsewhere_gives_back_when_asked(crew: Crew) -> None:
    """It is asked, finishes and gives back; the next waiter has it. A holder that is gone cannot be asked."""
    holder, operator, waiter = crew.spawn(flavour_of(crew)), crew.spawn(), crew.spawn()
    holder.ask("acquire", kind="job", ttl=HOUR)
    waiter.tell("acquire", kind="job", ttl=HOUR)
    crew.waiting("job", 1)
    holder.tell("until_revoked")
    until(lambda: operator.ask("revoke", kind="job").get("reached", False), "it listens")
    assert holder.hear() == {"revoked": True, "released": True}
    assert waiter.hear()["fence"]
    until(lambda: operator.ask("revoke", kind="job")["reached"], "the next one listens too")
    waiter.kill()
    until(lambda: not operator.ask("revoke", kind="job")["reached"], "nobody is there to be asked")


def test_notes_outlive_whoever_wrote_them(crew: Crew) -> None:
    """The processes are gone; another reads what they did, word by word, the last twenty of it."""
    operator = crew.spawn()
    said = [*ODD, *(f"round {number}" for number in range(20))]
    for reason in said:
        fence = operator.ask("acquire", kind="job", ttl=5)["fence"]
        operator.ask(
            "evict", kind="job", fence=fence, reason=reason, by=f"on call: {reason[:200]}", delay=0, force=True
        )
        if reason == ODD[-1]:
            kept = operator.ask("inspect", kind="job")["notes"]
            assert [note[3] for note in kept] == ODD and [note[2] for note in kept] == [
                f"on call: {one[:200]}" for one in ODD
            ]
    operator.kill()
    notes = crew.spawn().ask("inspect", kind="job")["notes"]
    assert [note[3] for note in notes] == said[-20:] and [note[1] for note in notes] == sorted(
        note[1] for note in notes
    )


@ON_REDIS
def test_an_eviction_under_many_waiters(crew: Crew) -> None:
    """All of them wait until the door opens, then come one after the other in their order, each with a newer fence."""
    holder, operator, *waiters = crew.ready(*["sync"] * 5)
    lease = holder.ask("acquire", kind="job", ttl=TTL)
    for place, waiter in enumerate(waiters, start=1):
        waiter.tell("acquire", kind="job", ttl=HOUR)
        crew.waiting("job", place)
    at = journal.now()
    done = operator.ask("evict", kind="job", fence=lease["fence"], reason="it hangs")
    last = done["fence"]
    for waiter in waiters:
        granted = waiter.hear()
        assert granted["fence"] > last and granted["at"] >= at + done["closed_for"] - 0.05
        last = granted["fence"]
        time.sleep(0.01)
        assert waiter.ask("release")["released"] is True
