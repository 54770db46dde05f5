"""A coordinator that is closed before, during and after each step of ``with hold.lock(...)``: nothing stays locked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold import LeaseLost, StoreUnavailable
from tests.support.faults.aftermath import expect_free
from tests.support.faults.places import Line, Places
from tests.support.faults.user import Use, familiar
from tests.support.waiting import PATIENCE, until

MOST = 2000  # places
ENDS = (None, StoreUnavailable, LeaseLost)  # how a use may end whose coordinator is closed meanwhile
SOAK = [pytest.param(store, marks=pytest.mark.soak) for store in ("sqlite", "postgresql")]
MOMENT = 0.02  # seconds for a close() that may have to wait for the thread that it disturbs


class Closer:
    """Closes a coordinator from a thread of its own, after a round of its watchdog, which may come at any time."""

    def __init__(self, hold: Any) -> None:
        self._hold = hold
        self._thread = threading.Thread(target=self._close, daemon=True)

    def _close(self) -> None:
        self._hold._engine.watchdog.round()
        if isinstance(self._hold, leasehold.Leasehold):
            self._hold.close()
        else:
            asyncio.run(self._hold.close())

    def begin(self) -> None:
        """It may wait for a lock that the calling thread holds."""
        self._thread.start()
        self._thread.join(MOMENT)

    def end(self) -> None:
        """It is closed."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "close() never ends"


def close_somewhere(user: Any, other: leasehold.Leasehold, number: int, known: set[Line]) -> tuple[Use, Places]:
    """Close the coordinator at the first place on a line that is not known."""
    closer = Closer(user.hold)
    places = Places(1, closer.begin, known)

    def body(lease: Any) -> None:
        holder = other.inspect(lease.resource).holder  # first: a lease is lost before it is given back
        assert lease.state == "lost" or (holder is not None and holder.fence == lease.fence), (
            "it believes in what it has"
        )

    use = user.use(number, places, body)
    if places.where:
        closer.end()
    return use, places


@pytest.mark.parametrize("url", ["redis", *SOAK], indirect=True)
def test_a_close_at_every_line(url: str, new_user: Callable[[str], Any], other: leasehold.Leasehold) -> None:
    """From another thread: the body runs or does not, and in either case its lease is free afterwards."""
    known: set[Line] = set()
    for number in range(1, MOST):
        user = new_user(url)
        use, places = close_somewhere(user, other, familiar(user, number), known)
        if not places.where:
            user.close()
            break
        assert use.raised in ENDS, f"after a close in {places.where}"
        expect_free(user.hold, other, use)
        known |= places.lines
        user.close()
    assert len(known) > 50


def test_a_closed_coordinator(url: str, new_user: Callable[[str], Any], other: leasehold.Leasehold) -> None:
    """StoreUnavailable, and nothing is sent."""
    user = new_user(url)
    user.use(0)
    closer = Closer(user.hold)
    closer.begin()
    closer.end()
    use = user.use(1)
    assert use.raised is StoreUnavailable and use.fences == []
    expect_free(user.hold, other, use)
    user.close()


def test_a_close_inside_the_body(url: str, new_user: Callable[[str], Any], other: leasehold.Leasehold) -> None:
    """The lease is given back and lost, and its body learns of that."""
    user = new_user(url)

    def body(lease: Any) -> None:
        closer = Closer(user.hold)
        closer.begin()
        closer.end()
        until(lambda: lease.state == "lost", "it is lost")
        assert other.inspect(lease.resource).holder is None

    use = user.use(1, body=body)
    assert use.raised is LeaseLost and len(use.fences) == 1
    expect_free(user.hold, other, use)
    user.close()
