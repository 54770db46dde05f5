"""What single ops make of a Redis whose clock was set back, on a clock that stands still meanwhile (trap 49)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leasehold._core import ops
from leasehold.stores.redis import RedisStore
from leasehold.stores.redis.protocol import keys
from tests.support.servers.clock import OneClock
from tests.support.servers.redis import RedisServer

pytestmark = pytest.mark.slow

TTL = 3_000
DAY = 86_400
BACK = [-1, -20, -3_600, -DAY]
STILL = ("--jemalloc-bg-thread", "no")  # it would wait in vain for a clock that stands, and take a whole core for that
RULES = ["mutex", "read", "semaphore"]


@pytest.fixture(scope="module")
def turned() -> Iterator[tuple[OneClock, RedisServer]]:
    """A server, and its clock."""
    clock = OneClock()
    with RedisServer(None, *STILL, clock=clock) as server:
        yield clock, server


class Desk:
    """One client of that server, and who asks by it."""

    def __init__(self, clock: OneClock, server: RedisServer) -> None:
        server.wipe()
        self.clock = clock
        self.server = server
        self.client = server.client()
        self.store = RedisStore(server.url)

    def claim(self, owner: str, room: str = "job", **more: Any) -> Any:
        """One try, unless it is to wait."""
        return self.store.execute(ops.Claim(room, f"host:1:{owner}", TTL, **{"enqueue": False, **more}))

    def granted(self, owner: str, room: str = "job", **more: Any) -> int:
        """The fence."""
        reply = self.claim(owner, room, **more)
        assert isinstance(reply, ops.Granted), reply
        return reply.fence

    def drop_what_is_over(self) -> None:
        """A server does that sooner or later, and at once when a client looks at the key."""
        self.client.exists(*keys("job"))

    def scripts(self, kind: str) -> int:
        """How many were sent since the last reset: by name, or as text."""
        return int(self.client.info("commandstats").get(f"cmdstat_{kind}", {"calls": 0})["calls"])

    def ends(self, *parts: str) -> dict[str, int]:
        """For how many ms the server still keeps these keys."""
        found = {str(key).rstrip("'").rpartition(":")[2]: self.client.pttl(key) for key in self.client.keys("*")}
        return {part: found[part] for part in parts if part in found}


@pytest.fixture
def desk(turned: tuple[OneClock, RedisServer]) -> Iterator[Desk]:
    """At an empty server."""
    desk = Desk(*turned)
    yield desk
    desk.store.close()


@pytest.mark.parametrize("step", BACK)
def test_a_lock_delay_outlives_a_key_that_was_gone_before(desk: Desk, step: int) -> None:
    """A holder dies, its key ends and nobody sees it, the clock is set back: the next one waits all the same."""
    desk.granted("a", delay_ms=10_000)
    desk.clock.advance(TTL / 1000)
    desk.drop_what_is_over()
    desk.clock.step_wall(step)
    assert desk.claim("b") == ops.Busy("", 10_000)
    desk.clock.advance(9.999)
    assert desk.claim("b") == ops.Busy("", 1)
    desk.clock.advance(0.001)
    desk.granted("b")


@pytest.mark.parametrize("step", BACK)
def test_at_least_outlives_a_key_that_was_gone_before(desk: Desk, step: int) -> None:
    """The same for a minimum hold: at least what was left of it, and never more than it was."""
    fence = desk.granted("a")
    desk.store.execute(ops.Renew("job", "host:1:a", fence, TTL, closed_ms=20_000))
    desk.clock.advance(TTL / 1000)
    desk.drop_what_is_over()
    desk.clock.step_wall(step)
    reply = desk.claim("b")
    assert isinstance(reply, ops.Busy) and 17_000 <= reply.retry_in_ms <= 20_000
    desk.clock.advance(20)
    desk.granted("b")


def test_a_deletion_by_hand_opens_no_door(desk: Desk) -> None:
    """It is no clean end, whatever the clock does."""
    desk.granted("a", delay_ms=10_000)
    desk.client.delete("lock:v1:{job}:owner")
    assert desk.claim("b") == ops.Busy("", 10_000)
    desk.clock.advance(10)
    desk.granted("b")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("step", BACK)
def test_renewals_of_many_go_on_in_one_script(desk: Desk, step: int, rule: str) -> None:
    """What is found too far ahead costs a turn for each resource that is shared, and none for the others, which are not
    renewed with them."""
    rooms = [f"job:{number if rule == 'mutex' else 1}" for number in range(40)]
    fences = [desk.granted(str(number), room, rule=rule, limit=50) for number, room in enumerate(rooms)]
    renewals = [ops.Renew(room, f"host:1:{number}", fences[number], TTL) for number, room in enumerate(rooms)]
    desk.clock.advance(0.5)
    desk.clock.step_wall(step)
    desk.client.config_resetstat()
    assert desk.store.execute_many(renewals) == [ops.Renewed(TTL)] * 40
    most = 4 if rule != "mutex" else 4 + 2 * len(rooms)  # scripts, each of which the server may not know
    assert desk.scripts("evalsha") + desk.scripts("eval") <= most
    for room in {*rooms}:
        view: Any = desk.store.execute(ops.Inspect(room))
        assert {one.expires_ms - view.now_ms for one in view.holders} == {TTL}
    assert max(desk.ends("owner").values()) <= TTL


def test_a_renewal_from_before_an_extend_shortens_nothing(desk: Desk) -> None:
    """Also in a batch, and also when the clock was set back: an extend counts from where it is found (trap 44)."""
    fence = desk.granted("a")
    extend, late = (
        ops.Renew("job", "host:1:a", fence, ttl_ms, exact=ttl_ms > TTL, number=number)
        for ttl_ms, number in ((60_000, 2), (TTL, 1))
    )
    desk.store.execute(extend)
    desk.clock.step_wall(-DAY)
    assert desk.store.execute_many([late, late]) == [ops.Renewed(60_000)] * 2


def test_a_missing_script_is_sent_once(desk: Desk) -> None:
    """However many ops of a batch want it: a text is long, and a renewal has little time."""
    fences = [desk.granted(str(number), f"job:{number}") for number in range(40)]
    desk.server.ask("SCRIPT FLUSH")
    desk.client.config_resetstat()
    exact = [ops.Renew(f"job:{number}", f"host:1:{number}", fences[number], TTL, True, 1) for number in range(40)]
    assert desk.store.execute_many(exact) == [ops.Renewed(TTL)] * 40
    assert desk.scripts("eval") == 1


@pytest.mark.parametrize("rule", RULES)
def test_a_look_puts_every_key_right(desk: Desk, rule: str) -> None:
    """Of a resource that is held, waited for and watched: no key keeps anybody out, or stays, for the step."""
    desk.granted("a", rule=rule)
    desk.claim("b", rule="write", enqueue=True)
    desk.store.execute(ops.Watch("job", "host:1:w", "nobody"))
    desk.clock.step_wall(-DAY)
    assert min(desk.ends("owner", "meta", "holders", "queue", "waiters", "watchers").values()) > DAY * 1000
    desk.store.execute(ops.Inspect("job"))
    ends = desk.ends("owner", "meta", "holders", "queue", "waiters", "watchers")
    assert ends.pop("owner") <= TTL
    assert max(ends.values()) <= TTL + 120_000


def test_a_plain_client_waits_until_one_of_ours_has_looked(desk: Desk) -> None:
    """One that knows SET NX alone reads no record: it waits for the step, or for a ttl after the first look."""
    desk.granted("a")
    desk.clock.step_wall(-DAY)
    desk.clock.advance(TTL / 1000)
    plain: dict[str, Any] = {"name": "lock:v1:{job}:owner", "value": "me", "nx": True, "px": 5_000}
    assert desk.client.set(**plain) is None
    desk.store.execute(ops.Inspect("job"))
    desk.clock.advance(TTL / 1000)
    assert desk.client.set(**plain)


def holders(desk: Desk) -> tuple[Any, ...]:
    """As an operator sees them."""
    view: Any = desk.store.execute(ops.Inspect("job"))
    found: tuple[Any, ...] = view.holders
    return found


def test_a_record_that_is_written_again_in_its_last_millisecond(desk: Desk) -> None:
    """It ends when it was to end, and not a millisecond later."""
    desk.granted("a")
    (before,) = holders(desk)
    desk.clock.advance((TTL - 1) / 1000)
    desk.store.execute(ops.Watch("job", "host:1:watcher", "lock:v1:push:watcher"))  # the record says that one watches
    (after,) = holders(desk)
    assert after.expires_ms == before.expires_ms
    desk.clock.advance(0.001)
    assert holders(desk) == ()
