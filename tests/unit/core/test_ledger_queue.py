"""The queue: order, handoff with the beat number, the silent, the dead and those that cannot be pushed."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.policy import MOST_AHEAD, forgotten_after_ms, patience_ms
from tests.support.tables import each
from tests.unit.core.desk import PATIENCE, ROOM, TTL, Desk, expect


def crowd(*waiters: str, pushable: bool = True) -> tuple[Desk, int]:
    """``a`` holds, the others wait in that order; the fence of ``a``."""
    desk = Desk()
    fence = desk.granted("a")
    for owner in waiters:
        desk.claim(owner, pushable=pushable)
    return desk, fence


def test_waiters_are_served_in_order_of_arrival() -> None:
    """First come, first served, each by one release."""
    desk, _ = crowd("b", "c", "d")
    served = []
    while desk.holder():
        served.append(desk.holder())
        desk.release(desk.holder(), desk.grant().fence)
    assert served == ["a", "b", "c", "d"]


def test_a_release_hands_on_and_pushes_exactly_one_grant() -> None:
    """One command a handoff, however many wait: no herd."""
    desk, fence = crowd("b", "c", "d")
    desk.later(1_000)
    expect(desk.release("a", fence), ops.Released())
    expect(desk.pushes[0], ops.Push("@b", "granted", ROOM, "b", desk.grant().fence, 1, TTL))
    assert len(desk.pushes) == 1
    assert (desk.holder(), desk.waiting()) == ("b", ["c", "d"])


def test_a_push_brings_as_many_fences_as_its_claim_may_have() -> None:
    """They end with the clock, nothing else mints them, and the grant has the first."""
    desk, fence = crowd()
    desk.claim("b", limit=65)
    desk.claim("c")
    desk.later(1_000)
    desk.release("a", fence)
    first = desk.wall_us - 64
    assert (desk.grant().fence, desk.pushes[0].fence, desk.pushes[0].last) == (first, first, desk.wall_us)
    desk.release("b", first)
    assert desk.grant().fence == desk.wall_us + 1 and desk.pushes[0].last == 0


def test_a_push_brings_no_fence_that_was_given() -> None:
    """After a handoff in the same moment only a few are left, and none beyond the clock."""
    desk, fence = crowd()
    for owner in ("b", "c"):
        desk.claim(owner, limit=65)
    desk.wall_us += 3
    desk.release("a", fence)
    assert (desk.grant().fence, desk.pushes[0].last) == (fence + 1, fence + 3)
    desk.release("b", fence + 1)
    assert (desk.grant().fence, desk.pushes[0].last) == (fence + 4, 0)


def test_fences_are_brought_by_a_push_alone_and_to_one_that_holds_alone() -> None:
    """Who learns of its grant by a reply is not told of more; nor does a reader get any."""
    desk, fence = crowd()
    desk.claim("b", limit=65, pushable=False)
    desk.later(1_000)
    desk.release("a", fence)
    desk.beat("b", 2)
    assert desk.grant().fence == desk.last_fence()
    desk.claim("c", rule="read", limit=65)
    desk.later(1_000)
    desk.release("b", desk.grant().fence)
    assert (desk.pushes[0].owner, desk.pushes[0].last, desk.grant().fence) == ("c", 0, desk.last_fence())


def test_a_handed_off_grant_has_its_full_time() -> None:
    """The ttl counts from the handoff in the store, not from when the wait began."""
    desk, fence = crowd("b")
    desk.later(2_000)
    desk.release("a", fence)
    assert desk.grant().expires_ms == desk.ms + TTL


def test_trap_41_a_push_names_the_last_beat_that_was_heard() -> None:
    """Not the first, and not one that is still under way."""
    desk, fence = crowd("b")
    desk.later(900)
    desk.beat("b", 2)
    desk.later(900)
    desk.beat("b", 5)
    desk.release("a", fence)
    assert desk.pushed() == [("b", "granted", 5)]


def test_trap_41_a_late_beat_with_a_lower_number_says_nothing_about_now() -> None:
    """A beat that was overtaken neither refreshes the waiter nor becomes the beat of the push."""
    desk, fence = crowd("b")
    desk.later(500)
    desk.beat("b", 3)
    heard_ms = desk.ms
    desk.later(500)
    expect(desk.beat("b", 2), ops.Queued(0, TTL - 1_000, "?"))
    assert (desk.waiter("b").beat, desk.waiter("b").beat_ms) == (3, heard_ms)
    desk.release("a", fence)
    assert desk.pushed() == [("b", "granted", 3)]


def test_a_repeated_claim_with_an_old_beat_takes_nothing() -> None:
    """A claim that was delivered twice does not revive a silent waiter, nor grant behind its back."""
    desk, fence = crowd("b", pushable=False)
    desk.later(PATIENCE + 1)
    desk.release("a", fence)
    expect(desk.claim("b", beat=1), ops.Queued(0, 0, "", pushable=False))
    assert desk.holder() == ""


def test_trap_25_a_silent_waiter_is_passed_over() -> None:
    """A beat older than L does not hold up the others, and the waiter keeps its place."""
    desk, fence = crowd("b", "c")
    desk.later(PATIENCE)
    desk.beat("c", 2)
    desk.later(1)
    desk.release("a", fence)
    assert (desk.holder(), desk.waiting()) == ("c", ["b"])


def test_a_waiter_is_live_for_the_whole_of_its_patience() -> None:
    """A beat that is exactly L old is not too old."""
    desk, fence = crowd("b")
    desk.later(PATIENCE)
    desk.release("a", fence)
    assert desk.holder() == "b"


def test_a_silent_waiter_is_not_counted_as_ahead() -> None:
    """Queued counts those who would be served first, which the silent would not."""
    desk, _ = crowd("b", "c")
    desk.later(PATIENCE + 1)
    expect(desk.beat("c", 2), ops.Queued(0, TTL - PATIENCE - 1, "?"))


def test_a_silent_waiter_is_revived_in_its_place_by_its_beat() -> None:
    """It was passed over, it was not moved back."""
    desk, fence = crowd("b", "c")
    desk.later(PATIENCE + 1)
    desk.beat("c", 2)
    desk.beat("b", 2)
    desk.release("a", fence)
    assert (desk.holder(), desk.waiting()) == ("b", ["c"])


@each("ttl_ms", [50, 1_000, 10_000])
def test_trap_25_a_waiter_that_stays_silent_leaves_after_ten_patiences(ttl_ms: int) -> None:
    """At 10 L it is still there, a millisecond later it is gone and its beat is told so."""
    desk = Desk()
    desk.granted("a", 60_000)
    desk.claim("b", ttl_ms)
    desk.later(10 * patience_ms(ttl_ms))
    desk.look()
    assert desk.waiting() == ["b"]
    desk.later(1)
    expect(desk.beat("b", 2), ops.NoClaim("unknown"))
    assert desk.waiting() == []


def test_a_beat_at_the_last_moment_keeps_the_place() -> None:
    """Deletion looks at the beat that was heard last."""
    desk = Desk()
    desk.granted("a", 60_000)
    desk.claim("b")
    desk.later(forgotten_after_ms(TTL))
    expect(desk.beat("b", 2), ops.Queued(0, 30_000, "?"))


def test_a_stalled_server_does_not_empty_the_queue() -> None:
    """After a stall of several L the holder is over, everybody is silent, and the order is what it was."""
    desk, _ = crowd("b", "c", "d")
    desk.later(5 * PATIENCE)
    desk.look()
    assert (desk.holder(), desk.waiting()) == ("", ["b", "c", "d"])
    assert isinstance(desk.beat("b", 2), ops.Granted)
    expect(desk.beat("c", 2), ops.Queued(0, TTL, "?"))
    assert desk.waiting() == ["c", "d"]


def test_after_a_stall_the_first_that_is_heard_takes_what_is_free() -> None:
    """The silent ones ahead are passed over; they keep their places."""
    desk, _ = crowd("b", "c", "d")
    desk.later(5 * PATIENCE)
    assert isinstance(desk.beat("d", 2), ops.Granted)
    assert desk.waiting() == ["b", "c"]


def test_an_unreachable_waiter_is_passed_over_at_once() -> None:
    """Its push would reach nobody: the next one is served in the same step. The place is kept, as a silent one's."""
    desk, fence = crowd("b", "c")
    desk.dead.add("b")
    desk.release("a", fence)
    assert (desk.holder(), desk.waiting(), desk.pushed()) == ("c", ["b"], [("c", "granted", 1)])


def test_an_unreachable_waiter_gets_no_fence() -> None:
    """Passing over mints nothing."""
    desk, fence = crowd("b")
    desk.dead.add("b")
    desk.release("a", fence)
    assert (desk.holder(), desk.waiting(), desk.last_fence()) == ("", ["b"], fence)


def test_reachability_is_asked_only_when_it_matters() -> None:
    """While somebody holds, an unreachable waiter stays in the queue."""
    desk, _ = crowd("b")
    desk.dead.add("b")
    desk.later(100)
    desk.look()
    assert desk.waiting() == ["b"]


def test_a_waiter_that_comes_back_finds_its_place() -> None:
    """Its connection broke and it was passed over: its next beat revives it, ahead of those who came later."""
    desk, fence = crowd("b", "c", "d")
    desk.dead.add("b")
    desk.release("a", fence)
    desk.dead.discard("b")
    expect(desk.beat("b", 2), ops.Queued(0, TTL, "?"))
    desk.release("c", desk.last_fence())
    assert (desk.holder(), desk.waiting()) == ("b", ["d"])


def test_an_unreachable_waiter_that_stays_away_is_forgotten() -> None:
    """Like any silent one."""
    desk, fence = crowd("b", "c")
    desk.dead.add("b")
    desk.release("a", fence)
    desk.later(forgotten_after_ms(TTL))
    desk.look()
    assert desk.waiting() == []
    expect(desk.beat("b", 2), ops.NoClaim("unknown"))


def test_a_waiter_is_told_of_one_ahead_at_most() -> None:
    """It need only know whether it is first: counting all of them would cost more, the more wait."""
    desk, _ = crowd(*[f"w{number}" for number in range(20)])
    expect(desk.beat("w0", 2), ops.Queued(0, TTL, "?"))
    expect(desk.beat("w3", 2), ops.Queued(MOST_AHEAD, TTL, "?"))
    expect(desk.beat("w19", 2), ops.Queued(MOST_AHEAD, TTL, "?"))


def test_a_head_that_cannot_be_pushed_keeps_its_place() -> None:
    """The free resource waits for its beat; those behind are not served first."""
    desk, fence = crowd("b", pushable=False)
    desk.claim("c")
    desk.release("a", fence)
    assert (desk.holder(), desk.waiting(), desk.pushes) == ("", ["b", "c"], [])
    expect(desk.beat("c", 2), ops.Queued(1, 0, ""))


def test_a_head_that_cannot_be_pushed_takes_the_resource_with_its_beat() -> None:
    """The reply of the beat is the grant, with its full time; no push."""
    desk, fence = crowd("b", pushable=False)
    desk.release("a", fence)
    desk.later(20)
    reply = desk.beat("b", 2)
    expect(reply, ops.Granted(desk.last_fence(), TTL))
    assert (desk.holder(), desk.pushes) == ("b", [])


def test_a_silent_head_that_cannot_be_pushed_gives_way() -> None:
    """It holds the resource free for L, not for ever."""
    desk, fence = crowd("b", pushable=False)
    desk.claim("c")
    desk.release("a", fence)
    desk.later(PATIENCE)
    desk.beat("c", 2)
    desk.later(1)
    desk.look()
    assert (desk.holder(), desk.waiting()) == ("c", ["b"])


def test_trap_24_expiry_hands_on_by_anybodys_op() -> None:
    """Whoever looks first advances the resource, and the waiter is pushed."""
    desk, _ = crowd("b")
    desk.later(TTL - 1_000)
    desk.beat("b", 2)
    desk.later(1_000)
    view = desk.look()
    assert [grant.owner for grant in view.holders] == ["b"]
    assert desk.pushed() == [("b", "granted", 2)]


def test_a_waiters_own_beat_finds_the_expired_holder_gone() -> None:
    """Nobody else needs to be there: the beat itself advances the resource."""
    desk, fence = crowd("b")
    desk.later(TTL - 1)
    desk.beat("b", 2)
    desk.later(1)
    reply = desk.beat("b", 3)
    expect(reply, ops.Granted(desk.last_fence(), TTL))
    assert desk.last_fence() > fence


def test_a_grant_ends_exactly_at_its_expiry() -> None:
    """One millisecond before it is held, at the end it is not."""
    desk = Desk()
    desk.granted("a")
    desk.later(TTL - 1)
    expect(desk.claim("b", wait=False), ops.Busy("?", 1))
    desk.later(1)
    assert isinstance(desk.claim("b", wait=False), ops.Granted)


def test_trap_26_a_beat_never_creates() -> None:
    """An owner that the store does not know gets nothing by beating."""
    desk = Desk()
    expect(desk.beat("a", 1), ops.NoClaim("unknown"))
    assert (desk.holder(), desk.waiting()) == ("", [])


def test_trap_26_a_beat_of_a_grant_that_is_over_is_gone() -> None:
    """The own grant expired while waiting for the push: gone, not granted. One that claimed twice learns how it
    ended."""
    desk, fence = crowd("b")
    desk.release("a", fence)
    desk.later(TTL)
    expect(desk.beat("b", 2), ops.NoClaim("unknown"))
    desk, fence = crowd("b")
    desk.claim("b", beat=2)
    desk.release("a", fence)
    desk.later(TTL)
    expect(desk.beat("b", 3), ops.NoClaim("expired"))


def test_a_beat_of_a_holder_gets_what_remains() -> None:
    """A waiter whose push was lost learns of its grant by its next beat."""
    desk, fence = crowd("b")
    desk.release("a", fence)
    desk.later(1_000)
    expect(desk.beat("b", 2), ops.Granted(desk.grant().fence, TTL - 1_000))


def test_a_handed_off_grant_uses_the_waiters_latest_floor() -> None:
    """A beat carries the highest fence that its client has seen."""
    desk, fence = crowd("b")
    desk.beat("b", 2, floor=fence + 1_000_000)
    desk.beat("b", 3, floor=7)
    desk.release("a", fence)
    assert desk.grant().fence == fence + 1_000_001


def test_a_waiter_that_speaks_is_alive_whatever_its_socket_says() -> None:
    """Its own beat finds the resource free: it is granted, not dropped."""
    desk, fence = crowd("b")
    desk.later(TTL - 1)
    desk.beat("b", 2)
    desk.later(1)
    desk.dead.add("b")
    assert isinstance(desk.beat("b", 3), ops.Granted)
    assert desk.last_fence() > fence


def test_trap_10_a_repeated_claim_takes_the_free_resource_like_a_beat() -> None:
    """A waiter that cannot be pushed and whose first claim went unanswered asks by a claim: granted by its reply."""
    desk, fence = crowd("b", pushable=False)
    desk.release("a", fence)
    expect(desk.claim("b", beat=2, pushable=False), ops.Granted(desk.last_fence(), TTL))
    assert desk.last_fence() > fence


def test_a_waiter_hears_whether_it_will_be_told() -> None:
    """What counts is the address that the store keeps, not the one that the waiter believes to have given."""
    desk, _ = crowd("b")
    expect(desk.claim("c", pushable=False), ops.Queued(1, TTL, "?", pushable=False))
    expect(desk.beat("b", 2), ops.Queued(0, TTL, "?", pushable=True))
    expect(desk.claim("c", beat=2, pushable=True), ops.Queued(1, TTL, "?", pushable=False))
