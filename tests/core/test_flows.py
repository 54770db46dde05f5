"""How a client behaves, step by step: every script names the ops that must come, and nothing else may."""

from __future__ import annotations

import pytest

from leasehold._core import flows, ops
from leasehold._core.flows import AcquireRequest
from leasehold._core.holding import LocalGrant
from leasehold._core.policy import BUDGET_MS, next_common_beat
from leasehold.errors import InvalidRequest, LeaseLost, NotAcquired, NotHeld, OutcomeUnknown, StoreUnavailable
from tests.core.play import DOWN, FIRST, STILL_WAITING, TTL, UNKNOWN, WAITING, Owners, Play, Step, ask, hold, push

SECOND = "host:7:secret.2"
DRIFT = 0.302  # of 30 s


def acquire(
    play: Play, wanted: AcquireRequest | None = None, owners: Owners | None = None, floor: int = 0
) -> LocalGrant:
    """Play the acquire flow."""
    return play.run(flows.acquire(wanted or ask(), owners or Owners(), lambda: floor, play.now))


# ---------------------------------------------------------------- acquire: granted


def test_a_free_resource_takes_one_op() -> None:
    """Claim, granted: nothing else is sent."""
    play = Play(Step(ops.Claim, ops.Granted(9, TTL), 0.2))
    taken = acquire(play)
    assert (taken.owner, taken.fence, taken.ttl_ms, taken.unanswered) == (FIRST, 9, TTL, False)


def test_a_claim_says_all_that_was_asked() -> None:
    """Every field of the request reaches the store."""
    play = Play(Step(ops.Claim, ops.Granted(9, TTL)))
    acquire(play, ask()._replace(delay_ms=500), floor=77)
    assert play.last(ops.Claim) == ops.Claim(
        "report:42",
        FIRST,
        TTL,
        beat=1,
        floor=77,
        enqueue=True,
        address="@me",
        holder_address="news@me",
        meta="{}",
        delay_ms=500,
        budget_ms=BUDGET_MS,
    )


def test_trap_23_the_deadline_counts_from_before_the_request() -> None:
    """The reply took 2 s: they are gone from the lease."""
    play = Play(Step(ops.Claim, ops.Granted(9, TTL), 2.0))
    taken = acquire(play)
    assert taken.deadline == pytest.approx(100 + 30 - DRIFT)
    assert taken.at == pytest.approx(102.0)
    assert taken.renew_at == pytest.approx(110.0)


def test_trap_42_the_deadline_counts_what_remains() -> None:
    """A repeated claim is answered with 12 s of the 30: the lease has 12 s."""
    play = Play(Step(ops.Claim, UNKNOWN, 1.5), Step(ops.Park), Step(ops.Claim, ops.Granted(9, 12_000), 0.1))
    taken = acquire(play)
    assert taken.deadline == pytest.approx(play.sent_at[2] + 12 - 0.122)


def test_trap_41_a_pushed_grant_counts_from_the_beat_that_it_names() -> None:
    """Beat 2 was sent at 101; beat 3 later: the push that names 2 gives a deadline from 101."""
    play = Play(
        WAITING,
        Step(ops.Park),
        STILL_WAITING,
        Step(ops.Park),
        STILL_WAITING,
        Step(ops.Park, push(beat=2), 0.25),
    )
    taken = acquire(play)
    assert play.sent_at[2] == pytest.approx(101.0)
    assert taken.deadline == pytest.approx(101 + 30 - DRIFT)
    assert taken.at == pytest.approx(102.25)


def test_trap_41_a_push_that_is_read_late_is_a_hint_to_beat() -> None:
    """The process slept for 28 s: what the push promised is all but over, the store knows what is left."""
    play = Play(WAITING, Step(ops.Park, push(beat=1), 28.0), Step(ops.Beat, ops.Granted(9, 29_000), 0.1))
    taken = acquire(play)
    assert taken.deadline == pytest.approx(128 + 29 - 0.292)


def test_trap_41_a_push_that_names_an_unknown_beat_is_a_hint_to_beat() -> None:
    """Never a guess."""
    play = Play(WAITING, Step(ops.Park, push(beat=7), 0.1), Step(ops.Beat, ops.Granted(9, TTL - 100)))
    assert acquire(play).fence == 9


def test_a_lost_push_costs_one_beat() -> None:
    """The beat itself is answered with the grant (trap 24)."""
    play = Play(WAITING, Step(ops.Park), Step(ops.Beat, ops.Granted(9, 29_500), 0.1))
    taken = acquire(play)
    assert taken.deadline == pytest.approx(101 + 29.5 - 0.297)


def test_a_lease_that_does_not_renew_is_entered_later() -> None:
    """It may be used to its deadline, a renewing one needs its margin."""
    late = (WAITING, Step(ops.Park, push(beat=1), 26.0))
    assert acquire(Play(*late), ask(renews=False)).fence == 9
    play = Play(*late, Step(ops.Beat, ops.Granted(9, 28_000)))
    assert acquire(play).fence == 9
    assert len(play.ops) == 3


def test_a_grant_with_too_little_left_is_not_entered() -> None:
    """The reply took nearly the whole ttl: given back, and claimed anew by a new owner (trap 26)."""
    owners = Owners()
    play = Play(
        Step(ops.Claim, ops.Granted(9, TTL), 26.0),
        Step(ops.Withdraw, ops.Withdrawn("held"), 0.1),
        Step(ops.Claim, ops.Granted(10, TTL), 0.1),
    )
    assert acquire(play, owners=owners).fence == 10
    assert [op.owner for op in play.of(ops.Claim)] == [FIRST, SECOND]
    assert play.of(ops.Withdraw)[0].owner == FIRST


def test_waiting_beats_have_growing_numbers_and_the_newest_floor() -> None:
    """Each sign of life is told from the last, and carries the highest fence seen by then."""
    seen = iter([5, 6, 7])
    play = Play(WAITING, Step(ops.Park), STILL_WAITING, Step(ops.Park), Step(ops.Beat, ops.Granted(9, TTL)))
    play.run(flows.acquire(ask(), Owners(), lambda: next(seen), play.now))
    assert [(op.beat, op.floor) for op in play.of(ops.Beat)] == [(2, 6), (3, 7)]


def test_trap_24_every_park_ends() -> None:
    """In the middle of the queue within a third of L, at the head when the holder's time ends."""
    play = Play(
        Step(ops.Claim, ops.Queued(3, 20_000, "other:9")),
        Step(ops.Park),
        Step(ops.Beat, ops.Queued(0, 400, "other:9")),
        Step(ops.Park),
        Step(ops.Beat, ops.Granted(9, TTL)),
    )
    acquire(play)
    middle, head = [op.until for op in play.of(ops.Park)]
    assert 100 < middle <= 101
    assert head == pytest.approx(middle + 0.4)


def test_waiters_of_one_coordinator_beat_at_common_moments() -> None:
    """So one transaction or one write carries all of their beats; other coordinators are out of step (trap 54)."""
    every_ms, coordinators = 1_000, ["8899aabbccddeeff", "8899aabbccddeef0"]
    for coordinator in coordinators:
        moments = [next_common_beat(100 + step / 7, every_ms, coordinator) for step in range(30)]
        assert all(0 < moment - (100 + step / 7) <= 1.000_001 for step, moment in enumerate(moments))
        assert len({round(moment % 1, 6) for moment in moments}) == 1
        assert next_common_beat(moments[0], every_ms, coordinator) == pytest.approx(moments[0] + 1)
    one, other = [next_common_beat(100, every_ms, coordinator) for coordinator in coordinators]
    assert one != pytest.approx(other)


def test_a_head_that_cannot_be_pushed_looks_every_30_ms() -> None:
    """It takes the free resource with its own beat."""
    unreached = Step(ops.Claim, ops.Queued(0, 20_000, "other:9", pushable=False))
    play = Play(unreached, Step(ops.Park), Step(ops.Beat, ops.Granted(9, TTL)))
    acquire(play)
    assert play.of(ops.Park)[0].until == pytest.approx(100.03)


# ---------------------------------------------------------------- acquire: refused


def test_one_try_on_a_busy_resource() -> None:
    """NotAcquired says who holds and when to come back; nothing was left, so nothing is withdrawn."""
    play = Play(Step(ops.Claim, ops.Busy("other:9", 12_500)))
    with pytest.raises(NotAcquired) as caught:
        acquire(play, ask(wait=0))
    assert (caught.value.holder, caught.value.retry_in) == ("other:9", 12.5)
    assert caught.value.resource == "report:42"
    assert not play.of(ops.Claim)[0].enqueue


def test_trap_25_a_wait_that_runs_out_leaves_the_queue() -> None:
    """At the end one last look, then the place is given up, then NotAcquired."""
    play = Play(
        WAITING,
        Step(ops.Park),
        STILL_WAITING,
        Step(ops.Park),
        Step(ops.Beat, ops.Queued(2, 7_500, "other:9")),
        Step(ops.Withdraw, ops.Withdrawn("queued")),
    )
    with pytest.raises(NotAcquired) as caught:
        acquire(play, ask(wait=1.5))
    assert play.of(ops.Park)[1].until == pytest.approx(101.5)
    assert (caught.value.holder, caught.value.retry_in) == ("other:9", 7.5)
    assert play.last(ops.Withdraw).forget_ms == 0


def test_the_last_look_of_a_wait_may_win() -> None:
    """Granted at the end of the wait is granted."""
    play = Play(WAITING, Step(ops.Park), Step(ops.Beat, ops.Granted(9, TTL)))
    assert acquire(play, ask(wait=0.5)).fence == 9


@pytest.mark.parametrize("error", [DOWN, UNKNOWN])
def test_trap_25_a_withdrawal_that_fails_goes_on_in_the_background(error: Exception) -> None:
    """The caller hears that it was busy, not that leaving was difficult."""
    play = Play(
        WAITING,
        Step(ops.Park),
        Step(ops.Beat, ops.Queued(0, 7_500, "other:9")),
        Step(ops.Withdraw, error, 1.0),
        Step(ops.Defer),
    )
    with pytest.raises(NotAcquired):
        acquire(play, ask(wait=0.5))
    assert play.last(ops.Defer) == ops.Defer(play.of(ops.Withdraw)[0], TTL / 1000)


def test_a_refused_request_is_invalid() -> None:
    """The store says why; nothing is left behind."""
    play = Play(Step(ops.Claim, ops.Rejected("the fence floor is wrong")))
    with pytest.raises(InvalidRequest, match="floor"):
        acquire(play)


@pytest.mark.parametrize("outcome", ["unknown", "expired"])
def test_trap_26_gone_means_a_new_owner(outcome: str) -> None:
    """An owner whose claim came to nothing is never used again."""
    owners = Owners()
    play = Play(WAITING, Step(ops.Park), Step(ops.Beat, ops.NoClaim(outcome)), Step(ops.Claim, ops.Granted(9, TTL)))
    assert acquire(play, owners=owners).owner == SECOND
    assert play.last(ops.Claim).beat == 1


def test_gone_at_the_end_of_the_wait_is_not_acquired() -> None:
    """No new owner is sent when there is no time for it."""
    play = Play(WAITING, Step(ops.Park), Step(ops.Beat, ops.NoClaim("unknown")))
    with pytest.raises(NotAcquired) as caught:
        acquire(play, ask(wait=0.5))
    assert (caught.value.holder, caught.value.retry_in) == (None, 0.0)


def test_a_store_that_forgets_everybody_is_given_up() -> None:
    """Every loop has an end: after very many owners the store is called unavailable."""
    play, owners = Play(), Owners()
    with pytest.raises(StoreUnavailable):
        play.follow(
            flows.acquire(ask(), owners, lambda: 0, play.now), lambda op: Step(ops.Claim, ops.NoClaim("unknown"))
        )
    assert 10 < len(owners.drawn) <= flows.MOST_OWNERS


# ---------------------------------------------------------------- acquire: a store that does not answer


def test_a_store_that_is_down_is_said_at_once() -> None:
    """Nothing was taken: StoreUnavailable, and nothing more is sent."""
    play = Play(Step(ops.Claim, DOWN))
    with pytest.raises(StoreUnavailable) as caught:
        acquire(play)
    assert caught.value is DOWN


def test_trap_10_an_ambiguous_claim_is_repeated_by_the_same_owner() -> None:
    """It may have won: the same owner gets the same grant, and the lease remembers the claim under way."""
    play = Play(Step(ops.Claim, UNKNOWN, 1.5), Step(ops.Park), Step(ops.Claim, ops.Granted(9, 25_000)))
    taken = acquire(play)
    assert [(op.owner, op.beat) for op in play.of(ops.Claim)] == [(FIRST, 1), (FIRST, 2)]
    assert taken.unanswered


def test_trap_10_a_claim_that_stays_ambiguous_is_withdrawn_with_a_tombstone() -> None:
    """OutcomeUnknown comes out; in the background the claim is ended for good, for as long as it could live."""
    play = Play()
    with pytest.raises(OutcomeUnknown) as caught:
        play.follow(
            flows.acquire(ask(), Owners(), lambda: 0, play.now),
            lambda op: Step(ops.Claim, UNKNOWN, 0.1) if isinstance(op, ops.Claim) else Step(ops.Park),
        )
    assert caught.value is UNKNOWN
    assert {op.owner for op in play.of(ops.Claim)} == {FIRST}
    assert play.last(ops.Defer) == ops.Defer(
        ops.Withdraw("report:42", FIRST, 60_000, play.last(ops.Defer).op.budget_ms), TTL / 1000
    )
    assert play.now - 100 < 20, "an ambiguous claim is not repeated for ever"


def test_trap_10_a_single_try_that_stays_ambiguous_is_not_repeated() -> None:
    """wait=0: one claim, no answer, withdrawn in the background."""
    play = Play(Step(ops.Claim, UNKNOWN, 1.0), Step(ops.Park), Step(ops.Defer))
    with pytest.raises(OutcomeUnknown):
        acquire(play, ask(wait=0))
    assert play.last(ops.Defer).op.forget_ms == 60_000


def test_down_after_an_ambiguous_claim_is_not_said_to_have_taken_nothing() -> None:
    """StoreUnavailable promises that nothing was taken: with a claim in doubt that would be a lie."""
    play = Play(
        Step(ops.Claim, UNKNOWN, 1.0),
        Step(ops.Park),
        Step(ops.Claim, DOWN, 1.0),
        Step(ops.Park),
        Step(ops.Defer),
    )
    with pytest.raises(OutcomeUnknown) as caught:
        acquire(play, ask(wait=2))
    assert caught.value.__cause__ is DOWN
    assert play.last(ops.Defer).op.forget_ms == 60_000


@pytest.mark.parametrize("error", [DOWN, UNKNOWN])
def test_a_place_in_the_queue_outlives_trouble(error: Exception) -> None:
    """Beats go on for ten L, soon at first and every L/3 in the end; then the error comes out and the place is given up
    in the background."""
    play = Play()

    def answer(op: ops.Op) -> Step:
        if isinstance(op, ops.Claim):
            return WAITING
        return Step(ops.Beat, error) if isinstance(op, ops.Beat) else Step(ops.Park)

    with pytest.raises(OutcomeUnknown):
        play.follow(flows.acquire(ask(), Owners(), lambda: 0, play.now), answer)
    assert 30 <= play.now - 101 <= 32
    assert 29 + 4 <= len(play.of(ops.Beat)) <= 32 + 6
    assert play.last(ops.Defer).op == play.of(ops.Defer)[0].op
    assert play.last(ops.Defer).op.forget_ms == 0


def test_trouble_that_passes_is_forgotten() -> None:
    """An answer begins the count anew."""
    play = Play()
    beats = iter([DOWN] * 25 + [ops.Queued(0, 20_000, "")] + [DOWN] * 25 + [ops.Granted(9, TTL)])

    def answer(op: ops.Op) -> Step:
        if isinstance(op, ops.Claim):
            return WAITING
        return Step(ops.Beat, next(beats)) if isinstance(op, ops.Beat) else Step(ops.Park)

    assert play.follow(flows.acquire(ask(), Owners(), lambda: 0, play.now), answer).fence == 9


def test_a_push_ends_the_trouble() -> None:
    """The store cannot be asked, but it has told."""
    play = Play(WAITING, Step(ops.Park), Step(ops.Beat, DOWN, 0.1), Step(ops.Park, push(beat=1), 0.1))
    assert acquire(play).deadline == pytest.approx(100 + 30 - DRIFT)


def test_a_wait_that_ends_in_trouble_says_so() -> None:
    """Nobody knows who holds: the error comes out, not NotAcquired."""
    play = Play(WAITING, Step(ops.Park), Step(ops.Beat, UNKNOWN, 0.6), Step(ops.Park), Step(ops.Defer))
    with pytest.raises(OutcomeUnknown):
        acquire(play, ask(wait=1.5))


def test_a_call_may_take_a_second_even_at_the_end_of_a_wait() -> None:
    """A busy store is no refusal; and no call is given more than the usual patience."""
    for wait, budget_ms in ((0, 1_000), (0.2, 1_000), (3, 3_000), (60, BUDGET_MS), (None, BUDGET_MS)):
        play = Play(Step(ops.Claim, ops.Granted(9, TTL)))
        acquire(play, ask(wait=wait))
        assert play.last(ops.Claim).budget_ms == budget_ms


# ---------------------------------------------------------------- acquire: at_least


def test_at_least_is_stored_by_the_holders_first_renew() -> None:
    """Acquire waits for it; the deadline counts from before that Renew."""
    play = Play(Step(ops.Claim, ops.Granted(9, TTL), 0.5), Step(ops.Renew, ops.Renewed(TTL), 0.5))
    taken = acquire(play, ask(at_least_ms=60_000))
    renew = play.last(ops.Renew)
    assert (renew.owner, renew.fence, renew.closed_ms, renew.exact) == (FIRST, 9, 60_000, False)
    assert taken.deadline == pytest.approx(100.5 + 30 - DRIFT)
    assert taken.at == pytest.approx(101.0)


def test_at_least_is_stored_for_a_pushed_grant_too() -> None:
    """The handoff closed nothing: the holder does."""
    play = Play(WAITING, Step(ops.Park, push(beat=1), 0.5), Step(ops.Renew, ops.Renewed(TTL)))
    assert acquire(play, ask(at_least_ms=60_000)).fence == 9


def test_a_grant_that_is_over_before_its_door_is_closed_is_claimed_anew() -> None:
    """Not yours: another owner, another claim."""
    play = Play(
        Step(ops.Claim, ops.Granted(9, TTL)),
        Step(ops.Renew, ops.NotYours("evicted")),
        Step(ops.Claim, ops.Granted(10, TTL)),
        Step(ops.Renew, ops.Renewed(TTL)),
    )
    assert acquire(play, ask(at_least_ms=1_000)).owner == SECOND


def test_trap_26_a_door_that_took_too_long_to_close_is_not_entered() -> None:
    """The answer of the Renew came when the lease was over: given back, claimed anew."""
    play = Play(
        Step(ops.Claim, ops.Granted(9, TTL)),
        Step(ops.Renew, ops.Renewed(TTL), 29.0),
        Step(ops.Withdraw, ops.Withdrawn("held")),
        Step(ops.Claim, ops.Granted(10, TTL)),
        Step(ops.Renew, ops.Renewed(TTL)),
    )
    assert acquire(play, ask(at_least_ms=1_000)).fence == 10


def test_trap_2_closing_the_door_takes_no_longer_than_the_grant_lasts() -> None:
    """The budget of that Renew ends with the lease."""
    play = Play(Step(ops.Claim, ops.Granted(9, 2_000)), Step(ops.Renew, ops.Renewed(TTL)))
    acquire(play, ask(at_least_ms=1_000, renews=False))
    assert 1_900 <= play.last(ops.Renew).budget_ms <= 2_000


@pytest.mark.parametrize("error", [DOWN, UNKNOWN])
def test_a_door_that_cannot_be_closed_is_given_back(error: Exception) -> None:
    """What was asked for was not promised: withdrawn in the background, and the outcome is in doubt."""
    play = Play(Step(ops.Claim, ops.Granted(9, TTL)), Step(ops.Renew, error), Step(ops.Defer))
    with pytest.raises(OutcomeUnknown):
        acquire(play, ask(at_least_ms=1_000))
    assert play.last(ops.Defer).op.owner == FIRST


# ---------------------------------------------------------------- renew


def test_renew_moves_the_deadline_from_before_the_request() -> None:
    """Sent at 110, answered at 112 (trap 23)."""
    holding = hold()
    Play(Step(ops.Renew, ops.Renewed(TTL), 2.0), now=110.0).run(flows.renew(holding, 110.0))
    assert holding.phase == "held"
    assert holding.deadline == pytest.approx(110 + 30 - DRIFT)


@pytest.mark.parametrize("error", [DOWN, UNKNOWN])
def test_trap_1_renew_without_an_answer_is_unsure(error: Exception) -> None:
    """Nothing is raised: the watchdog tries again."""
    holding = hold()
    Play(Step(ops.Renew, error, 1.0), now=110.0).run(flows.renew(holding, 110.0))
    assert holding.phase == "unsure"
    assert holding.deadline == pytest.approx(130 - DRIFT)


def test_trap_1_renew_that_is_not_ours_is_loss() -> None:
    """Now, and with the reason."""
    holding = hold()
    Play(Step(ops.Renew, ops.NotYours("taken")), now=110.0).run(flows.renew(holding, 110.0))
    assert (holding.phase, holding.reason) == ("lost", "taken")


def test_trap_2_nothing_is_sent_for_a_lease_that_is_over() -> None:
    """No Renew after the local deadline."""
    holding = hold()
    Play(now=125.0).run(flows.renew(holding, 125.0))
    assert holding.phase == "lost"


def test_a_renewal_answered_after_the_new_end_is_loss() -> None:
    """The process slept between sending and reading: the answer speaks of a lease that is over."""
    holding = hold()
    Play(Step(ops.Renew, ops.Renewed(TTL), 40.0), now=110.0).run(flows.renew(holding, 110.0))
    assert holding.phase == "lost"


# ---------------------------------------------------------------- extend


def test_extend_sets_the_end() -> None:
    """60 s from when it was sent, by an exact Renew."""
    holding = hold()
    play = Play(Step(ops.Renew, ops.Renewed(60_000), 1.0), now=105.0)
    play.run(flows.extend(holding, 60_000, 105.0))
    assert play.last(ops.Renew).exact
    assert holding.ttl_ms == 60_000
    assert holding.deadline == pytest.approx(105 + 60 - 0.602)


@pytest.mark.parametrize("error", [DOWN, UNKNOWN])
def test_extend_without_an_answer_raises_and_is_unsure(error: Exception) -> None:
    """The caller hears of it; a shorter end is kept; the watchdog goes on."""
    holding = hold()
    with pytest.raises(type(error)):
        Play(Step(ops.Renew, error, 1.0), now=105.0).run(flows.extend(holding, 6_000, 105.0))
    assert holding.phase == "unsure"
    assert holding.deadline == pytest.approx(105 + 6 - 0.062)
    assert holding.begin_renewal(106.0) is not None


def test_extend_of_what_is_not_ours_is_lost() -> None:
    """LeaseLost with the store's reason."""
    holding = hold()
    with pytest.raises(LeaseLost) as caught:
        Play(Step(ops.Renew, ops.NotYours("evicted")), now=105.0).run(flows.extend(holding, TTL, 105.0))
    assert caught.value.reason == "evicted"


def test_extend_answered_too_late_is_lost() -> None:
    """Confirmed, but the confirmed time is over: the caller must not go on."""
    holding = hold()
    with pytest.raises(LeaseLost):
        Play(Step(ops.Renew, ops.Renewed(TTL), 60.0), now=105.0).run(flows.extend(holding, TTL, 105.0))


def test_extend_sends_nothing_when_it_is_over() -> None:
    """Neither for a lost lease nor for one that was given back (trap 7)."""
    with pytest.raises(LeaseLost):
        Play(now=125.0).run(flows.extend(hold(), TTL, 125.0))
    released = hold()
    released.begin_release(101.0)
    with pytest.raises(NotHeld):
        Play(now=102.0).run(flows.extend(released, TTL, 102.0))


# ---------------------------------------------------------------- release


def test_release_takes_one_op() -> None:
    """True: it was ours until now."""
    holding = hold()
    play = Play(Step(ops.Release, ops.Released()), now=105.0)
    assert play.run(flows.release(holding, 105.0)) is True
    assert play.last(ops.Release) == ops.Release("report:42", FIRST, 9, budget_ms=play.last(ops.Release).budget_ms)
    assert holding.phase == "released"


def test_release_of_what_is_not_ours_is_false() -> None:
    """No error: the caller asked to have it no longer."""
    assert Play(Step(ops.Release, ops.NotYours("expired"))).run(flows.release(hold(), 105.0)) is False


def test_release_after_the_deadline_is_false_and_still_sent() -> None:
    """Slept past the ttl: not ours, and whatever is left in the store is freed."""
    assert Play(Step(ops.Release, ops.Released()), now=140.0).run(flows.release(hold(), 140.0)) is False


def test_release_of_what_was_released_sends_nothing() -> None:
    """False, at once."""
    holding = hold()
    Play(Step(ops.Release, ops.Released())).run(flows.release(holding, 105.0))
    assert Play().run(flows.release(holding, 106.0)) is False


@pytest.mark.parametrize("error", [DOWN, UNKNOWN])
def test_trap_11_a_release_without_an_answer_goes_on_and_may_be_repeated(error: Exception) -> None:
    """OutcomeUnknown; the background says ``again``, and so does the caller's second try, which gets True."""
    holding = hold()
    play = Play(Step(ops.Release, error, 1.0), Step(ops.Defer), now=105.0)
    with pytest.raises(OutcomeUnknown) as caught:
        play.run(flows.release(holding, 105.0))
    assert caught.value.__cause__ is error
    later = play.last(ops.Defer)
    assert (later.op, later.seconds) == (play.of(ops.Release)[0]._replace(again=True), TTL / 1000)
    assert holding.phase == "releasing"
    second = Play(Step(ops.Release, ops.Released()), now=107.0)
    assert second.run(flows.release(holding, 107.0)) is True
    assert second.last(ops.Release).again


@pytest.mark.parametrize("error", [DOWN, UNKNOWN])
def test_a_release_of_a_lost_lease_without_an_answer_is_false(error: Exception) -> None:
    """It was not ours any more, whatever becomes of the release, which goes on in the background."""
    play = Play(Step(ops.Release, error, 1.0), Step(ops.Defer), now=140.0)
    assert play.run(flows.release(hold(), 140.0)) is False
    assert play.last(ops.Defer).op == play.of(ops.Release)[0]._replace(again=True)


def test_trap_9_a_release_forgets_an_owner_whose_claim_may_be_under_way() -> None:
    """With a tombstone, in the background as well."""
    play = Play(Step(ops.Release, UNKNOWN), Step(ops.Defer), now=105.0)
    with pytest.raises(OutcomeUnknown):
        play.run(flows.release(hold(unanswered=True), 105.0))
    assert [op.forget_ms for op in (play.of(ops.Release)[0], play.last(ops.Defer).op)] == [60_000, 60_000]
