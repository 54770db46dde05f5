"""Handing over through a network that loses and delays: the giver and the adopter cannot tell what has happened."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from leasehold import LeaseLost, NotHeld, OutcomeUnknown, StoreUnavailable
from leasehold._core import flows, holding
from tests.integration.redis.handover import TTL, giver, ticket_of
from tests.support.parties import Party
from tests.support.redis.stage import HASTE, THREADS_ONLY, Stage, give_back
from tests.support.scene import fails
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

Patient = Callable[[], None]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Patient:
    """Handing over and adopting give up after tenths of a second in place of seconds, until this is called: what must
    succeed on a busy machine has its seconds."""
    monkeypatch.setattr(flows, "LEAST_BUDGET_MS", round(HASTE * 1000))
    monkeypatch.setattr(holding, "BUDGET_MS", round(HASTE * 1000))
    return monkeypatch.undo


def adopts(party: Party, ticket: str, **more: float) -> object:
    """Take it over, to the end."""
    return party.do(lambda hold: hold.adopt(ticket, **more))


# ---------------------------------------------------------------- the giver


@pytest.mark.parametrize("done", [True, False], ids=["reply lost", "request lost"])
def test_a_transfer_that_is_not_confirmed(stage: Stage, done: bool) -> None:
    """It raises and the lease is still ours, is renewed, and can be given away again."""
    party, lease = stage.acquire(ttl=TTL)
    lost = stage.without_reply("renew", lambda: party.start(lambda _: lease.transfer()), done)
    assert isinstance(lost.exception(PATIENCE), OutcomeUnknown)
    assert stage.look.holder() == lease.owner and lease.state in ("unsure", "held")
    until(lambda: lease.state == "held", "the watchdog goes on")
    stage.look.honest(lease)
    adopted = stage.other().do(lambda hold: hold.adopt(party.do(lambda _: lease.transfer())))
    assert adopted.fence > lease.fence and stage.look.holder() == adopted.owner


@THREADS_ONLY
def test_an_unanswered_transfer_does_not_end_a_short_lease(stage: Stage, patient: Patient) -> None:
    """It leaves time for a renewal, and rouses whoever renews (trap 2)."""
    party, lease = stage.acquire(ttl=3)
    stage.aim.lose("renew")
    with pytest.raises(OutcomeUnknown):
        party.do(lambda _: lease.transfer())
    patient()
    assert lease.state in ("unsure", "held"), "a renewal may have been answered by now"
    until(lambda: lease.state != "unsure" and stage.aim.seen["renew"] > 1, "a renewal is tried")
    assert lease.state == "held" and not lease.lost.is_set()


def test_a_late_transfer_changes_nothing(stage: Stage, patient: Patient) -> None:
    """The first try arrives after the second gave out its ticket: that one is still good, and good once."""
    party, lease = stage.acquire(ttl=30)
    stage.aim.hold("renew")
    with pytest.raises(OutcomeUnknown):
        party.do(lambda _: lease.transfer())
    patient()
    ticket = party.do(lambda _: lease.transfer())
    stage.deliver()
    first, second = stage.other(), stage.other()
    adopted = first.do(lambda hold: hold.adopt(ticket))
    assert fails(LeaseLost, second.start(lambda hold: hold.adopt(ticket))).reason == "taken"
    assert stage.look.holder() == adopted.owner


def test_a_late_transfer_after_the_release(stage: Stage, patient: Patient) -> None:
    """The giver gave up and gave back; its request arrives then, and brings nothing back to life (trap 7)."""
    party, lease = stage.acquire(ttl=30)
    stage.aim.hold("renew")
    with pytest.raises(OutcomeUnknown):
        party.do(lambda _: lease.transfer())
    patient()
    give_back(party, lease)
    stage.deliver()
    assert stage.look.leftovers() == []


def test_a_transfer_without_a_server(stage: Stage, patient: Patient) -> None:
    """Nobody can be reached: an error of ours, the lease is still ours, and goes on when the network does."""
    party, lease = stage.acquire(ttl=3)
    stage.proxy.refuse()
    stage.proxy.cut()
    error = party.start(lambda _: lease.transfer()).exception(PATIENCE)
    patient()
    assert isinstance(error, (StoreUnavailable, OutcomeUnknown)) and lease.state == "unsure"
    stage.proxy.accept()
    until(lambda: lease.state != "unsure", "the watchdog goes on")
    assert lease.state == "held" and party.do(lambda _: lease.transfer())


# ---------------------------------------------------------------- the adopter


def test_an_adoption_whose_reply_is_lost(stage: Stage) -> None:
    """The same adopter asks again and has the same grant, no longer than it was given; a second one has nothing."""
    party, other = stage.party(), stage.other()
    ticket = ticket_of(stage)
    unheard = stage.without_reply("adopt", lambda: party.start(lambda hold: hold.adopt(ticket, ttl=30)))
    adopted = unheard.result(PATIENCE)
    assert stage.aim.seen["adopt"] >= 2 and stage.look.holder() == adopted.owner
    assert adopted.fence == stage.look.fence()
    stage.look.honest(adopted)
    assert fails(LeaseLost, other.start(lambda hold: hold.adopt(ticket))).reason == "taken"
    give_back(party, adopted)
    assert stage.look.leftovers() == [] and stage.look.ended()[adopted.owner] == "released"


def test_an_adoption_that_is_never_answered(stage: Stage, patient: Patient) -> None:
    """OutcomeUnknown; what it may have taken is given back long before its ttl, and nobody else had it meanwhile."""
    party, other = stage.party(), stage.other()
    ticket = ticket_of(stage)
    stage.aim.lose("adopt", math.inf)
    fails(OutcomeUnknown, party.start(lambda hold: hold.adopt(ticket)))
    patient()
    lease = other.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=PATIENCE))
    assert lease is not None
    fails(LeaseLost, other.start(lambda hold: hold.adopt(ticket)))
    assert stage.look.holder() == lease.owner


def test_late_adoptions_take_nothing(stage: Stage, patient: Patient) -> None:
    """They arrive when the adopter has given up: they find its tombstone, and the ticket is good for another."""
    party, other = stage.party(), stage.other()
    ticket = ticket_of(stage)
    stage.aim.hold("adopt", math.inf)
    fails(OutcomeUnknown, party.start(lambda hold: hold.adopt(ticket)))
    patient()
    until(lambda: "withdrawn" in stage.look.ended().values(), "it is withdrawn on another connection")
    before = stage.look.holder()
    stage.deliver()
    assert stage.look.holder() == before, "still the giver's"
    adopted = other.do(lambda hold: hold.adopt(ticket))
    assert stage.look.holder() == adopted.owner


def test_a_late_adoption_after_its_adopter_gave_back(stage: Stage) -> None:
    """The second try was granted and given back; then the first arrives. An owner has one grant in its life."""
    party = stage.party()
    ticket = ticket_of(stage)
    stage.aim.hold("adopt")
    adopted = party.do(lambda hold: hold.adopt(ticket))
    assert stage.aim.seen["adopt"] >= 2
    give_back(party, adopted)
    stage.deliver()
    assert stage.look.leftovers() == []


def test_a_late_adoption_does_not_disturb_the_next_adopter(stage: Stage) -> None:
    """The first adopter's request waits in the network while another adopts, and gives away again."""
    party, other, third = stage.party(), stage.other(), stage.other()
    ticket = ticket_of(stage)
    stage.aim.hold("adopt", math.inf)
    first = party.start(lambda hold: hold.adopt(ticket))
    until(lambda: stage.aim.seen["adopt"] > 0, "it is under way")
    adopted = other.do(lambda hold: hold.adopt(ticket))
    again = other.do(lambda _: adopted.transfer())
    fails(OutcomeUnknown, first)
    stage.deliver()
    last = third.do(lambda hold: hold.adopt(again))
    assert last.fence > adopted.fence and stage.look.holder() == last.owner


def test_an_adopter_without_a_server(stage: Stage, patient: Patient) -> None:
    """A definite no: the ticket is as good as before."""
    ticket = ticket_of(stage)
    party = stage.party("redis://127.0.0.1:1/0")
    fails(StoreUnavailable, party.start(lambda hold: hold.adopt(ticket)))
    patient()
    assert adopts(stage.other(), ticket)


# ---------------------------------------------------------------- operators


def test_an_eviction_whose_reply_is_lost(stage: Stage) -> None:
    """It is asked again with the same request, and is the same one: one note, one fence."""
    party, lease = giver(stage)
    operator = stage.party()
    lost = stage.without_reply(
        "evict", lambda: operator.start(lambda hold: hold.evict("job", fence=lease.fence, reason="it hangs"))
    )
    done = lost.result(PATIENCE)
    assert stage.aim.seen["evict"] >= 2 and done.fence == stage.look.fence() > lease.fence
    assert len(operator.do(lambda hold: hold.inspect("job")).notes) == 1
    until(lambda: lease.state == "lost", "the holder hears of it")
    assert fails(LeaseLost, party.start(lambda _: lease.check())).reason == "evicted"


def test_an_eviction_that_arrives_late(stage: Stage) -> None:
    """It names owner and fence: whoever holds by then is not hit by accident."""
    party, lease = giver(stage)
    operator = stage.party()
    stage.aim.hold("evict")
    order = operator.start(lambda hold: hold.evict("job", fence=lease.fence, reason="it hangs"))
    until(lambda: stage.aim.seen["evict"] >= 1, "it is under way")
    give_back(party, lease)
    newer = party.do(lambda hold: hold.lock("job", ttl=30).acquire())
    stage.deliver()
    fails(NotHeld, order)
    assert stage.look.holder() == newer.owner and newer.state == "held"


def without_looks(stage: Stage, begin: Callable[[], Future[Any]]) -> Future[Any]:
    """Its first look gets no reply, and neither does the second."""
    asked = stage.aim.seen["inspect"]
    stage.aim.lose("inspect")
    future = stage.without_reply("inspect", begin)
    until(lambda: stage.aim.seen["inspect"] >= asked + 2, "it looks again")
    stage.proxy.cut()
    return future


def test_an_operator_whose_first_look_is_lost(stage: Stage) -> None:
    """It looks again."""
    _, lease = giver(stage)
    operator = stage.party()
    order = {"fence": lease.fence, "reason": "it hangs"}
    late = stage.without_reply("inspect", lambda: operator.start(lambda hold: hold.evict("job", **order)))
    assert late.result(PATIENCE).fence > lease.fence and stage.aim.seen["evict"] >= 1


def test_an_operator_who_sees_nothing(stage: Stage) -> None:
    """Nothing was done to anybody, and the error says so."""
    party, lease = giver(stage)
    operator = stage.party()
    order = {"fence": lease.fence, "reason": "it hangs"}
    fails(StoreUnavailable, without_looks(stage, lambda: operator.start(lambda hold: hold.evict("job", **order))))
    lost = without_looks(stage, lambda: operator.start(lambda hold: hold.revoke("job", fence=lease.fence)))
    fails(StoreUnavailable, lost)
    assert party.do(lambda _: lease.check()) is None and stage.aim.seen["evict"] == 0


@THREADS_ONLY
def test_who_cannot_be_told_finds_out_with_the_next_renewal(stage: Stage) -> None:
    """A RESP2 holder hears nothing by itself: revoke says that nobody listens, and an eviction is found in time."""
    party = stage.party(f"{stage.server.url}?protocol=2")
    lease = party.do(lambda hold: hold.lock("job", ttl=1.5).acquire())
    operator = stage.other()
    assert operator.do(lambda hold: hold.revoke("job")) is False
    done = operator.do(lambda hold: hold.evict("job", fence=lease.fence, reason="it hangs"))
    assert lease.lost.wait(PATIENCE) and 0 < done.closed_for <= 1.5
    assert fails(LeaseLost, party.start(lambda _: lease.check())).reason == "evicted"
