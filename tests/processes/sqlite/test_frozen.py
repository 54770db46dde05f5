"""SIGSTOP: a process that stands still and wakes up later, not knowing. The stale owner, by name."""

from __future__ import annotations

import time

import pytest

from tests.support.waiting import until
from tests.support.workers import journal
from tests.support.workers.crew import SLACK, Crew, Worker, beat, report

TTL = 1.5  # a machine that is busy for a second must not end a lease that is to live


def past_its_ttl(crew: Crew, holder: Worker, ttl: float = TTL) -> None:
    """Freeze it for longer than its lease lasts."""
    crew.freeze(holder)
    time.sleep(ttl + 0.05)


def overtaken(crew: Crew, holder: Worker, how: str = "within") -> tuple[Worker, int, int]:
    """A holds, stands still, B waits, gets it and writes. B and both fences."""
    (successor,) = crew.ready("sync")
    old = holder.ask(how, kind="job", ttl=TTL)["fence"]
    assert holder.ask("write") == {"value": 1}
    successor.tell("acquire", kind="job", ttl=TTL)
    crew.waiting("job", 1)
    crew.freeze(holder)
    frozen = journal.now()
    granted = successor.hear()
    report(f"granted {granted['at'] - frozen:.3f} s after the freeze, ttl {TTL}")
    assert granted["at"] <= frozen + TTL + beat(TTL) + SLACK
    assert successor.ask("write") == {"value": 2}
    return successor, old, granted["fence"]


def still_holds(crew: Crew, worker: Worker, fence: int) -> None:
    """Nobody took it away from the new holder: not in the store and not in its own eyes."""
    assert [grant.fence for grant in crew.peek("job").holders] == [fence]
    assert worker.ask("state") == {"state": "held", "owned": True}
    assert worker.ask("release")["released"] is True


@pytest.mark.slow
def test_stale_owner_model(crew: Crew) -> None:
    """A, pause, B, B writes, A's write changes 0 rows: traps 39 and 46."""
    a, b = crew.ready("sync", "sync")
    old = a.ask("acquire", kind="job", ttl=TTL)["fence"]
    assert a.ask("check") == {"checked": True}  # the pause comes right after the look at the clock
    past_its_ttl(crew, a)
    new = b.ask("acquire", kind="job", ttl=TTL)["fence"]
    assert b.ask("write") == {"value": 1}
    before = journal.read(crew.data)
    a.go_on()
    refused = a.ask("write")
    assert (refused["error"], refused["fence"], refused["seen"]) == ("StaleOwner", old, new) and new > old
    after = journal.read(crew.data)
    assert after == before._replace(refused=1) and journal.stale_writes(after) == 0
    assert a.ask("release")["released"] is False
    still_holds(crew, b, new)


@pytest.mark.slow
def test_without_a_guard_the_stale_write_lands(crew: Crew) -> None:
    """The same pause without a guard: the journal shows the damage, so the test above can fail (I18)."""
    a, b = crew.ready("sync", "sync")
    a.ask("acquire", kind="job", ttl=TTL)
    past_its_ttl(crew, a)
    b.ask("acquire", kind="job", ttl=TTL)
    assert b.ask("write", guarded=False) == {"value": 1}
    a.go_on()
    assert a.ask("write", guarded=False) == {"value": 2}
    assert journal.stale_writes(journal.read(crew.data)) == 1


@pytest.mark.slow
def test_a_frozen_holder_wakes_up_inside_its_body(crew: Crew) -> None:
    """Its guarded write is refused, its ``with`` raises LeaseLost, and its release touches nobody (trap 8)."""
    a = crew.spawn()
    b, old, new = overtaken(crew, a)
    a.go_on()
    refused = a.ask("write")
    assert (refused["error"], refused["fence"], refused["seen"]) == ("StaleOwner", old, new)
    assert a.ask("state")["state"] == "lost"
    assert a.ask("check")["error"] == "LeaseLost"
    left = a.ask("leave")
    assert left["error"] == "LeaseLost" and left["fence"] == old
    assert left["reason"] in ("expired", "taken", "renewal_failed")
    still_holds(crew, b, new)
    assert journal.stale_writes(journal.read(crew.data)) == 0


@pytest.mark.slow
def test_a_frozen_task_is_cancelled_when_it_wakes_up(crew: Crew) -> None:
    """The asyncio twin: the task is cancelled, its last write refused, and its ``async with`` raises LeaseLost."""
    a = crew.spawn("asyncio")
    b, old, new = overtaken(crew, a)
    a.go_on()
    assert a.hear() == {"cancelled": True}
    refused = a.hear()
    assert (refused["error"], refused["fence"], refused["seen"]) == ("StaleOwner", old, new)
    left = a.hear()
    assert left["error"] == "LeaseLost" and left["fence"] == old
    still_holds(crew, b, new)
    assert journal.stale_writes(journal.read(crew.data)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_a_stale_release_frees_nobody(crew: Crew, flavour: str) -> None:
    """The explicit form: release answers False, the new holder is untouched, and the old one can acquire anew."""
    a = crew.spawn(flavour)
    b, old, new = overtaken(crew, a, how="acquire")
    a.go_on()
    assert a.ask("release")["released"] is False
    assert [grant.fence for grant in crew.peek("job").holders] == [new]
    a.tell("acquire", kind="job", ttl=TTL)
    crew.waiting("job", 1)
    still_holds(crew, b, new)
    again = a.hear()
    assert again["fence"] > new > old and a.ask("write") == {"value": 3}


@pytest.mark.slow
def test_a_holder_that_nobody_followed(crew: Crew) -> None:
    """Frozen past its ttl with nobody waiting: it is lost all the same, and told so at the next look (I11)."""
    a = crew.spawn()
    a.ask("within", kind="job", ttl=TTL)
    past_its_ttl(crew, a)
    a.go_on()
    assert a.ask("check")["error"] == "LeaseLost"
    assert a.ask("leave")["error"] == "LeaseLost"
    assert a.ask("acquire", kind="job", wait=0)["fence"]


# ---------------------------------------------------------------- waiters


@pytest.mark.slow
def test_a_frozen_waiter_is_skipped(crew: Crew) -> None:
    """Silent for longer than L it is passed over at the release; when it wakes up it gets its turn."""
    a, b, c = crew.ready("sync", "sync", "sync")
    a.ask("acquire", kind="job", ttl=TTL)
    for place, waiter in enumerate((b, c), start=1):
        waiter.tell("acquire", kind="job", ttl=TTL)
        crew.waiting("job", place)
    past_its_ttl(crew, b)
    released = a.ask("release")
    granted = c.hear()
    assert granted["at"] < released["at"] + SLACK
    assert not [one for one in crew.peek("job").ended if one.outcome == "expired"], "nobody was granted in its sleep"
    b.go_on()
    assert c.ask("release")["released"]
    revived = b.hear()
    assert revived["fence"] > granted["fence"] and b.ask("write") == {"value": 1}


@pytest.mark.slow
def test_a_waiter_is_revived_in_its_place(crew: Crew) -> None:
    """Frozen and awake again while it waits: it stands where it stood, before those who came later."""
    a, b, c = crew.ready("sync", "sync", "sync")
    a.ask("acquire", kind="job", ttl=TTL)
    for place, waiter in enumerate((b, c), start=1):
        waiter.tell("acquire", kind="job", ttl=TTL)
        crew.waiting("job", place)
    silent = crew.peek("job").queue[0].beat
    past_its_ttl(crew, b)
    b.go_on()
    until(lambda: crew.peek("job").queue[0].beat > silent + 1, "it beats again")
    a.ask("release")
    first = b.hear()
    assert c.silent()
    b.ask("release")
    assert c.hear()["fence"] > first["fence"]


@pytest.mark.slow
def test_a_waiter_that_freezes_right_before_its_turn(crew: Crew) -> None:
    """It is granted while it sleeps: others go on after its ttl (I14), and it does not enter a lease that is over."""
    a, b, c = crew.ready("sync", "sync", "sync")
    a.ask("acquire", kind="job", ttl=TTL)
    for place, waiter in enumerate((b, c), start=1):
        waiter.tell("acquire", kind="job", ttl=TTL)
        crew.waiting("job", place)
    crew.freeze(b)
    released = a.ask("release")
    granted = c.hear()
    report(f"granted {granted['at'] - released['at']:.3f} s after the release, ttl {TTL}")
    assert granted["at"] <= released["at"] + TTL + beat(TTL) + SLACK
    b.go_on()
    time.sleep(0.2)
    assert b.silent(), "a push that is read too late is no grant (trap 41)"
    assert c.ask("write") == {"value": 1}
    assert c.ask("release")["released"]
    late = b.hear()
    assert late["fence"] > granted["fence"] and b.ask("write") == {"value": 2}
