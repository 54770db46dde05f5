"""Replies that are lost, late, doubled or errors, to the first claim and to the release of ``with hold.lock(...)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import leasehold
from leasehold import StoreUnavailable
from tests.support.faults.aftermath import expect_sound
from tests.support.faults.path import Path
from tests.support.faults.user import KIND, LoopUser, Use, familiar
from tests.support.lock import elsewhere
from tests.support.redis.stage import called
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.tables import each
from tests.support.waiting import until

WARM = 120  # uses after which the path is what it stays
HASTE = 0.3  # seconds that a user waits for a reply
REQUESTS = {"claim": 1, "release": 2}  # those of a use, in order
LOST: dict[str, Verdict] = {
    "done, and the reply is lost": "drop_reply",
    "done, and the reply is late": "hold_reply",
    "done, and the connection breaks": "cut_reply",
    "not done, and the connection breaks": "cut_request",
    "done late, and the reply is late": "hold",
    "done, and answered twice": "double_reply",
    "not done, and the script is unknown": b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
    "an error that may have done something": b"-ERR something went wrong\r\n",
}
REFUSED: dict[str, Verdict] = {
    "OOM": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "READONLY": b"-READONLY You can't write against a read only replica.\r\n",
    "BUSY": b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
    "LOADING": b"-LOADING Redis is loading the dataset in memory\r\n",
    "MISCONF": b"-MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist.\r\n",
    "NOPERM": b"-NOPERM User default has no permissions to run the 'evalsha' command\r\n",
}


class Wire:
    """A network that does something to the next request of one kind, once."""

    def __init__(self, proxy: Proxy) -> None:
        self.url = f"{proxy.url}?socket_timeout={HASTE}"
        self._plan: list[tuple[str, Verdict]] = []
        self._proxy = proxy
        proxy.on_request = self._judge

    def harm(self, op: str, verdict: Verdict) -> None:
        """The next such request fares so."""
        self._plan = [(op, verdict)]

    @property
    def connections(self) -> int:
        """How many were made."""
        return self._proxy.count

    def done(self) -> bool:
        """Was that request sent?"""
        return not self._plan

    def heal(self) -> None:
        """What is late arrives now."""
        assert self.done(), "the request was never sent"
        self._proxy.release()
        self._proxy.settle()

    def _judge(self, chunk: bytes) -> Verdict:
        if self._plan and self._plan[0][0] in called(chunk):
            return self._plan.pop()[1]
        return "pass"


@pytest.fixture
def wire(proxy: Proxy) -> Wire:
    """In front of the shared Redis."""
    return Wire(proxy)


@pytest.fixture
def other(redis_url: str) -> Iterator[leasehold.Leasehold]:
    """Another user's coordinator, on a good network."""
    with leasehold.connect(redis_url) as other:
        yield other


class Victim:
    """A user behind that network."""

    def __init__(self, user: Any) -> None:
        self.user = user
        self._number = 0
        for _ in range(WARM):
            user.use(0)

    def use(self, wire: Wire, op: str, verdict: Verdict) -> Use:
        """One use, whose request of that kind fares so. Until it leaves, the path is that of a use before it, which
        nothing disturbed: the path of any user."""
        self._number = familiar(self.user, self._number + 1)
        plain, path = Path(), Path()
        self.user.use(self._number, plain)
        wire.harm(op, verdict)
        use: Use = self.user.use(self._number, path)
        wire.heal()
        assert path.until_request(REQUESTS[op]) == plain.until_request(REQUESTS[op])
        return use


@pytest.fixture
def victim(new_user: Callable[[str], Any], wire: Wire) -> Iterator[Victim]:
    """In each flavour."""
    with closing(new_user(wire.url)) as user:
        yield Victim(user)


@each("fault", LOST)
@pytest.mark.parametrize("op", REQUESTS)
def test_a_reply_that_cannot_be_trusted(wire: Wire, victim: Victim, other: Any, op: str, fault: str) -> None:
    """The body runs once, with a lease; nothing is raised, and what is in doubt is cleared up in the background."""
    use = victim.use(wire, op, LOST[fault])
    assert len(use.fences) == 1 and use.raised is None
    expect_sound(victim.user, other, use)


@each("fault", REFUSED)
def test_a_claim_that_is_refused(wire: Wire, victim: Victim, other: Any, fault: str) -> None:
    """StoreUnavailable: nothing was taken, and the body does not run."""
    use = victim.use(wire, "claim", REFUSED[fault])
    assert use.fences == [] and use.raised is StoreUnavailable
    expect_sound(victim.user, other, use)


def test_refusals_cost_no_connections(wire: Wire, victim: Victim) -> None:
    """A connection whose claim was refused is used again."""
    before = wire.connections
    for _ in range(5):
        victim.use(wire, "claim", REFUSED["OOM"])
    assert wire.connections <= before + 1, "only that of the watchdog may be opened meanwhile"


@each("fault", REFUSED)
def test_a_release_that_is_refused(wire: Wire, victim: Victim, other: Any, fault: str) -> None:
    """Nothing is raised: it goes on in the background."""
    use = victim.use(wire, "release", REFUSED[fault])
    assert len(use.fences) == 1 and use.raised is None
    expect_sound(victim.user, other, use)


def test_another_call_meanwhile(wire: Wire, victim: Victim, other: leasehold.Leasehold) -> None:
    """While a reply is late, other threads and tasks of the same coordinator get replies of their own."""
    user, seen = victim.user, []
    for number in (1001, 1002, 1003):
        familiar(user, number)

    def body(lease: Any) -> None:
        holder = other.inspect(lease.resource).holder
        seen.append((lease.resource, holder is not None and holder.fence == lease.fence))

    wire.harm("claim", "hold_reply")
    if isinstance(user, LoopUser):
        user.loop.run_until_complete(user.together([1001, 1002, 1003], body))
    else:
        with elsewhere(lambda: user.use(1001, body=body)) as late:
            until(wire.done, "its claim is under way")
            user.use(1002, body=body)
            user.use(1003, body=body)
            late()
    wire.heal()
    assert sorted(seen) == [(f"{KIND}:{number}", True) for number in (1001, 1002, 1003)]
    for number in (1001, 1002, 1003):
        expect_sound(user, other, Use(number, []))
