"""A Redis whose clock is set, back or forward and right again, under leases whose holders have another clock (trap 49).

Every step has a server of its own, and all of them are played at once: mostly one waits for renewals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from leasehold._core import ops
from leasehold.stores.redis import RedisStore
from tests.support.parties import Party, TaskParty, ThreadParty
from tests.support.servers.clock import WallClock
from tests.support.servers.redis import RedisServer
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TTL = 3
DEAD_MS = 1_000  # the ttl of what nobody renews
STEPS = (-1, -20, -3_600, -86_400, 1, 20, 3_600)
BACK = STEPS[:4]
PATIENCE = 15.0  # seconds that something may take which takes half a second: less than the steps that are looked for
KINDS: dict[str, Callable[[str, Any], Any]] = {
    "lock": lambda who, hold: hold.lock("lock", who, ttl=TTL).acquire(),
    "read": lambda who, hold: hold.rwlock("pages").read(ttl=TTL).acquire(),
    "write": lambda who, hold: hold.rwlock("page", who).write(ttl=TTL).acquire(),
    "permit": lambda who, hold: hold.semaphore("pool", limit=2, ttl=TTL).acquire(),
}


class Scene:
    """A server with its clock, and two who hold something of each kind: a thread, and a task."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.clock = WallClock()
        self.server = RedisServer(clock=self.clock).start()
        self.parties: dict[str, Party] = {
            "thread": ThreadParty(RedisStore(self.server.url)),
            "task": TaskParty(RedisStore(self.server.url)),
        }
        self.leases: dict[tuple[str, str], Any] = {}

    def take(self) -> None:
        """What is not held is acquired, with a higher fence than before."""
        for who, party in self.parties.items():
            for kind, acquire in KINDS.items():
                before = self.leases.get((who, kind))
                if before is None or before.state == "lost":
                    lease = party.do(partial(acquire, who))
                    assert before is None or lease.fence > before.fence
                    self.leases[who, kind] = lease

    def look(self, lease: Any) -> Any:
        """The grant as the server has it; None when it has not."""
        view = self.parties["thread"].hold._engine.store.execute(ops.Inspect(lease.resource))
        found = [one for one in view.holders if one.fence == lease.fence]
        assert all(one.expires_ms <= view.now_ms + TTL * 1000 for one in view.holders)
        return found[0] if found else None

    def deadlines(self) -> dict[tuple[str, str], float]:
        """Until when their holders believe in them; of those that are held."""
        return {key: lease.deadline for key, lease in self.leases.items() if self.look(lease) is not None}

    def lost(self) -> list[tuple[str, str]]:
        """Whose holders know that it is."""
        return [key for key, lease in self.leases.items() if lease.state == "lost"]

    def all_lost(self) -> bool:
        """Whether every holder knows that it holds no longer."""
        return len(self.lost()) == len(self.leases)

    def close(self) -> None:
        """Everybody goes, and then the server."""
        for party in self.parties.values():
            party.close()
        self.server.stop()


@pytest.fixture
def scenes() -> Iterator[Callable[..., list[Scene]]]:
    """A scene for each step."""
    with ExitStack() as stack:

        def make(*steps: int) -> list[Scene]:
            made = []
            for step in steps:
                made.append(Scene(step))
                stack.callback(made[-1].close)
            return made

        yield make


def renewed(scenes: list[Scene]) -> None:
    """Everything that they hold is renewed, and once more: so it goes on. And nobody believes in more than a ttl."""
    before = {scene.step: scene.deadlines() for scene in scenes}
    for scene in scenes:
        assert set(before[scene.step]) == set(scene.leases), scene.step

    def again(scene: Scene) -> bool:
        time.sleep(0.05)  # to look all the time would keep server and watchdogs busy
        now = scene.deadlines()
        twice = TTL / 2  # each renewal moves it by a quarter of the ttl or more
        return all(now.get(key, 0) >= end + twice or key in scene.lost() for key, end in before[scene.step].items())

    for scene in scenes:
        until(partial(again, scene), f"renewed after {scene.step} s", PATIENCE)
        assert not scene.lost(), scene.step
        assert all(0 < lease.remaining() <= TTL for lease in scene.leases.values())


def all_lost(scenes: list[Scene]) -> None:
    """Every holder knows that it holds no longer."""
    for scene in scenes:
        until(scene.all_lost, f"loss is known after {scene.step} s", PATIENCE)


def forget_everything(scenes: list[Scene]) -> None:
    """FLUSHALL: whoever held is told at the next renewal, and believes in nothing for longer."""
    for scene in scenes:
        scene.take()
        scene.server.client().flushall()
    all_lost(scenes)


def test_set_back_and_right_again(scenes: Callable[..., list[Scene]]) -> None:
    """Set back: leases go on being renewed. Put right, which is a leap forward: who lost is told, and takes anew."""
    played = scenes(*BACK)
    for scene in played:
        scene.take()
        scene.clock.set_off(scene.step)
    renewed(played)
    for scene in played:
        scene.clock.set_off(0)
    all_lost(played[1:])  # a second is less than what remains
    forget_everything(played)


def test_set_back_and_wiped(scenes: Callable[..., list[Scene]]) -> None:
    """The server forgets everything while its clock is behind: no holder believes in its lease for the step."""
    played = scenes(*BACK)
    for scene in played:
        scene.take()
        scene.clock.set_off(scene.step)
    renewed(played)
    forget_everything(played)
    for scene in played:
        scene.take()  # with higher fences, though the clock is behind: every coordinator has a floor
    renewed(played)


def test_set_forward_and_right_again(scenes: Callable[..., list[Scene]]) -> None:
    """Set forward: leases end, and their holders are told. What was taken then is renewed when it is put right."""
    played = scenes(*[step for step in STEPS if step > 0])
    for scene in played:
        scene.take()
        scene.clock.set_off(scene.step)
    all_lost(played[1:])
    for scene in played:
        scene.take()
        scene.clock.set_off(0)
        scene.take()
    renewed(played)
    forget_everything(played)


def test_a_dead_holder_blocks_for_a_ttl(scenes: Callable[..., list[Scene]]) -> None:
    """Not for the step: who waits is granted, also behind a waiter that is dead, and whatever the rule."""
    played = scenes(*BACK)
    waiting = []
    for scene in played:
        store = scene.parties["thread"].hold._engine.store
        for name, rule in (("alone", "mutex"), ("read", "read"), ("permits", "semaphore")):
            store.execute(ops.Claim(name, "dead:1:holder", DEAD_MS, rule=rule, limit=1))
            store.execute(ops.Claim(name, "dead:1:waiter", DEAD_MS, rule="write"))
        scene.clock.set_off(scene.step)
    for scene in played:
        thread, task = scene.parties["thread"], scene.parties["task"]
        thread.do(lambda hold: hold.inspect("permits"))  # from here on it lasts for a ttl
        waiting += [
            thread.start(lambda hold: hold.lock("alone", ttl=TTL).acquire(wait=60)),
            task.start(lambda hold: hold.rwlock("read").write(ttl=TTL).acquire(wait=60)),
        ]
    leases = [one.result(PATIENCE) for one in waiting]
    assert all(lease.state == "held" for lease in leases)
    for scene in played:
        permit = scene.parties["thread"].do(
            lambda hold: hold.semaphore("permits", limit=1, ttl=TTL).acquire(wait=PATIENCE)
        )
        assert permit.release()
