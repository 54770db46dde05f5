"""The audience: an observer that raises harms nobody, and what may be handed to ``observers``."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest
from leasehold._core.ops import Claim, Inspect, View
from leasehold.observe import log
from leasehold.observe.events import Acquired, Event, Leaking, Lost, Released, Renewed
from leasehold.observe.observers import Observers
from leasehold.stores.memory import MemoryStore
from tests.support.lock import watchdogs
from tests.support.observe.stage import Listener, Stage, refuse
from tests.support.tables import each
from tests.support.waiting import until

TTL = 6.0


class Broken:
    """Raises at everything."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error
        self.times = 0

    def __call__(self, event: Event) -> None:
        """Raises."""
        self.times += 1
        raise self.error("a bug of the observer's")


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the runtime said about observers."""
    records = [record for record in caplog.records if record.name == "leasehold.runtime"]
    return [record.getMessage() for record in records if "observer" in record.getMessage()]


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_observer_that_raises_harms_nobody(
    flavour: str, heard: Listener, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """In the caller's thread and in the watchdog's: leases, other observers and renewals go on; it is said once."""
    broken = Broken(error)
    stage = Stage(flavour, [broken, heard])
    lease, kept = stage.acquire("job", 1, ttl=TTL), stage.acquire("job", 2, ttl=TTL)
    stage.evict(lease)
    stage.clock.advance(TTL / 3 + 0.1)
    until(lambda: heard.of(Lost) and heard.of(Renewed), "the watchdog tells of the loss, and renews the other")
    stage.do(kept.release)
    assert len(heard.of(Released)) == 1 and kept.state == "released" and watchdogs()
    assert broken.times == len(heard.events)
    assert len(complaints(caplog)) == 1
    stage.close()


def test_each_broken_observer_is_complained_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Also where a guard adds its own."""
    observers, guest = Observers([Broken(ValueError), Broken(TypeError)]), Broken(OSError)
    for _ in range(3):
        observers.notify(Leaking(1), [guest])
    assert guest.times == 3 and len(complaints(caplog)) == 3


def test_an_interrupt_on_the_main_thread_goes_on_its_way() -> None:
    """Ctrl-C may arrive inside an observer: it is not the observer's, and must not be lost."""
    with pytest.raises(KeyboardInterrupt):
        Observers([Broken(KeyboardInterrupt)]).notify(Leaking(1))


def test_a_log_handler_that_raises_harms_nobody(heard: Listener) -> None:
    """Not even one that wants to end the program, in the watchdog's thread."""

    class Ending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit

    handler, logger = Ending(), logging.getLogger("leasehold.lease")
    stage = Stage("sync", [heard])
    logger.addHandler(handler)
    try:
        lease, other = stage.acquire("job", 1, ttl=TTL), stage.acquire("job", 2, ttl=TTL)
        stage.evict(lease)
        stage.clock.advance(TTL / 3 + 0.1)
        until(lambda: heard.of(Lost) and heard.of(Renewed), "the loss is told, and the watchdog goes on")
        assert lease.state == "lost" and other.state == "held"
    finally:
        logger.removeHandler(handler)
        stage.close()


@each("wrong", [print, None, [None], [Listener], 7, ["print"]])
def test_what_is_no_list_of_observers_is_refused(wrong: Any) -> None:
    """Said when the coordinator is made, not when the first event is lost."""
    with pytest.raises(InvalidRequest, match="observer"):
        leasehold.connect("memory://", observers=wrong)


def test_an_observer_that_is_given_twice_is_told_once(heard: Listener) -> None:
    """Counting twice would be a lie."""
    with leasehold.connect(MemoryStore(), observers=[heard, heard]) as hold, hold.lock("job"):
        pass
    assert heard.names() == ["Acquired", "Released"]


def test_a_guard_with_the_same_observer_tells_it_once(set_up: Callable[..., Stage], heard: Listener) -> None:
    """A refusal is one, also where both the lease and the guard know who wants to hear of it."""
    stage, other = set_up(), Listener()
    refuse(stage, stage.acquire(), observers=[heard, other])
    assert heard.names().count("FencedOff") == other.names().count("FencedOff") == 1


# ---------------------------------------------------------------- what travels in the metadata


class Carrier(Listener):
    """Wants something to travel."""

    def __init__(self, give: Callable[[int], Any]) -> None:
        super().__init__()
        self.give = give

    def carry(self, number: int) -> Mapping[str, Any]:
        """Whatever the test says."""
        given: Mapping[str, Any] = self.give(number)
        return given


def carried(stage: Stage) -> dict[str, Any]:
    """The metadata of whoever holds the job now."""
    view = stage.spy.inner.execute(Inspect("job:1"))
    assert isinstance(view, View)
    meta: dict[str, Any] = json.loads(view.holders[0].meta or "{}")
    return meta


def test_what_observers_carry_is_in_the_store(set_up: Callable[..., Stage]) -> None:
    """Several may; what the user says about the holder comes first, and is all that the lease shows."""
    stage = set_up(Carrier(lambda number: {"a": number, "host": "x"}), Carrier(lambda number: {"b": 2}))
    lease = stage.acquire(meta={"host": "mine"})
    number = lease._held.number
    assert carried(stage) == {"a": number, "b": 2, "host": "mine"} and number > 0
    assert lease.meta == {"host": "mine"}


@pytest.mark.parametrize(
    "give",
    [
        lambda number: 1 / 0,
        lambda number: None,
        lambda number: {"x": object()},
        lambda number: {("a", "b"): 1},
        lambda number: {"x": float("nan")},
        lambda number: {"x": "y" * 5000},
    ],
    ids=["raises", "nothing", "object", "key", "nan", "large"],
)
def test_what_cannot_travel_stays(
    set_up: Callable[..., Stage], give: Callable[[int], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A carrier that is broken, or carries too much, harms neither the lease nor what others carry."""
    stage = set_up(Carrier(give), Carrier(lambda number: {"b": 2}))
    for _ in range(2):
        lease = stage.acquire(meta={"host": "mine"})
        assert carried(stage) == {"b": 2, "host": "mine"}
        stage.do(lease.release)
    assert len(complaints(caplog)) == 1


# ---------------------------------------------------------------- when nobody listens


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without observers, and with a log that nobody reads, no event is made and nothing of them is loaded."""
    monkeypatch.setattr(log, "enabled", lambda level: level >= log.WARNING)
    told: list[Event] = []
    monkeypatch.setattr(Observers, "notify", lambda self, event, others=(): told.append(event))
    stage = Stage("sync", [])
    lease = stage.acquire(ttl=TTL)
    assert lease._held.number == 0
    stage.do(lambda: lease.extend(60))
    stage.do(lease.release)
    stage.rival()
    assert stage.do(stage.lock().try_acquire) is None
    assert not told and len(stage.spy.of(Claim)) == 2
    stage.close()


def test_threads_tell_at_once(heard: Listener) -> None:
    """Many threads, one observer: every lease has its own number."""
    with leasehold.connect(MemoryStore(), observers=[heard]) as hold:

        def work(number: int) -> None:
            for _ in range(20):
                with hold.lock("job", number):
                    pass

        crowd = [threading.Thread(target=work, args=[number]) for number in range(8)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join(30)
    until(lambda: len(heard.of(Released)) == 160, "all were told")
    assert len({event.lease.number for event in heard.of(Acquired)}) == 160
