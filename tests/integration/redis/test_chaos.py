"""Everything at once: a network that is cut, held, deaf or silent at random, and parties who go on all the same."""

from __future__ import annotations

import os
import random
import threading
import time
from itertools import pairwise
from typing import NamedTuple

import pytest

from leasehold import LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold.stores.redis.protocol import keys
from tests.support.parties import Party
from tests.support.redis.stage import SLACK, Stage, now
from tests.support.waiting import PATIENCE
from tests.support.workers.crew import report

pytestmark = pytest.mark.slow

TTL = 0.6
LONGEST = 1.0  # what an extend may make of it
EXPECTED = (LeaseLost, OutcomeUnknown, StoreUnavailable)


class Inside(NamedTuple):
    """Somebody's time inside, as far as he may have acted on it."""

    since: float
    till: float
    fence: int
    owner: str


class Player(threading.Thread):
    """Acquires, works and gives back, again and again, whatever happens."""

    def __init__(self, party: Party, seed: int) -> None:
        super().__init__(daemon=True)
        self.party = party
        self.chance = random.Random(seed)
        self.turns: list[Inside] = []
        self.errors: dict[str, int] = {}
        self.wrong: list[BaseException] = []
        self.enough = False
        self.start()

    def run(self) -> None:
        """Until told otherwise."""
        while not self.enough:
            try:
                self.turn()
            except EXPECTED as error:
                name = type(error).__name__
                self.errors[name] = self.errors.get(name, 0) + 1
                time.sleep(0.005)
            except BaseException as error:
                self.wrong.append(error)
                return

    def turn(self) -> None:
        """One lease from its beginning to its end."""
        chance, wait = self.chance, self.chance.choice([0, 0.1, 1])
        lease = self.party.do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=wait))
        if lease is None:
            return
        since = now()
        try:
            time.sleep(chance.choice([0, 0, 0.01, 0.3]))
            if chance.random() < 0.2:
                self.party.do(lambda _: lease.extend(chance.choice([0.3, LONGEST])))
        finally:
            self.turns.append(Inside(since, min(now(), lease.deadline), lease.fence, lease.owner))
            self.party.do(lambda _: lease.release())


def nemesis(stage: Stage, chance: random.Random) -> str:
    """One piece of bad luck, and the end of it."""
    proxy = stage.proxy
    what = chance.choice(["cut", "hold_requests", "hold_replies", "deaf", "refuse", "blackhole", "flush", "kill"])
    pause = chance.uniform(0.02, 0.4)
    if what == "cut":
        proxy.cut()
    elif what == "deaf":
        proxy.drop_replies(chance.randrange(1, 4))
    elif what == "refuse":
        proxy.refuse()
        proxy.cut()
        time.sleep(pause)
        proxy.accept()
    elif what == "flush":
        stage.look.client.script_flush()
    elif what == "kill":
        stage.look.run("CLIENT KILL TYPE pubsub")
    else:
        getattr(proxy, what)()
        time.sleep(pause)
        proxy.release()
    return what


def play(stage: Stage, seconds: float, seed: int) -> None:
    """Let them play, then heal everything, and judge."""
    report(f"seed {seed}")
    stage.url += "?socket_connect_timeout=0.3"
    chance = random.Random(seed)
    players = [Player(stage.party(flavour=flavour), seed + n) for n, flavour in enumerate(["sync", "asyncio"] * 2)]
    end, done = now() + seconds, []
    while now() < end or (not eventful(players, seconds) and now() < end + PATIENCE):
        time.sleep(chance.uniform(0.02, 0.2))
        done.append(nemesis(stage, chance))
    stage.proxy.release()
    for player in players:
        player.enough = True
    for player in players:
        player.join(PATIENCE)
        assert not player.is_alive(), "somebody is stuck"
    healed = now()
    assert [error for player in players for error in player.wrong] == []
    judge(sorted(turn for player in players for turn in player.turns))
    newcomer(stage, healed)
    errors: dict[str, int] = {}
    for player in players:
        errors |= {name: errors.get(name, 0) + count for name, count in player.errors.items()}
    turns = sum(len(player.turns) for player in players)
    report(f"{turns} turns, {len(done)} troubles, {errors}, quiet after {now() - healed:.2f} s")
    assert eventful(players, seconds)


def eventful(players: list[Player], seconds: float) -> bool:
    """Enough has happened to judge by. On a busy machine that takes longer."""
    return sum(len(player.turns) for player in players) > seconds and any(player.errors for player in players)


def newcomer(stage: Stage, healed: float) -> None:
    """Whoever comes after it has the lock by the ttl and a beat, and nothing stays for good: a place in the queue whose
    owner could not withdraw it in time is dead, and kept for half a minute at most."""
    lease = stage.other().do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=PATIENCE))
    assert lease is not None and now() - healed < LONGEST * 4 / 3 + SLACK
    assert stage.look.queue() == [] or 0 < stage.look.client.pttl(keys("job")[2]) <= 30_000


def judge(turns: list[Inside]) -> None:
    """I1: nobody was inside with another. I2: fences grow. An owner has one grant in its life. Who came to run when its
    time was over was never inside."""
    for one, other in pairwise(turn for turn in turns if turn.since < turn.till):
        assert one.till <= other.since, f"{one} and {other} were inside together"
        assert one.fence < other.fence, f"{other.fence} came after {one.fence}"
    assert len({turn.owner for turn in turns}) == len(turns)


@pytest.mark.usefixtures("hasty")
def test_a_bad_network(async_stage: Stage) -> None:
    """Seconds of it: nobody is inside with another, fences grow, and a newcomer has it soon after."""
    play(async_stage, 2, seed=1)


@pytest.mark.soak
@pytest.mark.usefixtures("hasty")
def test_a_bad_network_for_long(async_stage: Stage) -> None:
    """Minutes of it. LEASEHOLD_SEED replays the choices."""
    play(async_stage, 180, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))


def test_two_inside_are_seen() -> None:
    """The judge can say no (I18)."""
    fine = [Inside(1, 2, 1, "a"), Inside(2, 3, 2, "b")]
    judge(fine)
    for wrong in (fine[1]._replace(since=1.9), fine[1]._replace(fence=1), fine[1]._replace(owner="a")):
        with pytest.raises(AssertionError):
            judge([fine[0], wrong])
