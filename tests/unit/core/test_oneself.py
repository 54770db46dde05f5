"""Who waits for itself: when that is for ever, what is said then, and that nothing is left in the queue."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from leasehold._core import flows, ops
from leasehold._core.claims import OwnLease, self_deadlock, self_deadlock_hint
from leasehold._core.names import Name
from leasehold.errors import InvalidRequest, NotAcquired
from tests.support.tables import each
from tests.unit.core.play import NAME, TTL, Play, Step

QUEUED = ops.Queued(0, 20_000, "host:7")
PARK = Step(ops.Park)


def own(rule: str, permits: int = 1, lasting: bool = True, leads: bool = False) -> OwnLease:
    """A lease of the one who asks."""
    return OwnLease(rule, tuple(range(permits)), lasting, leads)


def ask(rule: str, permits: int = 1, limit: int = 1, wait: float | None = None) -> flows.AcquireRequest:
    """What it asks for."""
    return flows.AcquireRequest(NAME, TTL, wait, rule=rule, permits=permits, limit=limit)


IN_THE_WAY = [
    (ask("mutex"), [own("mutex")], r"rlock\(\)"),
    (ask("mutex"), [own("write")], r"rlock\(\)"),
    (ask("mutex"), [own("read")], "deadlock"),
    (ask("write"), [own("read"), own("read")], "deadlock"),
    (ask("write"), [own("write")], r"reentrant=True.*rlock\(\)"),
    (ask("read"), [own("write")], r"reentrant=True.*rlock\(\)"),
    (ask("read"), [own("mutex")], r"use write\(\)"),
    (ask("write"), [own("mutex")], r"use write\(\)"),
    (ask("semaphore", 1, 2), [own("semaphore", 2)], r"has 2 of 2 permits.*resize\(\)"),
    (ask("semaphore", 2, 3), [own("semaphore"), OwnLease("semaphore", (1,), True)], "has 2 of 3 permits"),
    (ask("semaphore", 1, 9), [own("mutex")], "another primitive"),
    (ask("mutex"), [own("semaphore")], "another primitive"),
    (ask("mutex"), [own("mutex", leads=True)], "End that term"),
]
BESIDE = [
    (ask("mutex"), []),
    (ask("read"), [own("read")]),
    (ask("semaphore", 1, 3), [own("semaphore", 2)]),
]


@each(("asked", "held", "advice"), IN_THE_WAY)
def test_what_stands_in_its_own_way(asked: flows.AcquireRequest, held: Sequence[OwnLease], advice: str) -> None:
    """A lasting lease is an error that says what to do; one that may end is a hint when the wait is over."""
    limit = asked.limit
    error = self_deadlock(asked, held, limit)
    assert isinstance(error, InvalidRequest) and error.resource == NAME.text and NAME.text not in str(error)
    with pytest.raises(InvalidRequest, match=advice):
        raise error
    passing = [one._replace(lasting=False) for one in held]
    assert self_deadlock(asked, passing, limit) is None
    assert str(error).rpartition(". ")[2] in self_deadlock_hint(asked, passing, limit)


@each(("asked", "held"), BESIDE)
def test_what_does_not(asked: flows.AcquireRequest, held: Sequence[OwnLease]) -> None:
    """Others are in the way then, and they will go."""
    assert self_deadlock(asked, held, asked.limit) is None and self_deadlock_hint(asked, held, asked.limit) == ""


def test_a_lasting_lease_counts_and_a_passing_one_does_not() -> None:
    """One permit that stays and one that goes, of two: there will be one."""
    held = [own("semaphore"), OwnLease("semaphore", (1,), lasting=False)]
    assert self_deadlock(ask("semaphore", 1, 2), held, 2) is None
    assert self_deadlock(ask("semaphore", 2, 2), held, 2) is not None


class Oneself:
    """One who holds this, and is asked."""

    def __init__(self, *held: OwnLease) -> None:
        self.held = held
        self.asked = 0

    def own(self, name: Name) -> Sequence[OwnLease]:
        """What it holds."""
        assert name is NAME
        self.asked += 1
        return self.held


def acquire(play: Play, wanted: flows.AcquireRequest, oneself: Oneself) -> object:
    """The flow, to its end."""
    owners = iter([f"host:7:secret.{number}" for number in range(9)])
    return play.run(flows.acquire(wanted, lambda: next(owners), lambda: 0, play.now, None, oneself))


def test_it_leaves_the_queue_before_it_says_so() -> None:
    """Claim, queued, withdrawn: it never parks."""
    play = Play(Step(ops.Claim, QUEUED), Step(ops.Withdraw, ops.Withdrawn("waiting")))
    with pytest.raises(InvalidRequest, match="rlock"):
        acquire(play, ask("mutex"), Oneself(own("mutex")))


def test_nobody_asks_who_does_not_have_to_wait() -> None:
    """A grant, and one try, cost nothing more."""
    oneself = Oneself(own("mutex"))
    acquire(Play(Step(ops.Claim, ops.Granted(9, TTL))), ask("mutex"), oneself)
    with pytest.raises(NotAcquired) as busy:
        acquire(Play(Step(ops.Claim, ops.Busy("host:7", 20_000))), ask("mutex", wait=0), oneself)
    assert oneself.asked == 0 and "rlock" not in str(busy.value)


def test_a_wait_with_an_end_is_over_then() -> None:
    """It may be lucky, because its lease may be lost meanwhile; else the error names the way out."""
    script = [Step(ops.Claim, QUEUED), PARK, Step(ops.Beat, QUEUED, 9.0), Step(ops.Withdraw, ops.Withdrawn("waiting"))]
    with pytest.raises(NotAcquired, match=r"held by host:7.*rlock\(\)"):
        acquire(Play(*script), ask("mutex", wait=5), Oneself(own("mutex")))


def test_the_limit_of_the_others_counts() -> None:
    """It asks with a limit of 2, and the store says 5: there will be another permit."""
    queued = QUEUED._replace(limit=5)
    play = Play(Step(ops.Claim, queued), PARK, Step(ops.Beat, ops.Granted(9, TTL, (4,))))
    acquire(play, ask("semaphore", 1, 2), Oneself(own("semaphore", 2)))
