"""The server has done it, and nobody hears of it: every op, and what a holder may believe then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from leasehold import LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold._core import ops
from leasehold._core.ops import (
    Adopt,
    Beat,
    Claim,
    Evict,
    Evicted,
    Granted,
    Group,
    HolderAsked,
    Inspect,
    Leaks,
    Page,
    Queued,
    Release,
    Released,
    Renew,
    Renewed,
    Resize,
    Resized,
    Revoke,
    Scan,
    StoreOp,
    View,
    Watch,
    Withdraw,
    Withdrawn,
)
from leasehold.observe import events
from leasehold.stores.redis.protocol import keys
from tests.support.redis.stage import HASTE, SLACK, THREADS_ONLY, Look, Stage, ask, give_back, now
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

A, B = "host:1:a", "host:1:b"
*_, MORE, HOLDERS, WATCHERS = keys("job")
FLOOR = 2_000_000_000_000_000  # ahead of the clock, so that fences are known beforehand: floor + 1, + 2 ...
FENCE = FLOOR + 1
HELD: list[StoreOp] = [Claim("job", A, 5_000, floor=FLOOR)]
LEISURE = 4.0  # seconds of ttl: a machine that stands still for half of one changes nothing of what is told
QUEUED: list[StoreOp] = [*HELD, Claim("job", B, 5_000)]

# What was there before, the op whose reply is lost, how it is asked again, and what the answer must be.
Judge = Callable[[Any, Look], bool]
CASES: dict[str, tuple[list[StoreOp], StoreOp, StoreOp, Judge]] = {
    "claim": (
        [],
        Claim("job", A, 5_000, beat=1, floor=FLOOR),
        Claim("job", A, 5_000, beat=2, floor=FLOOR),
        lambda reply, look: type(reply) is Granted and reply.fence == FENCE and reply.remaining_ms < 5_000,
    ),
    "a claim that waits": (
        HELD,
        Claim("job", B, 5_000, beat=1),
        Claim("job", B, 5_000, beat=2),
        lambda reply, look: type(reply) is Queued and look.queue() == [B],
    ),
    "beat": (
        [*QUEUED, Release("job", A, FENCE)],  # B cannot be pushed: it is granted by its own beat
        Beat("job", B, 2),
        Beat("job", B, 3),
        lambda reply, look: type(reply) is Granted and reply.fence == look.fence() == FENCE + 1,
    ),
    "renew": (
        HELD,
        Renew("job", A, FENCE, 9_000, number=1),
        Renew("job", A, FENCE, 9_000, number=2),
        lambda reply, look: reply == Renewed(9_000) and look.left_ms() <= 9_000,
    ),
    "release": (
        HELD,
        Release("job", A, FENCE),
        Release("job", A, FENCE, again=True),
        lambda reply, look: type(reply) is Released,
    ),
    "a release that hands on": (
        QUEUED,
        Release("job", A, FENCE, forget_ms=60_000),
        Release("job", A, FENCE, forget_ms=60_000),
        lambda reply, look: type(reply) is Released and look.ended() == {A: "released"},
    ),
    "withdraw": (
        QUEUED,
        Withdraw("job", B),
        Withdraw("job", B),
        lambda reply, look: reply == Withdrawn("nothing") and look.queue() == [] and look.holder() == A,
    ),
    "inspect": (
        HELD,
        Inspect("job"),
        Inspect("job"),
        lambda reply, look: type(reply) is View and reply.holders[0].owner == A,
    ),
    "evict": (
        HELD,
        Evict("job", A, FENCE, "request", delay_ms=0, force=True),
        Evict("job", A, FENCE, "request", delay_ms=0, force=True),
        lambda reply, look: reply == Evicted(FENCE + 1, 0) and look.fence() == FENCE + 1,
    ),
    "revoke": (
        HELD,
        Revoke("job", A, FENCE),
        Revoke("job", A, FENCE),
        lambda reply, look: reply == HolderAsked(False) and look.holder() == A,
    ),
    "scan": (
        HELD,
        Scan("j*"),
        Scan("j*"),
        lambda reply, look: reply == Page(("job",), ""),
    ),
    "leaks": (
        HELD,
        Leaks("lock:*"),
        Leaks("lock:*"),
        lambda reply, look: reply == Page((), ""),
    ),
    "adopt": (
        [*HELD, Renew("job", A, FENCE, 5_000, number=1, ticket="ticket")],
        Adopt("job", FENCE, "ticket", B, 5_000),
        Adopt("job", FENCE, "ticket", B, 5_000),
        lambda reply, look: type(reply) is Granted and reply.fence == look.fence() == FENCE + 1,
    ),
    "a renewal that makes a reader": (
        [Claim("job", A, 5_000, floor=FLOOR, rule="write")],
        Renew("job", A, FENCE, 9_000, number=1, shared=True),
        Renew("job", A, FENCE, 9_000, number=2, shared=True),
        lambda reply, look: reply == Renewed(9_000) and list(look.client.hgetall(HOLDERS)) == [A],
    ),
    "watch": (
        HELD,
        Watch("job", B),
        Watch("job", B),
        lambda reply, look: type(reply) is View and list(look.client.hgetall(WATCHERS)) == [B],
    ),
    "resize": (
        [],
        Resize("job", 3),
        Resize("job", 3),
        lambda reply, look: reply == Resized(3) and str(look.client.hget(MORE, ":limit")).endswith(" 3"),
    ),
    "claims together": (
        [],
        Group((Claim("a", A, 5_000), Claim("job", B, 5_000, floor=FLOOR))),
        Group((Claim("a", A, 5_000, beat=2), Claim("job", B, 5_000, beat=2))),
        lambda reply, look: [type(one) for one in reply.replies] == [Granted] * 2 and look.fence() == FENCE,
    ),
    "releases together": (
        QUEUED,
        Group((Release("job", A, FENCE), Release("other", A, FENCE, again=True))),
        Group((Release("job", A, FENCE, again=True), Release("other", A, FENCE, again=True))),
        lambda reply, look: [type(one) for one in reply.replies] == [Released, Released],
    ),
}


def script_of(op: StoreOp) -> str:
    """The script that an op is."""
    if isinstance(op, Group):
        return "claim_all" if isinstance(op.steps[0], Claim) else "release_all"
    return type(op).__name__.lower()


@pytest.mark.parametrize("case", CASES)
def test_every_op_can_be_repeated(stage: Stage, case: str) -> None:
    """The reply is lost: OutcomeUnknown. The same op again is told what the first one got, and does no more."""
    before, op, again, right = CASES[case]
    other, party = stage.other(), stage.party()
    for one in before:
        other.do(partial(ask, op=one))
    lost = stage.without_reply(script_of(op), lambda: party.start(lambda hold: ask(hold, op._replace(budget_ms=5_000))))
    error = lost.exception(PATIENCE)
    assert isinstance(error, OutcomeUnknown) and error.resource == (op.resource or None)
    reply = party.do(lambda hold: ask(hold, again))
    assert right(reply, stage.look), reply


def test_every_op_is_in_the_table() -> None:
    """An op that is added later must be added above."""
    asked = {type(op) for _, op, _, _ in CASES.values()}
    assert asked == set(ops.StoreOp.__args__) - {ops.Ping}  # it is no script, and changes nothing


# ---------------------------------------------------------------- acquire


def test_an_acquire_that_won_unheard(stage: Stage) -> None:
    """It asks again as the same owner and has the same grant, no longer than it was given; nobody else has it."""
    party, other = stage.party(), stage.other()
    stage.aim.lose("claim")
    unheard = party.start(lambda hold: hold.lock("job", ttl=30).acquire(wait=PATIENCE))
    until(lambda: stage.look.holder() is not None, "it is granted")
    granted = now()
    time.sleep(HASTE)  # what the lease must lack in the end
    stage.proxy.cut()
    lease = unheard.result(PATIENCE)
    assert stage.aim.seen["claim"] >= 2 and stage.look.holder() == lease.owner
    assert lease.fence == stage.look.fence()
    stage.look.honest(lease)
    assert lease.deadline <= granted + 30, "the deadline counts from the first claim"
    assert other.do(lambda hold: hold.lock("job").try_acquire()) is None
    assert party.do(lambda _: lease.release()) is True
    assert stage.look.leftovers() == [] and stage.look.ended() == {lease.owner: "released"}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("wait", [0, 0.3])
def test_an_acquire_that_is_never_answered(stage: Stage, wait: float) -> None:
    """OutcomeUnknown; what it may have taken is given back in the background, and a tombstone stays for a minute."""
    party, other = stage.connected(), stage.other()
    stage.aim.lose("claim", math.inf)
    begun = now()
    with pytest.raises(OutcomeUnknown):
        party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=wait))
    assert now() - begun < wait + HASTE + SLACK
    lease = other.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=PATIENCE))
    assert lease is not None and now() - begun < 15, "long before the lost grant would have ended"
    assert set(stage.look.ended().values()) == {"withdrawn"} and stage.look.queue() == []
    give_back(other, lease)
    assert stage.look.leftovers() == []


@pytest.mark.usefixtures("hasty")
def test_an_acquire_that_waits_unheard(stage: Stage) -> None:
    """Put into the queue by a claim whose reply is lost: it keeps that place and is granted from it, once."""
    party, other = stage.party(), stage.other()
    first = other.do(lambda hold: hold.lock("job", ttl=30).acquire())
    stage.aim.lose("claim")
    future = party.start(lambda hold: hold.lock("job", ttl=1.5).acquire(wait=PATIENCE))
    until(lambda: stage.aim.seen["claim"] >= 2, "it asks again")
    until(lambda: len(stage.look.queue()) == 1, "it has one place")
    give_back(other, first)
    lease = future.result(PATIENCE)
    assert lease.owner == stage.look.holder() and lease.fence > first.fence and stage.look.queue() == []
    stage.look.honest(lease)


# ---------------------------------------------------------------- release


@pytest.mark.parametrize("done", [True, False], ids=["reply lost", "request lost"])
def test_a_release_that_is_not_confirmed(stage: Stage, done: bool) -> None:
    """The explicit form raises OutcomeUnknown and may be repeated: True, because it was ours until then."""
    party = stage.party()
    lease = party.do(lambda hold: hold.lock("job", ttl=30).acquire())
    lost = stage.without_reply("release", lambda: party.start(lambda _: lease.release()), done)
    assert isinstance(lost.exception(PATIENCE), OutcomeUnknown)
    assert lease.state == "released"
    assert party.do(lambda _: lease.release()) is True
    assert stage.look.leftovers() == []
    assert party.do(lambda _: lease.release()) is False, "that one was answered"


@pytest.mark.parametrize("done", [True, False], ids=["reply lost", "request lost"])
def test_the_end_of_a_body_that_is_not_confirmed(stage: Stage, done: bool) -> None:
    """``with`` raises nothing: the release goes on in the background, so that nobody waits for the ttl."""
    party, other = stage.party(), stage.other()
    lost = stage.without_reply(
        "release",
        lambda: party.within(lambda hold: hold.lock("job", ttl=30), lambda lease: lease.owner),
        done,
    )
    owner = lost.result(PATIENCE)
    lease = other.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=2 * SLACK))
    assert lease is not None and lease.owner != owner
    until(lambda: stage.aim.seen["release"] >= 2, "it goes on in the background")
    assert stage.look.holder() == lease.owner and lease.state == "held"


def test_a_waiter_is_not_forgotten_by_a_lost_release(stage: Stage) -> None:
    """The release was done and handed on: the next has it although the holder heard nothing, and keeps it."""
    party, other = stage.party(), stage.other()
    lease = party.do(lambda hold: hold.lock("job", ttl=30).acquire())
    future = other.start(lambda hold: hold.lock("job", ttl=30).acquire())
    until(lambda: len(stage.look.queue()) == 1, "it waits")
    lost = stage.without_reply("release", lambda: party.start(lambda _: lease.release()))
    assert isinstance(lost.exception(PATIENCE), OutcomeUnknown)
    granted = future.result(PATIENCE)
    assert party.do(lambda _: lease.release()) is True
    assert stage.look.holder() == granted.owner and granted.state == "held"


# ---------------------------------------------------------------- renewals


@THREADS_ONLY
def test_a_lost_renewal_is_not_a_loss(stage: Stage) -> None:
    """Unsure, then held again by the next try; at no time does it believe in more than it was given."""
    states: list[str] = []  # noted when it is told: the moment may be too short to be seen from here
    asked: list[int] = []  # how often, when one is confirmed

    def note(event: events.Event) -> None:
        if isinstance(event, events.NotRenewed):
            states.append(lease.state)
        elif isinstance(event, events.Renewed):
            asked.append(stage.aim.seen["renew"])

    party = stage.party(observers=[note])
    lease = party.do(lambda hold: hold.lock("job", ttl=LEISURE).acquire())
    stage.aim.lose("renew")
    until(lambda: bool(states), "a renewal goes unanswered")
    stage.look.honest(lease)
    until(lambda: bool(asked) or lease.state == "lost", "another is tried")
    assert set(states) == {"unsure"} and lease.state == "held"
    assert 2 <= asked[0] <= len(states) + 1, "the next try that is heard of is enough"
    stage.look.honest(lease)


@THREADS_ONLY
def test_renewals_that_stay_lost(stage: Stage) -> None:
    """Loss by the margin, told before the deadline although the server goes on renewing; nothing is sent after it."""
    party = stage.party()
    lease = party.do(lambda hold: hold.lock("job", ttl=LEISURE).acquire())
    told: list[tuple[float, LeaseLost]] = []
    party.do(lambda _: lease.on_lost(lambda error: told.append((now(), error))))
    stage.aim.lose("renew", math.inf)
    until(lambda: bool(told), "everybody is told")
    at, error = told[0]
    assert error.reason == "renewal_failed" and at < lease.deadline
    assert stage.aim.seen["renew"] >= 2, "it was tried more than once"
    assert stage.look.holder() == lease.owner, "the server did renew"
    stage.aim.relent()
    stage.proxy.settle()  # what was sent before may be seen only now
    tried = stage.aim.seen["renew"]
    assert party.do(lambda _: lease.release()) is False and lease.state == "lost"
    stage.proxy.settle()
    assert stage.look.leftovers() == [] and stage.aim.seen["renew"] == tried


# ---------------------------------------------------------------- extend


def test_a_lost_extend_is_unsure(stage: Stage) -> None:
    """OutcomeUnknown: it may be longer now, and is not believed to be until the server says so."""
    party = stage.party()
    lease = party.do(lambda hold: hold.lock("job", ttl=5, renew=False).acquire())
    lost = stage.without_reply("renew", lambda: party.start(lambda _: lease.extend(20)))
    assert isinstance(lost.exception(PATIENCE), OutcomeUnknown)
    assert lease.state == "unsure" and lease.remaining() < 5 and stage.look.left_ms() > 15_000
    party.do(lambda _: lease.extend(20))
    assert lease.state == "held" and lease.ttl == 20 and lease.remaining() > 15
    stage.look.honest(lease)


def test_a_lost_extend_is_confirmed_by_a_renewal(stage: Stage) -> None:
    """Nobody repeats it: the watchdog asks for what was wanted."""
    party = stage.party()
    lease = party.do(lambda hold: hold.lock("job", ttl=5).acquire())
    lost = stage.without_reply("renew", lambda: party.start(lambda _: lease.extend(20)))
    assert isinstance(lost.exception(PATIENCE), OutcomeUnknown)
    until(lambda: lease.state == "held", "the next renewal confirms")
    assert lease.ttl == 20 and lease.remaining() > 10
    stage.look.honest(lease)


def test_a_lost_shorter_extend_is_believed_before_it_is_sent(stage: Stage) -> None:
    """Nobody knows whether it is shorter now; so it is."""
    party = stage.party()
    lease = party.do(lambda hold: hold.lock("job", ttl=20, renew=False).acquire())
    lost = stage.without_reply("renew", lambda: party.start(lambda _: lease.extend(2)))
    assert isinstance(lost.exception(PATIENCE), OutcomeUnknown)
    assert lease.remaining() <= 2 and stage.look.left_ms() <= 2_000
    stage.look.honest(lease)


@THREADS_ONLY
def test_one_lost_extend_does_not_end_a_short_lease(stage: Stage) -> None:
    """A call that goes unanswered leaves time for another try, as a renewal's does (trap 2)."""
    party = stage.party()
    lease = party.do(lambda hold: hold.lock("job", ttl=1.5).acquire())
    stage.aim.lose("renew")
    with pytest.raises(OutcomeUnknown):
        party.do(lambda _: lease.extend(1.5))
    until(lambda: lease.state != "unsure", "a renewal is tried, perhaps by now")
    assert lease.state == "held"


# ---------------------------------------------------------------- waiting


@pytest.mark.usefixtures("hasty")
def test_a_lost_withdrawal_is_repeated(stage: Stage) -> None:
    """The wait is over and the withdrawal goes unanswered: None in time, and no place in the queue is left."""
    party, other = stage.connected(), stage.other()
    other.do(lambda hold: hold.lock("job", ttl=30).acquire())
    stage.aim.lose("withdraw")
    begun = now()
    assert party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=0.2)) is None
    assert now() - begun < 0.2 + HASTE + SLACK
    until(lambda: stage.aim.seen["withdraw"] >= 2, "it is repeated in the background")
    until(lambda: stage.look.queue() == [], "nobody is in the queue")


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_lost_beat_costs_no_place(stage: Stage, protocol: int) -> None:
    """A beat goes unanswered, with RESP2 the one that brings the grant: it is granted once, from its first place."""
    party, other = stage.party(f"{stage.proxy.url}?protocol={protocol}"), stage.other()
    first = other.do(lambda hold: hold.lock("job", ttl=30).acquire())
    future = party.start(lambda hold: hold.lock("job", ttl=1.5).acquire(wait=PATIENCE))
    until(lambda: stage.aim.seen["beat"] > 0, "it waits")
    (owner,) = stage.look.queue()
    stage.aim.lose("beat")
    asked = stage.aim.seen["beat"]
    until(lambda: protocol == 2 or stage.aim.seen["beat"] > asked, "a beat is lost")
    give_back(other, first)
    lease = future.result(PATIENCE)
    assert lease.owner == owner and lease.fence == stage.look.fence() and stage.look.holder() == owner
    stage.look.honest(lease)


# ---------------------------------------------------------------- looking


def test_a_lost_look_is_asked_again(stage: Stage) -> None:
    """``locked()`` is answered by the server, at the second try, or not at all; it has done nothing to anybody."""
    party = stage.party()
    look = lambda: party.start(lambda hold: hold.lock("job").locked())  # noqa: E731  # short, and used twice
    assert stage.without_reply("inspect", look).result(PATIENCE) is False
    stage.aim.lose("inspect")
    asked = stage.aim.seen["inspect"]
    lost = stage.without_reply("inspect", look)
    until(lambda: stage.aim.seen["inspect"] >= asked + 2, "it looks again")
    stage.proxy.cut()
    assert isinstance(lost.exception(PATIENCE), StoreUnavailable)
    assert party.do(lambda hold: hold.lock("job").locked()) is False
