"""Elections for threads: loops of terms and how they are left, resigning from anywhere, health, callbacks."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import threading
import time
from contextlib import closing
from typing import Any

import pytest

import leasehold
from leasehold._core.ops import Claim, Release, Renew
from leasehold.errors import InvalidRequest, LeaseLost, NotAcquired, NotHeld, OutcomeUnknown, StoreUnavailable
from leasehold.primitives.campaign import Campaign, RestPeriods
from leasehold.primitives.health import Health, HealthMonitor
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, elsewhere, in_thread, look, nothing_left, only, reply_lost, sync_scene, tick
from tests.support.waiting import PATIENCE, until


def test_break_gives_the_term_back(hold: leasehold.Leasehold, spy: Spy) -> None:
    """Whoever leaves the loop leads no longer, although somebody still refers to the term."""
    for term in hold.election("job").campaign():
        assert term.state == "held"
        break
    until(lambda: nothing_left(spy, "job"), "it is given back")
    assert term.state == "released"


def test_an_error_in_the_body_gives_the_term_back(hold: leasehold.Leasehold, spy: Spy) -> None:
    """The error is what the caller sees, and nobody leads."""

    def work() -> None:
        for _ in hold.election("job").campaign():
            raise KeyError("the body's own")

    with pytest.raises(KeyError, match="the body's own"):
        work()
    until(lambda: nothing_left(spy, "job"), "it is given back")


def test_a_resigned_term_is_given_back_when_its_loop_is_left(hold: leasehold.Leasehold, spy: Spy) -> None:
    """Lost here, it is still ours in the store: the next one need not wait for its end."""
    election = hold.election("job", ttl=60)
    for _ in election.campaign():
        assert election.resign()
        break
    until(lambda: nothing_left(spy, "job"), "it is given back")


def test_close_gives_back_at_once(hold: leasehold.Leasehold, spy: Spy) -> None:
    """``closing`` leaves nothing to the background; a closed campaign is over."""
    with closing(hold.election("job").campaign()) as campaign:
        next(campaign)
    assert nothing_left(spy, "job") and next(campaign, None) is None


def test_a_thread_that_ends_leads_no_longer(hold: leasehold.Leasehold, spy: Spy) -> None:
    """A loop that nobody ran to its end is given back with its thread, as any lease."""
    campaign = hold.election("job", ttl=1.5).campaign()
    in_thread(lambda: next(campaign).state)
    gc.collect()
    until(lambda: nothing_left(spy, "job"), "it is given back")
    campaign.close()


def test_nobody_refers_to_the_term() -> None:
    """``for _ in ...`` with the name deleted: the loop itself keeps it, and it is renewed."""
    spy, hold = sync_scene(ManualClock())
    with hold:
        campaign = hold.election("job", ttl=3).campaign()
        next(campaign)
        tick(hold, 7)
        assert look(spy, "job").holders and len(spy.of(Renew)) >= 3
        campaign.close()


def test_the_wait_of_a_term(hold: leasehold.Leasehold, spy: Spy) -> None:
    """A loop raises when its patience is over; the election's patience counts unless the campaign has its own."""
    other = hold.lock("job").acquire()
    assert other
    with pytest.raises(NotAcquired):
        next(hold.election("job", wait=0).campaign())
    with pytest.raises(NotAcquired), hold.election("job").campaign(wait=0.01):
        pass
    assert look(spy, "job").queue == ()
    other.release()


# ---------------------------------------------------------------- with term, inside a loop


def lose(hold: leasehold.Leasehold, term: leasehold.Term) -> None:
    """An operator takes it away, and its holder hears of it with the next renewal: its ttl is short."""
    hold.evict(term, fence=term.term, reason="a test", delay=0, force=True)
    assert term.lost.wait(PATIENCE)


@pytest.mark.slow
def test_a_lost_term_ends_its_block_and_the_loop_goes_on(hold: leasehold.Leasehold) -> None:
    """``with term:`` swallows the loss of its own term, raised by check() or found at its end."""
    terms = []
    for term in hold.election("job", ttl=2).campaign():
        terms.append(term.term)
        with term:
            if len(terms) < 3:
                lose(hold, term)
            if len(terms) < 2:
                term.check()
                raise AssertionError("check() must raise")
        if len(terms) == 3:
            break
    assert terms == sorted(set(terms))


def test_other_errors_leave_the_block(hold: leasehold.Leasehold) -> None:
    """The loss of another lease is none of its business, and neither is any other error."""

    def lead(error: Exception) -> None:
        for term in hold.election("job", ttl=2).campaign():
            with term:
                lose(hold, term)
                raise error

    for error in (LeaseLost("another", resource="job", fence=7), KeyError("the body's own")):
        with pytest.raises(type(error)) as caught:
            lead(error)
        assert caught.value is error and isinstance(error.__context__, LeaseLost)


def test_a_body_of_one_term_raises(hold: leasehold.Leasehold) -> None:
    """Outside a loop the loss of a term is an error, as with a lock."""
    with pytest.raises(LeaseLost, match="evicted"), hold.election("job", ttl=2).campaign() as term:
        lose(hold, term)


# ---------------------------------------------------------------- resigning


def test_resign_from_another_thread(hold: leasehold.Leasehold, spy: Spy) -> None:
    """The body hears of it; nobody leads before it has ended."""
    election, other = hold.election("job"), hold.election("job")
    terms = 0
    for term in election.campaign():
        terms += 1
        assert in_thread(election.resign) is True and term.lost.is_set()
        assert other.leader() is not None
        with pytest.raises(NotAcquired), other.campaign(wait=0):
            pass
    assert terms == 1 and nothing_left(spy, "job")
    assert election.resign() is False


def test_resign_from_a_signal_handler(hold: leasehold.Leasehold, spy: Spy) -> None:
    """Wherever the main thread is: also inside a call of ours."""
    election = hold.election("job")
    resigned: list[bool] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: resigned.append(election.resign()))
    try:
        for term in election.campaign():
            spy.before = only(Renew, lambda op: signal.raise_signal(signal.SIGUSR1))
            with pytest.raises(LeaseLost, match="resigned"):
                term.publish(1)
            spy.heal()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert resigned == [True] and nothing_left(spy, "job")


def test_a_resigned_leader_is_no_news_for_the_log(hold: leasehold.Leasehold, caplog: pytest.LogCaptureFixture) -> None:
    """The program wanted it: no warning."""
    election = hold.election("job")
    for _ in election.campaign():
        election.resign()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# ---------------------------------------------------------------- health


def health_threads() -> list[threading.Thread]:
    """Those that ask for the health of a leader."""
    return [one for one in threading.enumerate() if one.name == "leasehold-health"]


@pytest.mark.usefixtures("often")
def test_the_thread_ends_with_the_term(hold: leasehold.Leasehold) -> None:
    """Nobody is asked any more when the term has ended."""
    asked: list[int] = []
    election = hold.election("job", health=lambda: asked.append(1))
    with election.campaign() as term:
        until(lambda: len(asked) >= 3, "it is asked again and again")
        assert len(health_threads()) == 1 and term.state == "held"
    until(lambda: not health_threads(), "its thread ends")


def test_an_exception_is_a_bad_answer(hold: leasehold.Leasehold, caplog: pytest.LogCaptureFixture) -> None:
    """The leader steps down, and the log says why, once."""

    def health() -> None:
        raise ConnectionError("no database")

    with pytest.raises(LeaseLost, match="unhealthy"), hold.election("job", health=health).campaign() as term:
        assert term.lost.wait(PATIENCE)
    assert len([record for record in caplog.records if "no database" in record.getMessage()]) == 1
    until(lambda: not health_threads(), "its thread ends")


def test_an_unhealthy_loop_rests() -> None:
    """Who was not fit to lead stands again after up to a third of the ttl, and not a thousand times in that time."""
    spy, hold = sync_scene(ManualClock())
    fit = threading.Event()
    election = hold.election("job", ttl=3, health=fit.is_set)
    campaign = election.campaign()
    with hold:
        assert next(campaign).lost.wait(PATIENCE)
        with elsewhere(lambda: next(campaign)) as result:
            until(lambda: nothing_left(spy, "job"), "it is given back")
            time.sleep(0.02)
            assert len(spy.of(Claim)) == 1
            fit.set()
            tick(hold, 1.1)
            assert result().state == "held"
        campaign.close()


def minder(hold: leasehold.Leasehold, start_period: float, retries: int) -> tuple[Campaign, Any, HealthMonitor]:
    """A campaign, its term, and who judges it; nobody asks, so that a test can answer."""
    campaign = hold.election("job", ttl=3, max_idle=3).campaign()
    term: Any = next(campaign)
    health = Health(lambda: None, start_period, retries)
    return campaign, term, HealthMonitor(health, term._held, hold._engine.watchdog, hold._engine.clock)


def judged(hold: leasehold.Leasehold, judge: HealthMonitor, answers: str) -> list[bool]:
    """Does it still lead after each of these answers, one a second?"""
    led = []
    for answer in answers:
        led.append(judge.judge(answer == "+", hold._engine.clock.now()))
        tick(hold, 1)
    return led


def test_bad_answers_in_a_row() -> None:
    """``health_retries``: a good answer forgives those before it; so many in a row end the term."""
    _, hold = sync_scene(ManualClock())
    with hold:
        _campaign, term, judge = minder(hold, start_period=0, retries=3)
        assert judged(hold, judge, "-+--+---") == [True] * 7 + [False]
        assert term.state == "lost" and term._held.reason == "unhealthy"


def test_the_start_period() -> None:
    """Bad answers to what was asked in it do not count, however many; then they do."""
    _, hold = sync_scene(ManualClock())
    with hold:
        _campaign, term, judge = minder(hold, start_period=10, retries=2)
        begun = hold._engine.clock.now()
        assert judged(hold, judge, "-" * 10) == [True] * 10
        assert judge.judge(False, begun + 9)  # asked in it, and answered after it
        assert judged(hold, judge, "--") == [True, False]
        assert term.state == "lost" and term._held.reason == "unhealthy"


def test_a_good_answer_ends_the_start_period() -> None:
    """From then on bad ones count."""
    _, hold = sync_scene(ManualClock())
    with hold:
        _campaign, _, judge = minder(hold, start_period=3600, retries=1)
        assert judged(hold, judge, "--+-") == [True, True, True, False]


def test_a_first_answer_that_takes_long() -> None:
    """It may take all of the start period, and a ttl more; then it is none. After a good one it has a ttl."""
    _, hold = sync_scene(ManualClock())
    with hold:
        for before, silence in (("", 12), ("-", 11), ("-+", 1)):
            campaign, term, judge = minder(hold, start_period=10, retries=1)
            judged(hold, judge, before)
            for _ in range(silence):
                tick(hold, 1)
            assert term.state == "held"
            for _ in range(2):
                tick(hold, 1)
            assert term.state == "lost" and term._held.reason == "max_idle"
            campaign.close()


def test_rests_grow() -> None:
    """The first after a third of the ttl, if it was unfit; then twice as long each time, to a minute; jittered."""
    rests = RestPeriods(ttl=3, start_period=30)
    drawn = [rests.after("unhealthy", lasted=1) for _ in range(9)]
    longest = [min(2.0**number, 60) for number in range(9)]
    assert all(most / 2 <= one <= most for one, most in zip(drawn, longest, strict=True))
    assert 0.5 <= rests.after("max_idle", lasted=91) <= 1  # a long term is a new beginning
    assert 1 <= rests.after("max_idle", lasted=89) <= 2
    rests.forget()
    assert rests.after("evicted", lasted=1) == 0  # for what it can do nothing about, only when it comes again
    assert 0.5 <= rests.after("evicted", lasted=1) <= 1
    assert len({round(RestPeriods(ttl=3).after("unhealthy", 0), 6) for _ in range(5)}) > 1


@pytest.mark.usefixtures("often")
def test_answers_by_their_truth(hold: leasehold.Leasehold) -> None:
    """Whatever can be called will do, also a bound method; what is neither True nor None counts by its truth."""
    answers = iter([1, "yes", []])
    election = hold.election("job", health=answers.__next__)
    with pytest.raises(LeaseLost, match="unhealthy"), election.campaign() as term:
        assert term.lost.wait(PATIENCE)
    assert next(answers, None) is None


# ---------------------------------------------------------------- callbacks and values


def test_a_callback_that_raises_harms_nobody(hold: leasehold.Leasehold, caplog: pytest.LogCaptureFixture) -> None:
    """The term goes on, the others are called, and the log says so."""
    told = threading.Event()
    election = hold.election("job")
    election.on_elected(lambda term: 1 / 0)
    election.on_elected(lambda term: told.set())
    with election.campaign() as term:
        assert told.wait(PATIENCE) and term.state == "held"
        until(lambda: "on_elected raised" in caplog.text, "the log says so")


def test_demoted_hears_of_a_term_that_was_dropped(hold: leasehold.Leasehold) -> None:
    """Nobody refers to the term any more: the callback gets one all the same."""
    demoted: list[tuple[int, str]] = []
    election = hold.election("job", ttl=30)
    election.on_demoted(lambda term: demoted.append((term.term, term.state)))
    campaign = election.campaign()
    number = next(campaign).term
    del campaign
    until(lambda: demoted, "it hears of it")
    assert demoted == [(number, "released")]


def test_a_term_can_be_given_away(hold: leasehold.Leasehold) -> None:
    """transfer() ends the term here; whoever adopts it holds a lease with a higher fence."""
    demoted = threading.Event()
    election = hold.election("job", value="a")
    election.on_demoted(lambda term: demoted.set())
    campaign = election.campaign(wait=0)
    term = next(campaign)
    lease = hold.adopt(term.transfer())
    assert demoted.wait(PATIENCE) and term.state == "released"
    leader = election.leader()
    assert leader is not None and leader.term == lease.fence > term.term
    with pytest.raises(NotAcquired):
        next(campaign)
    lease.release()


def test_a_leader_can_be_asked_to_step_down(hold: leasehold.Leasehold) -> None:
    """revoke() reaches a term as it reaches any lease; the leader decides."""
    with hold.election("job").campaign(wait=0) as term:
        until(lambda: hold.revoke("job", fence=term.term), "it can be told")
        assert term.revoked.wait(PATIENCE) and term.state == "held"


def test_nobody_follows_too_soon() -> None:
    """``at_least`` keeps the next leader out although this one has resigned."""
    clock = ManualClock()
    _, hold = sync_scene(clock)
    election = hold.election("job", ttl=10, at_least=60)
    with pytest.raises(LeaseLost), election.campaign():
        assert election.resign()
    with pytest.raises(NotAcquired):
        election.campaign(wait=0).__enter__()
    clock.advance(61)
    with election.campaign(wait=0) as term:
        assert term.state == "held"
    hold.close()


def test_a_body_that_shows_no_life_leads_no_longer() -> None:
    """``max_idle`` ends a term whose body does not beat."""
    clock = ManualClock()
    _, hold = sync_scene(clock)
    campaign = hold.election("job", ttl=600, max_idle=60).campaign(wait=0)
    term = next(campaign)
    clock.advance(50)
    term.beat()
    clock.advance(50)
    assert term.state == "held"
    clock.advance(11)
    with pytest.raises(LeaseLost) as lost:
        term.check()
    assert lost.value.reason == "max_idle"
    hold.close()


def test_stepping_down_in_time_is_no_stale_release() -> None:
    """The body ended when it was told to: nobody is to be alarmed. One that went on past its deadline is."""
    clock = ManualClock()
    heard: list[str] = []
    hold = leasehold.connect(MemoryStore(clock), observers=[lambda event: heard.append(type(event).__name__)])
    election = hold.election("job", ttl=10)
    for late in (0, 11):
        for _ in election.campaign(wait=0):
            assert election.resign()
            clock.advance(late)
    told = [name for name in heard if name != "Candidacy"]
    assert told == ["Acquired", "Lost", "Acquired", "Lost", "StaleRelease"]
    hold.close()


class Carrier:
    """An observer that has something travel with each lease."""

    def __call__(self, event: Any) -> None:
        """Nothing to do."""

    def carry(self, number: int) -> dict[str, Any]:
        """As the context of a trace does."""
        return {"trace": "abc"}


def test_what_observers_carry_stays(spy: Spy) -> None:
    """Publishing changes the value, and nothing else that the holder says of itself."""
    with leasehold.connect(spy, observers=[Carrier()]) as hold:
        election = hold.election("job", value=1, meta={"run": 7})
        with election.campaign() as term:
            assert look(spy, "job").holders[0].meta == '{"trace":"abc","run":7,"value":1}'
            term.publish(2)
            assert look(spy, "job").holders[0].meta == '{"trace":"abc","run":7,"value":2}'
            assert term.meta == {"run": 7, "value": 2}


def test_publishing_goes_unanswered(hold: leasehold.Leasehold, spy: Spy) -> None:
    """OutcomeUnknown; the value is the last one that was confirmed, the term goes on, and it may be repeated."""
    with hold.election("job", value=1).campaign() as term:
        spy.after = only(Renew, reply_lost)
        with pytest.raises(OutcomeUnknown):
            term.publish(2)
        spy.heal()
        assert (term.value, term.state) == (1, "unsure")
        term.publish(3)
        assert (term.value, term.state) == (3, "held")


def test_only_the_leader_publishes(hold: leasehold.Leasehold) -> None:
    """LeaseLost after a loss, NotHeld after the end."""
    election = hold.election("job")
    campaign = election.campaign()
    term = next(campaign)
    hold.evict("job", fence=term.term, reason="a test", delay=0, force=True)
    with pytest.raises(LeaseLost, match="evicted"):
        term.publish(1)
    term = next(campaign)
    campaign.close()
    with pytest.raises(NotHeld):
        term.publish(1)


def test_a_value_that_is_changed_later(hold: leasehold.Leasehold) -> None:
    """What was published is what was there when it was published."""
    value = {"shards": [1]}
    election = hold.election("job", value=value)
    value["shards"].append(2)
    with election.campaign() as term:
        assert term.value == {"shards": [1]} == election.leader().value  # type: ignore[union-attr]  # it leads


def test_a_campaign_has_a_value_of_its_own(hold: leasehold.Leasehold) -> None:
    """It counts for this campaign; None publishes nothing."""
    election = hold.election("job", value=1)
    with election.campaign(value=2) as term:
        assert term.value == 2
    with election.campaign(value=None) as term:
        assert term.value is None and term.meta == {}
    with election.campaign() as term:
        assert term.value == 1


def test_bad_values_are_refused_before_anything_is_sent(hold: leasehold.Leasehold, spy: Spy) -> None:
    """What cannot be written as JSON, or is too large, is neither published nor stood for with."""
    election = hold.election("job")
    for bad in (object(), float("nan"), {1, 2}, "x" * 5000):
        with pytest.raises(InvalidRequest, match="value"):
            election.campaign(value=bad)
        with pytest.raises(InvalidRequest, match="value"):
            hold.election("job", value=bad)
    assert spy.ops == []
    with election.campaign() as term:
        with pytest.raises(InvalidRequest, match="value"):
            term.publish(object())
        assert spy.of(Renew) == [] and term.state == "held"


# ---------------------------------------------------------------- the rest of the world


def test_a_closed_coordinator_ends_the_loop(hold: leasehold.Leasehold) -> None:
    """The term is lost (closed), and standing again says why it cannot be."""
    campaign = hold.election("job").campaign()
    term = next(campaign)
    hold.close()
    assert term.state == "lost"
    with pytest.raises(StoreUnavailable, match="closed"):
        next(campaign)


def test_a_release_that_goes_unanswered_does_not_end_the_loop(hold: leasehold.Leasehold, spy: Spy) -> None:
    """It goes on in the background, and the loop stands again."""
    campaign = hold.election("job").campaign(wait=PATIENCE)
    first = next(campaign)
    spy.after = only(Release, reply_lost)
    second = next(campaign)
    spy.heal()
    assert second.term > first.term
    campaign.close()


def test_inspect_knows_an_election(hold: leasehold.Leasehold) -> None:
    """Operators ask about it as about a lock."""
    election = hold.election("job", 7, value="a")
    with election.campaign() as term:
        holder = hold.inspect(election).holder
        assert holder is not None and (holder.fence, holder.meta) == (term.term, {"value": "a"})
    assert election.resource == "job:7" and "job" in repr(election) and "job" in repr(election.campaign())
    with closing(election.observe()) as leaders:
        assert "job" in repr(leaders) and "job:7" not in repr(leaders)


def test_it_stays_in_its_process(hold: leasehold.Leasehold) -> None:
    """Neither an election nor a term can be pickled."""
    election = hold.election("job")
    with election.campaign() as term:
        for thing in (election, term):
            with pytest.raises(TypeError, match="stays in its process"):
                pickle.dumps(thing)


def test_a_forked_child_leads_nothing(hold: leasehold.Leasehold) -> None:
    """Its term is the parent's, and so are the callbacks."""
    told: list[str] = []
    election = hold.election("job")
    election.on_demoted(lambda term: told.append("demoted"))
    with election.campaign() as term:
        child = os.fork()
        if child == 0:
            os._exit(0 if (term.state, told, election.resign()) == ("lost", [], False) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert term.state == "held"
