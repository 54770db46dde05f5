"""One clock for the test and for real servers, exact to the microsecond."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from leasehold._core.types import Instant
from tests.support.servers.clock import OneClock
from tests.support.servers.redis import EVERY, RedisServer

pytestmark = pytest.mark.slow

WALL = 1_700_000_000.123_457
BOTH = "local time = redis.call('TIME') return {time[1], time[2], redis.call('PTTL', KEYS[1])}"


@pytest.fixture
def clock() -> OneClock:
    """A clock that stands still."""
    return OneClock(wall=WALL)


@pytest.fixture(params=EVERY, ids=lambda find: find.__name__)
def client(request: pytest.FixtureRequest, clock: OneClock) -> Iterator[redis.Redis]:
    """A client of a server that has our clock."""
    find: Callable[[], str] = request.param
    with RedisServer(executable=find(), clock=clock) as server:
        yield server.client()


def microseconds(reply: Any) -> int:
    """What TIME says, in one number."""
    return int(reply[0]) * 1_000_000 + int(reply[1])


def test_the_server_sees_every_turn(client: redis.Redis, clock: OneClock) -> None:
    """TIME is the clock's wall, by itself, in a transaction and in a script, at once after each turn."""
    script = client.register_script("return redis.call('TIME')")
    for turn in (0, 0.000_001, 0.000_999, 0.001, 1, -0.000_001, 3_600.5, -7_200) * 25:
        clock.step_wall(turn)
        with client.pipeline() as transaction:
            transaction.time()
            said = [client.time(), *transaction.execute(), script()]
        assert [microseconds(one) for one in said] == [clock.instant().wall_us] * 3


def test_a_key_lives_until_its_millisecond_is_over(client: redis.Redis, clock: OneClock) -> None:
    """With PXAT t it is there at t, to the last microsecond, and not at t + 1 ms; by itself and in a script."""
    script = client.register_script(BOTH)
    for _ in range(50):
        clock.step_wall((1_000_000 - clock.instant().wall_us % 1_000) / 1_000_000)  # to the start of a millisecond
        client.set("key", "value", pxat=clock.instant().ms + 20)
        clock.advance(0.020)
        assert client.exists("key") and client.pttl("key") == 0 and script(keys=["key"])[2] == 0
        clock.advance(0.000_999)
        assert client.exists("key") and script(keys=["key"])[2] == 0
        clock.advance(0.000_001)
        assert script(keys=["key"])[2] == -2 and client.pttl("key") == -2 and not client.exists("key")


def test_a_script_sees_time_and_expiry_of_one_moment(client: redis.Redis, clock: OneClock) -> None:
    """A key that a script gives 10 ms has 10 ms, whatever real time passes."""
    script = client.register_script(f"redis.call('SET', KEYS[1], '', 'PX', 10) {BOTH}")
    for _ in range(50):
        clock.advance(0.012_345)
        *said, left = script(keys=["key"])
        assert microseconds(said) == clock.instant().wall_us and left == client.pttl("key") == 10


def test_time_stands_still(client: redis.Redis, clock: OneClock) -> None:
    """50 ms of real time are nothing, for the clock and for a key."""
    client.set("key", "value", px=1)
    before = client.time(), clock.instant(), clock.now()
    time.sleep(0.05)
    assert (client.time(), clock.instant(), clock.now()) == before
    assert client.pttl("key") == 1


def test_the_wall_steps_back(client: redis.Redis, clock: OneClock) -> None:
    """Keys live longer by as much, as they do on a real server; later keys follow the new time."""
    client.set("old", "value", px=1_000)
    clock.step_wall(-3_600)
    assert client.pttl("old") == 3_601_000
    client.set("new", "value", px=1_000)
    clock.advance(1.001)
    assert client.exists("old") and not client.exists("new")


def test_the_server_itself_lives_on(client: redis.Redis, clock: OneClock) -> None:
    """Its own rounds need no wall clock: dead keys are removed though nobody asks for them."""
    client.set("key", "value", px=10)
    clock.advance(0.020)
    end = time.monotonic() + 60
    while client.dbsize():
        assert time.monotonic() < end, "the server sweeps"
        time.sleep(0.01)


def test_a_restarted_server_keeps_the_clock(clock: OneClock) -> None:
    """Also one that crashed."""
    with RedisServer(clock=clock) as server:
        server.kill()
        clock.advance(5)
        server.start()
        assert microseconds(server.client().time()) == clock.instant().wall_us


def test_two_servers_see_the_same(clock: OneClock) -> None:
    """A clock is for as many servers as there are, and another clock is another time."""
    other = OneClock(wall=WALL + 31)
    with RedisServer(clock=clock) as one, RedisServer(clock=clock) as two, RedisServer(clock=other) as ahead:
        clock.advance(0.000_001)
        times = [microseconds(server.client().time()) for server in (one, two, ahead)]
    assert times == [clock.instant().wall_us, clock.instant().wall_us, other.instant().wall_us]
    assert times[2] - times[0] == 30_999_999


def test_one_line_of_time() -> None:
    """The store's milliseconds are the wall's; local deadlines pass with ``advance`` alone."""
    clock = OneClock(start=5.0, wall=100.000_999)
    assert clock.instant() == Instant(100_000, 100_000_999)
    clock.advance(0.000_001)
    assert clock.instant() == Instant(100_001, 100_001_000) and clock.now() == 5.000_001
    clock.step_wall(-1)
    assert clock.instant() == Instant(99_001, 99_001_000) and clock.now() == 5.000_001
    assert clock.nap(5.0) == 0.0 and clock.nap(6.0) > 0.0


def test_a_clock_that_nobody_has_leaves_no_file() -> None:
    """Random tests make thousands."""
    path = OneClock().path
    assert not path.exists()
