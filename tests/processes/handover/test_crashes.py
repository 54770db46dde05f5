"""Givers and adopters that are killed or stand still, as real processes: never two holders, and nothing stays held."""

from __future__ import annotations

import pytest

from tests.processes.handover.conftest import ON_REDIS, ON_SQLITE, flavour_of
from tests.support.workers import journal
from tests.support.workers.crew import SLACK, Crew, Worker

pytestmark = pytest.mark.slow

TTL = 1.5
LONG = 30.0  # seconds: what need not end


def given(crew: Crew, ttl: float = TTL, flavour: str = "sync") -> tuple[Worker, dict[str, int], str]:
    """Somebody who has given its lease away, the lease, and the ticket."""
    giver = crew.spawn(flavour)
    lease = giver.ask("acquire", kind="job", ttl=ttl)
    return giver, lease, giver.ask("transfer")["ticket"]


def fences(crew: Crew) -> list[int]:
    """Those of all who hold, as it lies there."""
    return [grant.fence for grant in crew.peek("job").holders]


def free_in_time(newcomer: Worker, since: float) -> int:
    """Somebody new gets it when the time of whoever is gone is over, and not later. The new fence."""
    got = newcomer.ask("acquire", kind="job", ttl=LONG, wait=TTL + SLACK + 5)
    assert got["fence"], "it is held by nobody"
    assert got["at"] - since <= TTL + SLACK
    return int(got["fence"])


# ---------------------------------------------------------------- the giver


def test_a_giver_that_is_killed_after_the_transfer(crew: Crew) -> None:
    """It is no longer needed: the ticket is as good as before."""
    giver, lease, ticket = given(crew, LONG, flavour_of(crew))
    giver.kill()
    adopter = crew.spawn(flavour_of(crew))
    adopted = adopter.ask("adopt", ticket=ticket)
    assert adopted["fence"] > lease["fence"] and fences(crew) == [adopted["fence"]]
    assert adopter.ask("write") == {"value": 1} and adopter.ask("release")["released"] is True


@ON_SQLITE
def test_a_ticket_that_died_with_its_giver(crew: Crew) -> None:
    """Killed before it could tell anybody: free after the ttl, and the ticket is then worth nothing."""
    (newcomer,) = crew.ready("sync")
    giver, lease, ticket = given(crew)
    at = journal.now()
    giver.kill()
    assert free_in_time(newcomer, at) > lease["fence"]
    refused = crew.spawn().ask("adopt", ticket=ticket)
    assert (refused["error"], refused["reason"]) == ("LeaseLost", "expired")


def test_a_giver_that_wakes_after_the_adoption(crew: Crew) -> None:
    """It stood still in between: its guarded write is refused, and it can neither release, extend nor give away."""
    giver, lease, ticket = given(crew, LONG)
    crew.freeze(giver)
    adopter = crew.spawn()
    adopted = adopter.ask("adopt", ticket=ticket)
    assert adopter.ask("write") == {"value": 1}
    giver.go_on()
    refused = giver.ask("write")
    assert (refused["error"], refused["fence"], refused["seen"]) == ("StaleOwner", lease["fence"], adopted["fence"])
    assert giver.ask("release")["released"] is False
    assert giver.ask("transfer")["error"] == giver.ask("check")["error"] == "NotHeld"
    assert fences(crew) == [adopted["fence"]] and adopter.ask("state")["state"] == "held"
    assert journal.stale_writes(journal.read(crew.data)) == 0


@ON_REDIS
def test_a_giver_that_stood_still_in_front_of_the_transfer(crew: Crew) -> None:
    """Its lease ended meanwhile and another has it: no ticket, and the other is not disturbed."""
    giver, other = crew.ready("sync", "sync")
    giver.ask("acquire", kind="job", ttl=TTL)
    other.tell("acquire", kind="job", ttl=TTL)
    crew.waiting("job", 1)
    crew.freeze(giver)
    fence = other.hear()["fence"]
    giver.go_on()
    assert giver.ask("transfer")["error"] == "LeaseLost"
    assert fences(crew) == [fence] and other.ask("release")["released"] is True


@ON_REDIS
def test_a_forked_child_gives_nothing_away(crew: Crew) -> None:
    """What its parent holds is lost in the child, and the parent goes on."""
    parent = crew.spawn()
    lease = parent.ask("acquire", kind="job", ttl=LONG)
    refused = parent.ask("fork_and_transfer")
    assert (refused["error"], refused["reason"], refused["code"]) == ("LeaseLost", "forked", 0)
    ticket = parent.ask("transfer")["ticket"]
    assert crew.spawn().ask("adopt", ticket=ticket)["fence"] > lease["fence"]


# ---------------------------------------------------------------- the adopter


def test_an_adopter_that_is_killed(crew: Crew) -> None:
    """Its lease ends with its ttl; nobody else can use the ticket, neither before nor after."""
    _, _, ticket = given(crew, LONG, flavour_of(crew))
    adopter, second, newcomer = crew.ready(flavour_of(crew), "sync", "sync")
    adopted = adopter.ask("adopt", ticket=ticket, ttl=TTL)
    at = journal.now()
    adopter.kill()
    refused = second.ask("adopt", ticket=ticket)
    assert (refused["error"], refused["reason"]) == ("LeaseLost", "taken")
    assert free_in_time(newcomer, at) > adopted["fence"]
    assert second.ask("adopt", ticket=ticket)["error"] == "LeaseLost"


@ON_SQLITE
def test_an_adopter_that_stood_still_too_long(crew: Crew) -> None:
    """It adopted, stood still past its ttl, and another came: a stale owner like any other."""
    _, _, ticket = given(crew, LONG)
    adopter, other = crew.ready("sync", "sync")
    adopted = adopter.ask("adopt", ticket=ticket, ttl=TTL)
    assert adopter.ask("write") == {"value": 1}
    other.tell("acquire", kind="job", ttl=LONG)
    crew.waiting("job", 1)
    crew.freeze(adopter)
    fence = other.hear()["fence"]
    assert other.ask("write") == {"value": 2}
    adopter.go_on()
    refused = adopter.ask("write")
    assert (refused["error"], refused["fence"], refused["seen"]) == ("StaleOwner", adopted["fence"], fence)
    assert fences(crew) == [fence]


def test_one_of_many_adopters_wins(crew: Crew) -> None:
    """All come at once with the same ticket: one holds, the others are told that it is taken."""
    _, _, ticket = given(crew, LONG)
    racers = crew.ready("sync", "sync", "asyncio", "sync")
    for racer in racers:
        racer.tell("adopt", ticket=ticket)
    answers = [racer.hear() for racer in racers]
    won = [answer["fence"] for answer in answers if "error" not in answer]
    assert len(won) == 1 and fences(crew) == won
    lost = {(answer["error"], answer["reason"]) for answer in answers if "error" in answer}
    assert lost == {("LeaseLost", "taken")}


def test_a_chain_of_hands(crew: Crew) -> None:
    """From process to process while others wait: fences only grow, every write counts, and then the queue goes on."""
    holder, lease, ticket = given(crew, LONG)
    last = lease["fence"]
    waiter = crew.spawn()
    waiter.tell("acquire", kind="job", ttl=LONG)
    crew.waiting("job", 1)
    hands = [crew.spawn("asyncio"), holder]
    for number in range(4):
        holder = hands[number % 2]
        adopted = holder.ask("adopt", ticket=ticket)
        assert adopted["fence"] > last and holder.ask("write") == {"value": number + 1}
        last = adopted["fence"]
        if number < 3:
            ticket = holder.ask("transfer")["ticket"]
    assert waiter.silent() and holder.ask("release")["released"] is True
    assert waiter.hear()["fence"] > last and waiter.ask("write") == {"value": 5}
    record = journal.read(crew.data)
    assert journal.stale_writes(record) == journal.lost_updates(record) == record.refused == 0
