"""Everything at once: a network and a server in all kinds of trouble, and parties who go on all the same."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

import leasehold
from leasehold import LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold.stores.postgresql.store import PostgresStore
from tests.integration.postgresql.network import Network
from tests.support.parties import FLAVOURS, Party
from tests.support.servers.postgres import PostgresServer
from tests.support.waiting import PATIENCE
from tests.support.workers.crew import report
from tests.support.workers.journal import now

pytestmark = pytest.mark.slow

TTL = 1.0  # seconds
EXPECTED = (LeaseLost, OutcomeUnknown, StoreUnavailable)


class Inside(NamedTuple):
    """Somebody's time inside, as far as it may have acted on it."""

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
        self.errors: Counter[str] = Counter()
        self.wrong: list[BaseException] = []
        self.enough = False
        self.start()

    def run(self) -> None:
        """Until told otherwise."""
        while not self.enough:
            try:
                self.turn()
            except EXPECTED as error:
                self.errors[type(error).__name__] += 1
                time.sleep(0.005)
            except BaseException as error:  # the test reports it
                self.wrong.append(error)
                return

    def turn(self) -> None:
        """One lease from its beginning to its end."""
        wait = self.chance.choice([0, 0.1, 1])
        lease = self.party.do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=wait))
        if lease is None:
            return
        since = now()
        try:
            time.sleep(self.chance.choice([0, 0, 0.01, 0.3]))
            if self.chance.random() < 0.2:
                self.party.do(lambda _: lease.extend(TTL))
        finally:
            self.turns.append(Inside(since, min(now(), lease.deadline), lease.fence, lease.owner))
            self.party.do(lambda _: lease.release())


class Nemesis:
    """Brings bad luck over a server and the network before it."""

    def __init__(self, server: PostgresServer, network: Network, seed: int) -> None:
        self._server = server
        self._network = network
        self._chance = random.Random(seed)
        self.done: Counter[str] = Counter()

    def strike(self) -> None:
        """A pause, one piece of it, and its end."""
        time.sleep(self._chance.uniform(0.05, 0.4))
        kinds: list[Callable[[float], None]] = [self.cut, self.hold, self.deafen, self.refuse, self.end_sessions]
        kinds += [self.blackhole, self.freeze, self.kill, self.freeze_backend]
        kind = self._chance.choice(kinds)
        kind(self._chance.uniform(0.02, 0.6))
        self.done[kind.__name__] += 1

    def cut(self, _: float) -> None:
        """Every connection is closed."""
        self._network.cut()

    def hold(self, pause: float) -> None:
        """Requests or replies are late."""
        self._chance.choice([self._network.hold_requests, self._network.hold_replies])()
        time.sleep(pause)
        self._network.release()

    def deafen(self, _: float) -> None:
        """Some replies are lost, and their connections with them."""
        self._network.cut_replies(self._chance.randrange(1, 4))

    def refuse(self, pause: float) -> None:
        """Nobody is there for a while."""
        self._network.refuse()
        self._network.cut()
        time.sleep(pause)
        self._network.accept()

    def blackhole(self, pause: float) -> None:
        """A firewall forgets every connection."""
        self._network.blackhole()
        time.sleep(pause)
        self._network.release()
        self._network.cut()

    def end_sessions(self, _: float) -> None:
        """An administrator ends all sessions."""
        for backend in self._server.backends():
            self._server.end_backend(backend)

    def freeze(self, pause: float) -> None:
        """The server stands still."""
        self._server.freeze()
        time.sleep(pause)
        self._server.thaw()

    def freeze_backend(self, pause: float) -> None:
        """One session stands still, with the locks that it has."""
        backends = self._server.backends()
        if backends:
            victim = self._chance.choice(backends)
            try:
                self._server.freeze_backend(victim)
            except ProcessLookupError:  # it has ended meanwhile
                return
            time.sleep(pause)
            self._server.thaw_backend(victim)

    def kill(self, _: float) -> None:
        """The server crashes."""
        self._server.kill()
        self._server.start()


def play(server: PostgresServer, seconds: float, seed: int) -> None:
    """Let them play, then heal everything, and judge."""
    report(f"seed {seed}")
    with ExitStack() as stack:
        network = stack.enter_context(Network(server.main))
        nemesis = Nemesis(server, network, seed)
        with leasehold.connect(server.url) as first:
            first.lock("job").locked()  # the table is there
        players = []
        for number, flavour in enumerate(["sync", "asyncio"] * 2):
            party = FLAVOURS[flavour](PostgresStore(network.url))
            stack.callback(party.close)
            players.append(Player(party, seed + number))
        end = now() + seconds
        while now() < end or (not eventful(players, seconds) and now() < end + PATIENCE):
            nemesis.strike()
        network.heal()
        for player in players:
            player.enough = True
        for player in players:
            player.join(PATIENCE)
            assert not player.is_alive(), "somebody is stuck"
        assert [error for player in players for error in player.wrong] == []
        turns = sorted(turn for player in players for turn in player.turns)
        judge(turns)
        newcomer(server)
        errors: Counter[str] = sum([player.errors for player in players], Counter())
        report(f"{len(turns)} turns, {dict(nemesis.done)}, {dict(errors)}")
        assert eventful(players, seconds)


def eventful(players: list[Player], seconds: float) -> bool:
    """Enough has happened to judge by."""
    return sum(len(player.turns) for player in players) > seconds and any(player.errors for player in players)


def newcomer(server: PostgresServer) -> None:
    """Whoever comes after it gets the lock, and nobody is left in the queue for good."""
    with leasehold.connect(server.url) as hold:
        lease: Any = hold.lock("job", ttl=TTL).acquire(wait=PATIENCE)
        assert lease is not None and lease.release() is True


def judge(turns: list[Inside]) -> None:
    """I1: nobody was inside with another. I2: fences grow. An owner has one grant in its life."""
    for one, other in pairwise(turn for turn in turns if turn.since < turn.till):
        assert one.till <= other.since, f"{one} and {other} were inside together"
        assert one.fence < other.fence, f"{other.fence} came after {one.fence}"
    assert len({turn.owner for turn in turns}) == len(turns)


def test_trouble_of_every_kind(own_postgres: Callable[..., PostgresServer]) -> None:
    """Seconds of it: nobody is inside with another, fences grow, and a newcomer gets the lock."""
    play(own_postgres(), 3, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_trouble_of_every_kind_for_long(own_postgres: Callable[..., PostgresServer]) -> None:
    """Minutes of it. LEASEHOLD_SEED replays the choices."""
    seconds = float(os.environ.get("LEASEHOLD_SECONDS") or 180)
    play(own_postgres(), seconds, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))


def test_two_inside_are_seen() -> None:
    """The judge can say no (I18)."""
    fine = [Inside(1, 2, 1, "a"), Inside(2, 3, 2, "b")]
    judge(fine)
    for wrong in (fine[1]._replace(since=1.9), fine[1]._replace(fence=1), fine[1]._replace(owner="a")):
        with pytest.raises(AssertionError):
            judge([fine[0], wrong])
