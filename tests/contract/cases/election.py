"""The contract of elections: further cases, for every store and both flavours."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from leasehold.errors import LeaseLost, NotAcquired
from tests.contract.cases.lock import case
from tests.support.parties import Party, Step
from tests.support.scene import Scene, fails
from tests.support.waiting import PATIENCE

END = "the stream has ended"


def following(stream: Any) -> Any:
    """The next item of a campaign or an observation, in either flavour; END when there is none."""
    return anext(stream, END) if hasattr(stream, "__anext__") else next(stream, END)


def reader(stream: Any) -> Step:
    """A step that reads the next item."""
    return lambda _: following(stream)


class Candidate:
    """A party that stands for an election, one term after the other."""

    def __init__(self, scene: Scene, party: Party, *, wait: float | None = None, **options: Any) -> None:
        self._scene = scene
        self.party = party
        self.election = party.do(lambda hold: hold.election("job", **{"ttl": 3, **options}))
        self.campaign = party.do(lambda _: self.election.campaign(wait=wait))
        self.elected: list[int] = []
        self.demoted: list[int] = []
        party.do(lambda _: self.election.on_elected(lambda term: self.elected.append(term.term)))
        party.do(lambda _: self.election.on_demoted(lambda term: self.demoted.append(term.term)))

    def stand(self) -> Future[Any]:
        """Give back what it leads, and stand in line."""
        return self.party.start(lambda _: following(self.campaign))

    def lead(self) -> Any:
        """The same, until it leads."""
        return self.stand().result(PATIENCE)

    def stop(self) -> None:
        """Stand no more."""
        self.party.do(lambda _: self.campaign.close())

    def leader(self) -> Any:
        """Who leads, as the store says."""
        return self.party.do(lambda _: self.election.leader())


@case
def one_leads_at_a_time(scene: Scene) -> None:
    """Who is elected leads alone; the number of its term is the fence, and everybody can see who it is."""
    a, b = Candidate(scene, scene.party(), value="a"), Candidate(scene, scene.party(), wait=0)
    assert b.leader() is None
    term = a.lead()
    assert term.state == "held" and term.term == term.fence and term.value == "a"
    fails(NotAcquired, b.stand())
    leader = b.leader()
    assert (leader.term, leader.value, leader.ttl) == (term.term, "a", 3) and 0 < leader.expires_in <= 3
    assert term.owner.startswith(leader.owner + ":") and term.owner not in repr(leader)
    a.stop()
    assert b.leader() is None and b.lead().term > term.term


@case
def a_body_leads_one_term(scene: Scene) -> None:
    """``with``: leading inside, nobody leads afterwards, and a wait that is over raises."""
    a, b = scene.party(), scene.party()
    inside: list[Any] = []

    def body(term: Any) -> None:
        inside.append(term.state)
        fails(NotAcquired, b.within(lambda hold: hold.election("job").campaign(wait=0), lambda _: None))

    a.within(lambda hold: hold.election("job").campaign(), body).result(PATIENCE)
    assert inside == ["held"]
    scene.free("job")


@case
def terms_follow_each_other(scene: Scene) -> None:
    """A loop that comes back to its head gives its term to who waits, and stands at the end of the queue."""
    a, b = Candidate(scene, scene.party()), Candidate(scene, scene.party())
    first, waiting = a.lead(), b.stand()
    scene.queued("job", 1)
    again = a.stand()
    second = waiting.result(PATIENCE)
    scene.queued("job", 1)
    b.stop()
    third = again.result(PATIENCE)
    assert first.term < second.term < third.term
    assert (first.state, second.state, third.state) == ("released", "released", "held")


@case
def resigning_hands_over(scene: Scene) -> None:
    """The body hears of it at once; when it has ended, the next one leads, and the loop is over."""
    a, b = Candidate(scene, scene.party()), Candidate(scene, scene.party())
    term, waiting = a.lead(), b.stand()
    scene.queued("job", 1)
    assert a.election.resign() is True and a.election.resign() is False
    assert term.state == "lost" and b.election.resign() is False
    assert fails(LeaseLost, a.party.start(lambda _: term.check())).reason == "resigned"
    assert not waiting.done(), "its body has not ended yet"
    assert a.lead() == END and a.lead() == END
    assert waiting.result(PATIENCE).term > term.term


@case
def a_resigned_body_raises(scene: Scene) -> None:
    """Leaving the body of a term that was given up is leaving the body of a lost lease."""
    a = scene.party()
    election = a.do(lambda hold: hold.election("job"))
    error = fails(LeaseLost, a.within(lambda _: election.campaign(), lambda _: election.resign()))
    assert error.reason == "resigned"
    scene.free("job")


@case
def a_frozen_leader_is_succeeded(scene: Scene) -> None:
    """Its time runs out: the next one leads, with a higher term, and its loop stands again."""
    a, b = Candidate(scene, scene.party()), Candidate(scene, scene.party())
    term, waiting = a.lead(), b.stand()
    scene.queued("job", 1)
    scene.pass_time(3.1, at_once=True)
    successor = scene.outcome(waiting)
    assert successor.term > term.term and term.state == "lost"
    scene.until(lambda: a.demoted == [term.term], "it hears that it leads no longer")
    again = a.stand()
    scene.queued("job", 1)
    b.stop()
    assert again.result(PATIENCE).term > successor.term


@case
def the_leader_publishes(scene: Scene) -> None:
    """Its value is what it said last, beside what it says of itself; None takes it back."""
    a, b = Candidate(scene, scene.party(), value={"n": 1}, meta={"run": 7}), Candidate(scene, scene.party())
    term = a.lead()
    assert (b.leader().value, b.leader().meta) == ({"n": 1}, {"run": 7, "value": {"n": 1}})
    a.party.do(lambda _: term.publish([1, "ü", None]))
    assert (b.leader().value, term.value, term.meta["run"]) == ([1, "ü", None], [1, "ü", None], 7)
    scene.pass_time(4)
    assert b.leader().value == [1, "ü", None] and term.state == "held"
    a.party.do(lambda _: term.publish(None))
    assert (b.leader().value, b.leader().meta) == (None, {"run": 7})
    a.stop()
    assert a.party.start(lambda _: term.publish(1)).exception(PATIENCE) is not None and b.leader() is None


@case
def observers_see_every_change(scene: Scene) -> None:
    """At once who leads, then whoever is elected, what is published, and that nobody leads; several at a time."""
    a, watchers = Candidate(scene, scene.party(), value=1), [scene.party() for _ in range(2)]
    streams = [one.do(lambda hold: hold.election("job").observe()) for one in watchers]
    pairs = list(zip(watchers, streams, strict=True))

    def await_all() -> list[Future[Any]]:
        return [one.start(reader(stream)) for one, stream in pairs]

    def all_see(waiting: list[Future[Any]]) -> list[Any]:
        found = [scene.outcome(future) for future in waiting]
        return [None if leader is None else (leader.term, leader.value) for leader in found]

    assert all_see(await_all()) == [None, None]
    changes = await_all()
    term = a.lead()
    assert all_see(changes) == [(term.term, 1)] * 2
    changes = await_all()
    a.party.do(lambda _: term.publish(2))
    assert all_see(changes) == [(term.term, 2)] * 2
    changes = await_all()
    a.stop()
    assert all_see(changes) == [None, None]
    for stream in streams:
        stream.close()
    assert [one.do(reader(stream)) for one, stream in pairs] == [END, END]


@case
def an_observer_sees_a_leader_vanish(scene: Scene) -> None:
    """Nobody tells that a term has expired; the observer finds out by itself."""
    a, b = Candidate(scene, scene.party()), scene.party()
    term = a.lead()
    stream = b.do(lambda hold: hold.election("job").observe())
    assert b.do(lambda _: following(stream)).term == term.term
    change = b.start(lambda _: following(stream))
    scene.pass_time(3.1, at_once=True)
    scene.until(lambda: term.state == "lost", "the leader finds out")
    assert scene.outcome(change) is None


@case
def callbacks_hear_of_each_term(scene: Scene) -> None:
    """Elected and demoted, once each, however the term ended."""
    a = Candidate(scene, scene.party())
    terms = [a.lead().term for _ in range(2)]
    a.party.do(lambda hold: hold.evict("job", fence=terms[1], reason="a test", delay=0, force=True))
    scene.pass_time(1.6)
    scene.until(lambda: a.demoted == terms, "it hears of its demotion")
    terms.append(a.lead().term)
    a.election.resign()
    assert a.lead() == END
    scene.until(lambda: (a.elected, a.demoted) == (terms, terms), "each is told of once")


@case
def an_unhealthy_leader_steps_down(scene: Scene) -> None:
    """Asked again and again while it leads; the first bad answer ends the term, and somebody else leads."""
    answers: list[Any] = [None, True, False]
    asked: list[Any] = []

    def health() -> Any:
        asked.append(answers[min(len(asked), 2)])
        return asked[-1]

    a, b = Candidate(scene, scene.party(), health=health), Candidate(scene, scene.party())
    term, waiting = a.lead(), b.stand()
    scene.queued("job", 1)
    scene.until(lambda: len(asked) == 1, "it is asked")
    assert term.state == "held"
    scene.eventually(lambda: term.state == "lost", "it steps down")
    assert asked == answers
    assert fails(LeaseLost, a.party.start(lambda _: term.check())).reason == "unhealthy"
    a.stop()
    assert waiting.result(PATIENCE).term > term.term


@case
def a_health_check_that_hangs_ends_the_term(scene: Scene) -> None:
    """No answer for a ttl is a bad one."""
    party, over = scene.party(), threading.Event()

    async def later() -> None:
        import asyncio

        await asyncio.sleep(3600)

    def health() -> Any:
        return later() if hasattr(party.hold, "_driver") else over.wait(PATIENCE)

    a = Candidate(scene, party, health=health)
    term = a.lead()
    scene.pass_time(2.9)
    assert term.state == "held"
    scene.pass_time(0.3)
    scene.until(lambda: term.state == "lost", "it is ended")
    over.set()
    assert fails(LeaseLost, party.start(lambda _: term.check())).reason == "max_idle"


@case
def a_term_has_a_longest_time(scene: Scene) -> None:
    """``max_hold``: after that somebody else has a turn."""
    a, b = Candidate(scene, scene.party(), max_hold=5), Candidate(scene, scene.party())
    term, waiting = a.lead(), b.stand()
    scene.queued("job", 1)
    scene.pass_time(5.1)
    scene.until(lambda: term.state == "lost", "its time is over")
    again = a.stand()
    assert waiting.result(PATIENCE).term > term.term
    b.stop()
    assert again.result(PATIENCE).term > term.term
