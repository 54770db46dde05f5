"""Observers on threads: many at a time, closed from anywhere, and no trace of them afterwards."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import leasehold
from leasehold._core import resource_flows
from leasehold._core.ops import Watch
from leasehold.errors import InvalidRequest, StoreUnavailable
from tests.support.lock import Spy, elsewhere, look, only, unreachable
from tests.support.waiting import PATIENCE, until
from tests.unit.election.tools import watchers


def test_nobody_polls(hold: leasehold.Leasehold, spy: Spy) -> None:
    """A change reaches the observer by a push: it has asked once before, and once after."""
    election = hold.election("job")
    stream = election.observe()
    assert next(stream) is None
    with elsewhere(lambda: next(stream)) as change:
        until(lambda: len(spy.of(Watch)) == 2, "it watches")
        with election.campaign() as term:
            leader = change()
            assert leader is not None and leader.term == term.term
    assert len(spy.of(Watch)) == 3
    stream.close()


@pytest.mark.slow
def test_closed_from_another_thread(hold: leasehold.Leasehold, spy: Spy) -> None:
    """Whoever waits stops, the mailbox is used again, and the store forgets the observer."""
    stream = hold.election("job").observe()
    assert next(stream) is None
    with elsewhere(lambda: list(stream)) as rest:
        until(lambda: len(spy.of(Watch)) == 2, "it watches")
        with pytest.raises(InvalidRequest, match="one at a time"):
            next(stream)
        stream.close()
        stream.close()
        assert rest() == []
    until(lambda: not watchers(spy), "the store forgets it")
    assert len(hold._engine.connections._idle) == 1


def test_left_with_break(hold: leasehold.Leasehold, spy: Spy) -> None:
    """A stream that nobody refers to is closed."""
    for _ in hold.election("job").observe():
        assert len(watchers(spy)) == 1
        break
    until(lambda: not watchers(spy), "the store forgets it")


def test_never_read(hold: leasehold.Leasehold, spy: Spy) -> None:
    """One that was not begun has nothing to take back."""
    hold.election("job").observe().close()
    assert spy.ops == []


@pytest.mark.slow
def test_a_closed_coordinator_ends_the_stream(hold: leasehold.Leasehold, spy: Spy) -> None:
    """Without an error, for those who wait and for those who come later; a new one is refused."""
    election = hold.election("job")
    stream, other = election.observe(), election.observe()
    assert next(stream) is None
    with elsewhere(lambda: list(stream)) as rest:
        until(lambda: len(spy.of(Watch)) == 2, "it watches")
        hold.close()
        assert rest() == []
    assert list(stream) == [] == list(other)
    for late in (election.observe, election.leader):
        with pytest.raises(StoreUnavailable, match="closed"):
            late()


def test_a_store_that_is_away(hold: leasehold.Leasehold, spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short outage is borne; a long one is told, and reading goes on afterwards."""
    monkeypatch.setattr(resource_flows, "BEARABLE", 0.2)
    monkeypatch.setattr(resource_flows, "WATCH_EVERY_MS", 20)
    election = hold.election("job")
    stream = election.observe()
    assert next(stream) is None
    spy.before = only(Watch, unreachable)
    with pytest.raises(StoreUnavailable, match="cut the wire"):
        next(stream)
    spy.heal()
    with election.campaign() as term:
        leader = next(stream)
        assert leader is not None and leader.term == term.term
    stream.close()


def test_many_observers(hold: leasehold.Leasehold, spy: Spy) -> None:
    """Each hears of every leader that lasts, in order."""
    election = hold.election("job")
    seen: list[list[Any]] = [[] for _ in range(8)]

    def watch(into: list[Any]) -> None:
        for leader in election.observe():
            into.append(leader and leader.term)
            if leader is not None and leader.value == "last":
                return

    threads = [threading.Thread(target=watch, args=[into]) for into in seen]
    for thread in threads:
        thread.start()
    until(lambda: len(watchers(spy)) == 8, "all of them watch")
    terms = []
    for value in (1, 2, "last"):
        with election.campaign(value=value) as term:
            terms.append(term.term)
            until(lambda: all(term.term in one for one in seen), "all have seen it")
    for thread in threads:
        thread.join(PATIENCE)
    assert [[term for term in one if term] for one in seen] == [terms] * 8
    until(lambda: not watchers(spy), "nobody is left")
    assert not look(spy, "job").holders
