"""Operators' calls beside whatever else happens: notes, doors, races, callbacks and events."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import leasehold
from leasehold import LeaseLost, NotAcquired, NotHeld, OutcomeUnknown, StoreUnavailable
from leasehold._core import ops
from leasehold._core.policy import MAX_NOTE_BYTES, NOTES_KEPT
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import (
    Spy,
    elsewhere,
    in_thread,
    look,
    nothing_left,
    once,
    only,
    reply_lost,
    sync_scene,
    unreachable,
)
from tests.support.waiting import until, until_async

SOON = 20.0


@pytest.fixture
def spy() -> Spy:
    """A store that counts what is sent."""
    return Spy(MemoryStore())


@pytest.fixture
def hold(spy: Spy) -> Iterator[leasehold.Leasehold]:
    """The holder's coordinator."""
    with leasehold.connect(spy) as made:
        yield made


@pytest.fixture
def operator(spy: Spy) -> Iterator[leasehold.Leasehold]:
    """Somebody else's."""
    with leasehold.connect(spy.inner) as made:
        yield made


def taken(hold: leasehold.Leasehold, **options: Any) -> leasehold.Lease:
    """A lease."""
    lease = hold.lock("job", **{"ttl": 60, **options}).acquire(wait=0)
    assert lease is not None
    return lease


def evict(hold: leasehold.Leasehold, lease: leasehold.Lease, **more: Any) -> Any:
    """Take it away."""
    return hold.evict("job", **{"fence": lease._held.fence, "reason": "it hangs", **more})


def ask(operator: leasehold.Leasehold) -> None:
    """Ask for it, once the holder listens."""
    until(lambda: operator.revoke("job"), "the holder can be told")


# ---------------------------------------------------------------- evict


def test_an_evicted_lease_that_waits_for_its_adopter(hold: leasehold.Leasehold, operator: leasehold.Leasehold) -> None:
    """The ticket is then worth nothing, and the door is closed for the adopter as for everybody."""
    lease = taken(hold)
    ticket = lease.transfer()
    assert 59 < evict(operator, lease).closed_for <= 60
    with pytest.raises(LeaseLost):
        operator.adopt(ticket)
    assert lease.state == "released" and operator.lock("job").try_acquire() is None


def test_an_adopted_lease_is_not_the_one_that_was_meant(
    hold: leasehold.Leasehold, operator: leasehold.Leasehold
) -> None:
    """The operator saw the giver; by now somebody else holds, and is left alone."""
    lease = taken(hold)
    adopted = operator.adopt(lease.transfer())
    with pytest.raises(NotHeld, match=str(adopted.fence)):
        evict(operator, lease)
    adopted.check()


def test_evict_during_a_renewal(spy: Spy, hold: leasehold.Leasehold, operator: leasehold.Leasehold) -> None:
    """The renewal is told: lost, evicted, and nothing brings it back."""
    lease = taken(hold)
    spy.before = once(ops.Renew, lambda op: evict(operator, lease) and None)
    with pytest.raises(LeaseLost) as info:
        lease.extend(60)
    assert info.value.reason == "evicted" and lease.lost.wait(SOON) and not look(spy, "job").holders


@pytest.mark.parametrize("first", ["evict", "release"])
def test_evict_and_release_at_once(
    first: str, spy: Spy, hold: leasehold.Leasehold, operator: leasehold.Leasehold
) -> None:
    """Exactly one of them happens, and each side is told which."""
    lease = taken(hold)
    if first == "evict":
        spy.before = once(ops.Release, lambda op: evict(operator, lease) and None)
        assert lease.release() is False
        assert len(operator.inspect("job").notes) == 1
    else:
        watched = Spy(spy.inner)

        def give_back(op: ops.StoreOp) -> None:
            in_thread(lease.release)

        watched.before = once(ops.Evict, give_back)
        with leasehold.connect(watched) as late, pytest.raises(NotHeld):
            evict(late, lease)
        assert lease.state == "released" and operator.inspect("job").notes == ()
        assert operator.lock("job").try_acquire() is not None


def test_evict_races_with_release(spy: Spy, hold: leasehold.Leasehold, operator: leasehold.Leasehold) -> None:
    """Many rounds of two threads: never both, never neither."""
    evictions = 0
    for number in range(40):
        lease = taken(hold)
        both = threading.Barrier(2)

        def out(lease: leasehold.Lease = lease, both: threading.Barrier = both) -> bool:
            both.wait(SOON)
            try:
                return bool(evict(operator, lease, delay=0, force=True))
            except NotHeld:
                return False

        with elsewhere(out) as evicted:
            both.wait(SOON)
            released = lease.release()
            done = evicted()
        assert released != done, number
        evictions += done
        assert nothing_left(spy, "job")
    assert len(operator.inspect("job").notes) == min(evictions, NOTES_KEPT)


@pytest.mark.slow
def test_an_eviction_is_repeated_when_unanswered(spy: Spy, hold: leasehold.Leasehold) -> None:
    """The same request: one note, one fence; the holder's own coordinator may be the operator's."""
    lease = taken(hold, ttl=3)  # the next renewal tells it
    spy.after = once(ops.Evict, reply_lost)
    done = evict(hold, lease)
    assert len({op.request for op in spy.of(ops.Evict)}) == 1 and len(spy.of(ops.Evict)) == 2
    seen = hold.inspect("job")
    assert len(seen.notes) == 1 and seen.fence == done.fence
    assert lease.lost.wait(SOON)


def test_an_eviction_that_may_have_happened(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Its reply was lost, and then the store was: StoreUnavailable would say that nobody was evicted."""
    lease = taken(hold)

    def lost(op: ops.StoreOp) -> None:
        spy.before = only(ops.Evict, unreachable)
        raise OutcomeUnknown("the test kept the reply")

    spy.after = only(ops.Evict, lost)
    with pytest.raises(OutcomeUnknown):
        hold.evict("job", fence=lease.fence or 0, reason="a test")
    spy.heal()
    assert [note.event for note in hold.inspect("job").notes] == ["evicted"]
    with pytest.raises(NotHeld):
        hold.evict("job", fence=lease.fence or 0, reason="a test")


def test_the_door_stays_closed_and_then_the_queue_goes_on() -> None:
    """Many wait: nobody gets in before the victim's time is over, and then they come in their order."""
    clock = ManualClock()
    spy, hold = sync_scene(clock)
    with hold:
        lease = taken(hold, ttl=10)
        for number in range(8):
            spy.inner.execute(ops.Claim("job", f"host:{number}:w.{number}", 10_000, address=""))
        clock.advance(1)
        assert 8.9 < evict(hold, lease).closed_for <= 9
        for _ in range(8):  # signs of life on the way
            clock.advance(1)
            for number in range(8):
                reply = spy.inner.execute(ops.Beat("job", f"host:{number}:w.{number}", int(clock.now() * 10)))
                assert isinstance(reply, ops.Queued)
        clock.advance(1.1)
        order = []
        for _ in range(8):
            replies = [
                (number, spy.inner.execute(ops.Beat("job", f"host:{number}:w.{number}", 10**9 + clock.instant().ms)))
                for number in range(8)
                if number not in order
            ]
            ((number, reply),) = [(number, reply) for number, reply in replies if isinstance(reply, ops.Granted)]
            order.append(number)
            spy.inner.execute(ops.Release("job", f"host:{number}:w.{number}", reply.fence))
            clock.advance(0.01)
        assert order == list(range(8))


# ---------------------------------------------------------------- the audit trail

LINES = {
    "quotes": "he said \"no\" and 'yes'",
    "braces": '{"by": "me", "reason": "mine"}',
    "backslash": "C:\\new\\table",
    "spaces": "a  b   c",
    "emoji": "🔥 is on 🔥",
    "rtl": "שלום עולם",
    "separators": "a b c" + "é",
    "percent": "%s %d %00 {0}",
    "longest": "x" * 300,
    "longest quotes": '"' * 300,
    "longest emoji": "🔒" * 300,
}


@pytest.mark.parametrize("text", LINES.values(), ids=LINES.keys())
def test_what_was_said_is_kept_as_it_was(text: str, spy: Spy, hold: leasehold.Leasehold) -> None:
    """Whatever can be printed on one line comes back the same, and takes no more room than it may."""
    lease = taken(hold)
    evict(hold, lease, reason=text, by=text)
    (note,) = hold.inspect("job").notes
    assert (note.reason, note.by, note.fence) == (text, text, lease.fence)
    (op,) = spy.of(ops.Evict)
    assert len(op.note.encode()) <= MAX_NOTE_BYTES


@pytest.mark.parametrize("text", ["not json", '"text"', "[1]", '{"by": 7}', "{" * 5000, ""])
def test_a_note_that_somebody_else_wrote(text: str, spy: Spy, hold: leasehold.Leasehold) -> None:
    """Shown as far as it can be read, and no error."""
    lease = taken(hold)
    spy.inner.execute(ops.Evict("job", lease.owner, lease._held.fence, "r", note=text))
    (note,) = hold.inspect("job").notes
    assert note.event == "evicted" and note.by in ("", "7") and note.reason == ""


def test_only_the_last_notes_are_kept(hold: leasehold.Leasehold) -> None:
    """Twenty of them, in order; the default author is this process, without its secret."""
    for number in range(NOTES_KEPT + 5):
        lease = taken(hold)
        evict(hold, lease, reason=f"round {number}", delay=0, force=True)
    notes = hold.inspect("job").notes
    assert [note.reason for note in notes] == [f"round {number}" for number in range(5, NOTES_KEPT + 5)]
    assert {note.by for note in notes} == {note.owner for note in notes} and lease.owner.startswith(notes[0].by + ":")
    shown = json.dumps([tuple(map(str, note)) for note in notes])
    assert lease.owner.rpartition(":")[2].partition(".")[0] not in shown


# ---------------------------------------------------------------- revoke


def test_a_callback_runs_apart_and_may_raise(
    hold: leasehold.Leasehold, operator: leasehold.Leasehold, caplog: pytest.LogCaptureFixture
) -> None:
    """In a thread of its own; what it raises is logged, the others are called, and the lease goes on."""
    lease = taken(hold)
    threads: list[str] = []

    def broken() -> None:
        raise RuntimeError("a bug of the user's")

    def blocking() -> None:
        threads.append(threading.current_thread().name)
        done.wait(SOON)

    done = threading.Event()
    lease.on_revoked(broken)
    lease.on_revoked(blocking)
    ask(operator)
    assert lease.revoked.wait(SOON)
    until(lambda: threads == ["leasehold-on-revoked"], "it runs in a thread of its own")
    until(lambda: "a bug of the user's" in caplog.text, "it is logged")
    assert lease.state == "held" and lease.release() is True
    done.set()


def test_revoked_before_anybody_asked(hold: leasehold.Leasehold, operator: leasehold.Leasehold) -> None:
    """Whoever asks for the event later finds it set, and a late callback is called; once, however often one asks."""
    lease = taken(hold)
    calls: list[str] = []
    lease.on_revoked(lambda: calls.append("early"))
    ask(operator)
    operator.revoke("job", fence=lease.fence)
    until(lambda: bool(calls), "it is called")
    assert lease.revoked.is_set()
    lease.on_revoked(lambda: calls.append("late"))
    until(lambda: "late" in calls, "so is a late one")
    assert sorted(calls) == ["early", "late"] and lease.state == "held"


async def test_revoked_in_asyncio(spy: Spy, operator: leasehold.Leasehold) -> None:
    """The event is set on the loop that acquired; asked for afterwards it is set at once; coroutines are awaited."""
    async with leasehold.aio.connect(spy) as hold:
        lease = await hold.lock("job", ttl=60).acquire()
        assert lease is not None
        loops: list[object] = []

        async def callback() -> None:
            await asyncio.sleep(0)
            loops.append(asyncio.get_running_loop())
            raise RuntimeError("a bug of the user's")

        lease.on_revoked(callback)

        await asyncio.to_thread(ask, operator)
        await until_async(lambda: bool(loops), "the callback ran")
        assert loops == [asyncio.get_running_loop()]
        assert lease.revoked.is_set(), "and not only in the loop's next turn"
        lease.check()
        assert await lease.release() is True


def test_revoked_on_the_right_loop(spy: Spy, operator: leasehold.Leasehold) -> None:
    """A loop in another thread waits for it, and is woken by the watchdog's thread."""
    ready = threading.Event()

    async def worker() -> bool:
        async with leasehold.aio.connect(spy) as hold, hold.lock("job", ttl=60) as lease:
            revoked = lease.revoked
            ready.set()
            await asyncio.wait_for(revoked.wait(), SOON)
            return lease.state == "held"

    with elsewhere(lambda: asyncio.run(worker())) as result:
        assert ready.wait(SOON)
        ask(operator)
        assert result() is True
    assert nothing_left(spy, "job")


def test_a_holder_that_gives_back_lets_the_next_in(hold: leasehold.Leasehold, operator: leasehold.Leasehold) -> None:
    """The point of asking: nobody loses anything, and the queue moves."""
    lease = taken(hold)
    lease.on_revoked(lease.release)
    with elsewhere(lambda: operator.lock("job", ttl=60).acquire(wait=SOON)) as waiting:
        until(lambda: bool(operator.inspect("job").waiters), "it waits")
        ask(operator)
        got = waiting()
    assert got is not None and lease.state == "released"


def test_revoke_and_inspect_after_close(hold: leasehold.Leasehold) -> None:
    """A closed coordinator says that it is closed."""
    hold.close()
    for call in (
        lambda: hold.inspect("job"),
        lambda: hold.revoke("job"),
        lambda: hold.evict("job", fence=1, reason="r"),
    ):
        with pytest.raises(leasehold.StoreUnavailable, match="closed"):
            call()


# ---------------------------------------------------------------- what is meant


def test_a_hidden_id_that_looks_like_a_hash(spy: Spy) -> None:
    """With hide_ids a name is hashed as it was typed, also when its id is 32 hex digits as a hash is; what a scan has
    shown is taken as it is."""
    with leasehold.connect(spy, namespace="acme", hide_ids="key") as hidden:
        lease = hidden.lock("job", "0123456789abcdef" * 2).acquire(wait=0)
        assert lease is not None
        (shown,) = [seen.resource for seen in hidden.scan()]
        for typed in ("job:" + "0123456789abcdef" * 2, shown, shown.removeprefix("acme/")):
            assert hidden.inspect(typed).holder is not None and hidden.inspect(typed).resource == lease.resource
        assert not hidden.inspect("job:" + "f" * 32).held
        evicted = hidden.evict("job:" + "0123456789abcdef" * 2, fence=lease.fence, reason="a test")
        assert evicted.resource == lease.resource


def test_a_look_that_goes_unanswered_has_done_nothing(spy: Spy, hold: leasehold.Leasehold) -> None:
    """StoreUnavailable: OutcomeUnknown would say that something may have happened."""
    spy.after = reply_lost
    for call in (lambda: hold.inspect("job"), lambda: list(hold.scan()), hold.leaks, hold.lock("job").locked):
        with pytest.raises(StoreUnavailable):
            call()


def test_a_look_is_asked_again(spy: Spy, hold: leasehold.Leasehold) -> None:
    """A connection that lay idle may be closed by now: who only looks need not hear of it."""
    lease = taken(hold)
    for call in (lambda: hold.inspect("job"), lambda: list(hold.scan()), lambda: hold.revoke("job", fence=lease.fence)):
        spy.after = once(object, reply_lost)
        call()


def test_a_closed_door_is_no_lease(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Whoever finds it closed is told for how long, and not of a lease."""
    lease = taken(hold)
    hold.evict("job", fence=lease.fence or 0, reason="a test")
    with pytest.raises(NotAcquired, match=r"^job is not free for \d+\.\d+ s$") as refused:
        hold.lock("job", wait=0).__enter__()
    assert refused.value.holder is None and refused.value.retry_in is not None and refused.value.retry_in > 50


def test_a_pattern_may_say_the_namespace(spy: Spy) -> None:
    """The names that a scan shows begin with it: they are patterns, too."""
    with leasehold.connect(spy, namespace="acme") as acme, leasehold.connect(spy, namespace="acme/2") as other:
        leases = [one.lock("job", number).acquire(wait=0) for one in (acme, other) for number in (1, 2)]
        shown = ["acme/job:1", "acme/job:2"]
        assert all(leases) and sorted(seen.resource for seen in acme.scan()) == shown
        assert sorted(seen.resource for seen in acme.scan("acme/job:*")) == shown
        assert [seen.resource for seen in acme.scan(shown[0])] == shown[:1]
        assert not list(acme.scan("acme/acme/*")) and not list(acme.scan("acme%2F2/*"))


def test_a_namespace_is_no_pattern(spy: Spy) -> None:
    """A star in it is a letter: nobody sees what another tenant holds."""
    with leasehold.connect(spy, namespace="a*") as star, leasehold.connect(spy, namespace="ab") as other:
        leases = [one.lock("job").acquire(wait=0) for one in (star, other)]
        assert all(leases) and [seen.resource for seen in star.scan()] == ["a*/job"]
        assert [seen.resource for seen in other.scan()] == ["ab/job"]


def test_who_needs_the_holder_alone_asks_for_no_queue(spy: Spy, hold: leasehold.Leasehold) -> None:
    """A queue may be long, and a server does nothing else while it lists it."""
    lease = taken(hold)
    assert hold.lock("job").locked()
    hold.revoke("job")
    hold.evict("job", fence=lease.fence or 0, reason="a test")
    assert [look.queue for look in spy.of(ops.Inspect)] == [False] * 3
    hold.inspect("job")
    assert spy.of(ops.Inspect)[-1].queue
