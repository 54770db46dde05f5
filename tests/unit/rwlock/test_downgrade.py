"""Downgrading while other things happen: a store that fails, a loss, a cancellation, another thread, observers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold import InvalidRequest, LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold._core.ops import Release, Renew, StoreOp
from leasehold._runtime.held_lease import HeldLease
from leasehold.observe.events import Downgraded, Event, NotRenewed, Renewed
from leasehold.stores.memory import MemoryStore
from tests.support.lock import (
    Spy,
    StillClock,
    async_scene,
    in_thread,
    look,
    once,
    only,
    reply_lost,
    sync_scene,
    tick,
    unreachable,
)
from tests.support.parties import FLAVOURS, Party
from tests.support.tables import each
from tests.support.waiting import until_async

TROUBLE = pytest.mark.parametrize(("when", "trouble", "error"), [
    ("before", unreachable, StoreUnavailable), ("before", reply_lost, OutcomeUnknown),
    ("after", reply_lost, OutcomeUnknown),
], ids=["down", "request lost", "reply lost"])  # fmt: skip


@pytest.fixture
def spy() -> Spy:
    """A store whose time stands still: no renewal unless the test wants one."""
    return Spy(MemoryStore(StillClock()))


@pytest.fixture(params=FLAVOURS)
def party(request: pytest.FixtureRequest, spy: Spy) -> Iterator[Party]:
    """Threads, then asyncio."""
    party = FLAVOURS[request.param](spy, observers=[HEARD.append])
    HEARD.clear()
    yield party
    spy.heal()
    party.close()


HEARD: list[Event] = []


def writer(party: Party, **options: Any) -> Any:
    """A writer's lease."""
    return party.do(lambda hold: hold.rwlock("doc", 1).write(ttl=9, **options).acquire())


def rules(spy: Spy) -> list[str]:
    """What the store believes of who holds."""
    return [one.rule for one in look(spy, "doc:1").holders]


def heard(*kinds: type) -> list[str]:
    """Which of these events came, in order."""
    return [type(one).__name__ for one in HEARD if isinstance(one, kinds)]


# ---------------------------------------------------------------- a store that fails


@TROUBLE
def test_what_goes_unanswered_only_reads_all_the_same(
    party: Party, spy: Spy, when: str, trouble: Any, error: type[Exception]
) -> None:
    """It may be repeated until it is confirmed; then there is nothing more to downgrade."""
    lease = writer(party)
    setattr(spy, when, only(Renew, trouble))
    for _ in range(2):
        with pytest.raises(error):
            party.do(lambda _: lease.downgrade())
        assert lease.shared and lease.state == "unsure" and lease.headers()["X-Fencing-Mode"] == "shared"
    spy.heal()
    party.do(lambda _: lease.downgrade())
    assert lease.shared and lease.state == "held" and rules(spy) == ["read"]
    with pytest.raises(InvalidRequest, match="reads already"):
        party.do(lambda _: lease.downgrade())
    told = heard(NotRenewed, Renewed, Downgraded)  # how often the watchdog has tried in between is its business
    assert told[:2] == ["NotRenewed", "NotRenewed"] and told[-2:] == ["Renewed", "Downgraded"]
    assert told.count("Downgraded") == 1


@TROUBLE
@each("options", [{}, {"renew": False}], ids=["renewed", "not renewed"])
def test_it_may_be_repeated_when_a_renewal_was_quicker(
    party: Party, spy: Spy, when: str, trouble: Any, error: type[Exception], options: dict[str, Any]
) -> None:
    """Until the caller was told that it is done: whatever the watchdog has heard meanwhile."""
    lease = writer(party, **options)
    setattr(spy, when, only(Renew, trouble))
    with pytest.raises(error):
        party.do(lambda _: lease.downgrade())
    spy.heal()
    tick(party.hold, 4)
    assert lease.shared and (rules(spy) == ["read"] or options)
    party.do(lambda _: lease.downgrade())
    assert lease.state == "held" and rules(spy) == ["read"]
    assert party.do(lambda _: lease.release()) is True


@TROUBLE
def test_every_renewal_says_so_again(party: Party, spy: Spy, when: str, trouble: Any, error: type[Exception]) -> None:
    """Nobody has to repeat it: the next renewal lowers it, and who waits to read comes in."""
    lease = writer(party)
    setattr(spy, when, once(Renew, trouble))
    with pytest.raises(error):
        party.do(lambda _: lease.downgrade())
    tick(party.hold, 4)
    assert rules(spy) == ["read"] and lease.state == "held"
    assert [one.shared for one in spy.of(Renew)][:2] == [True, True]
    before = len(spy.of(Renew))
    tick(party.hold, 4)
    assert {one.shared for one in spy.of(Renew)[before:]} == {False}


def test_a_renewal_that_was_under_way_does_not_confirm_it(party: Party, spy: Spy) -> None:
    """One that was sent before and is answered after it says nothing of it."""
    lease = writer(party)
    held = lease._held
    early = held.begin_renewal(spy.clock.now())
    spy.before = only(Renew, unreachable)
    with pytest.raises(StoreUnavailable):
        party.do(lambda _: lease.downgrade())
    spy.heal()
    held.apply_reply(early, spy.clock.now(), spy.execute(early), spy.clock.now())
    assert rules(spy) == ["write"] and lease.shared
    tick(party.hold, 4)
    assert rules(spy) == ["read"]


def test_a_ticket_given_before_it_was_confirmed_is_a_readers(party: Party, spy: Spy) -> None:
    """What says that it only reads is never handed over as a writer's."""
    lease = writer(party)
    spy.before = once(Renew, unreachable)
    with pytest.raises(StoreUnavailable):
        party.do(lambda _: lease.downgrade())
    ticket = party.do(lambda _: lease.transfer())
    assert rules(spy) == ["read"]
    assert party.do(lambda hold: hold.adopt(ticket)).shared


# ---------------------------------------------------------------- loss


def test_a_loss_during_it_is_told(party: Party, spy: Spy) -> None:
    """The store says that it is not ours: LeaseLost, and observers hear why."""
    lease = writer(party)

    def ends(_: StoreOp) -> None:
        spy.inner.execute(Release("doc:1", lease.owner, lease.fence))

    spy.before = once(Renew, ends)
    with pytest.raises(LeaseLost) as info:
        party.do(lambda _: lease.downgrade())
    assert info.value.reason == "deleted" and lease.state == "lost"
    assert [one.outcome for one in HEARD if isinstance(one, NotRenewed)] == ["not_owner"]
    assert party.do(lambda _: lease.release()) is False


@pytest.mark.slow
async def test_a_cancelled_one_only_reads_all_the_same() -> None:
    """Wherever the cancellation hits, the next renewal lowers it, and the lease is still ours."""
    spy, hold = async_scene()
    async with hold, hold.rwlock("doc", 1).write(ttl=3) as lease:
        spy.suspend = lambda: asyncio.sleep(5)
        task = asyncio.ensure_future(lease.downgrade())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        spy.suspend = None
        assert lease.shared and lease.state == "held"
        await until_async(lambda: rules(spy) == ["read"], "a renewal says so")
        await lease.downgrade()
        assert await hold.rwlock("doc", 1).read().try_acquire()


# ---------------------------------------------------------------- other threads


def test_nobody_enters_to_write_what_was_just_downgraded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread downgrades right before the re-entry: it does not write, and leaves no level behind."""
    _, hold = sync_scene()
    with hold:
        doc = hold.rwlock("doc", 1)
        lease = doc.write().acquire(wait=0)
        assert lease is not None
        enter = HeldLease.enter_again

        def late(self: HeldLease, ttl_ms: int, now: float) -> bool:
            monkeypatch.setattr(HeldLease, "enter_again", enter)
            in_thread(lease.downgrade)
            return enter(self, ttl_ms, now)

        monkeypatch.setattr(HeldLease, "enter_again", late)
        assert doc.write(reentrant=True).try_acquire() is None
        assert lease._held.depth == 1 and lease.shared
        assert lease.release() is True and not doc.read().locked()


def test_threads_that_downgrade_at_once_agree() -> None:
    """One or more are told that it is done, the others that it reads already; it is a reader's once."""
    spy, hold = sync_scene()
    with hold:
        lease = hold.rwlock("doc", 1).write().acquire(wait=0)
        assert lease is not None
        barrier = threading.Barrier(8)
        results: list[InvalidRequest | None] = []

        def run() -> None:
            barrier.wait(60)
            try:
                lease.downgrade()
                results.append(None)
            except InvalidRequest as error:
                results.append(error)

        threads = [threading.Thread(target=run) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        assert len(results) == 8 and None in results and rules(spy) == ["read"] and lease.state == "held"


# ---------------------------------------------------------------- who hears of it


def test_the_log_tells_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """One record at DEBUG, with the fields of every other."""
    _, hold = sync_scene()
    with caplog.at_level(logging.DEBUG, "leasehold"), hold, hold.rwlock("doc", "s3cret").write() as lease:
        lease.downgrade()
        fence = lease.fence
    found = [one for one in caplog.records if getattr(one, "event", "") == "lease_downgraded"]
    assert [(one.levelno, one.kind, one.fence) for one in found] == [(logging.DEBUG, "doc", fence)]  # type: ignore[attr-defined]  # extra fields
    assert "s3cret" not in caplog.text
