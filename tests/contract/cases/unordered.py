"""What a store without a queue promises in place of an order: everybody is served in the end, one after the other. Each
is played in place of a case."""

from __future__ import annotations

from collections.abc import Callable

from tests.contract.cases.election import Candidate
from tests.support.scene import Scene


def one_try_may_overtake(scene: Scene) -> None:
    """wait=0 may take what somebody waits for, who is served when it is free again."""
    a, b, c = scene.party(), scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=60).acquire())
    waiting = b.start(lambda hold: hold.lock("job", ttl=60).acquire())
    scene.queued("job", 1)
    a.do(lambda _: lease.release())
    fences = [lease.fence]
    overtook = c.do(lambda hold: hold.lock("job", ttl=60).try_acquire())
    if overtook is not None:
        assert not waiting.done(), "two hold it"
        fences.append(overtook.fence)
        assert c.do(lambda _: overtook.release()) is True
    assert scene.outcome(waiting).fence > max(fences)


def each_candidate_leads(scene: Scene) -> None:
    """A loop that comes back to its head gives its term back. One of both leads next, and the other when that one
    stops."""
    a, b = Candidate(scene, scene.party()), Candidate(scene, scene.party())
    first, waiting = a.lead(), b.stand()
    scene.queued("job", 1)
    again = a.stand()
    scene.eventually(lambda: waiting.done() or again.done(), "one of them leads")
    leader, elected, other = (a, again, waiting) if again.done() else (b, waiting, again)
    assert first.state == "released" and not other.done()
    leader.stop()
    second, third = elected.result(), scene.outcome(other)
    assert first.term < second.term < third.term
    assert (second.state, third.state) == ("released", "held")


def another_leads_after_the_longest_time(scene: Scene) -> None:
    """``max_hold``: the term is over by then, and somebody else can lead."""
    a, b = Candidate(scene, scene.party(), max_hold=5), Candidate(scene, scene.party())
    term, waiting = a.lead(), b.stand()
    scene.queued("job", 1)
    scene.pass_time(5.1)
    scene.until(lambda: term.state == "lost", "its time is over")
    a.stop()
    assert scene.outcome(waiting).term > term.term


UNORDERED: dict[str, Callable[[Scene], None]] = {
    "one_try_does_not_overtake": one_try_may_overtake,
    "terms_follow_each_other": each_candidate_leads,
    "a_term_has_a_longest_time": another_leads_after_the_longest_time,
}
