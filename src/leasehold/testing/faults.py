"""What a seed means: the clients, their habits, and everything that goes wrong. Drawn once, before time starts.

There are four kinds of seeds. ``quiet``: nothing goes wrong, so the order of grants must be perfect. ``gentle``:
no packet is lost, but clients freeze, are cancelled and give up, and the server stalls; nothing may be left behind.
``stormy``: a random selection of all faults. ``wiped``: as stormy, and the store loses its memory, so exclusion is
off the table while fences and guards must still hold.

Faults end at ``calm_at``. From then on everything must heal by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

KINDS = ("quiet", "gentle", "stormy", "stormy", "wiped", "stormy", "stormy", "stormy")
CLOCK_ERROR = 0.0049  # a client and the server together stay within the 1 % that policy.drift allows
LONGEST_HELD = 20.0  # seconds in a socket buffer; far below a tombstone's life of a minute


class Fate(NamedTuple):
    """What happens to one call, in seconds."""

    deliver_after: float | None  # None: the request is lost
    reply_after: float | None  # from the delivery; None: the reply is lost
    reset_after: float | None  # the connection breaks, so the client learns early that it will never know
    again_after: float | None = None  # the request is delivered twice; nobody reads the second reply
    refused: bool = False  # a definite failure: nothing was sent


class Weather(NamedTuple):
    """The network: how likely each fault is for one packet, and how long slow things take."""

    refused: float = 0.0
    request_lost: float = 0.0
    reply_lost: float = 0.0
    held: float = 0.0  # the request sits in a buffer long after its sender gave up
    duplicated: float = 0.0
    slow: float = 0.0
    push_lost: float = 0.0
    push_slow: float = 0.0
    slowness: float = 0.01  # seconds

    def trip(self, random: Random, slow: float) -> float:
        seconds = 0.0002 + random.random() * 0.002
        return seconds + random.random() * self.slowness if slow and random.random() < slow else seconds

    def fate(self, random: Random) -> Fate:
        there, back = self.trip(random, self.slow), self.trip(random, self.slow)
        if self == CALM:
            return Fate(there, back, None)
        chance = random.random
        if chance() < self.refused:
            return Fate(None, None, there, refused=True)
        reset = chance() * self.slowness if chance() < 0.8 else None
        if chance() < self.request_lost:
            return Fate(None, None, reset)
        if chance() < self.held:
            held = min(chance() * 5 * self.slowness if chance() < 0.7 else chance() * 30, LONGEST_HELD)
            return Fate(there + held, back, reset)
        again = there + chance() * 3 * self.slowness if chance() < self.duplicated else None
        if chance() < self.reply_lost:
            return Fate(there, None, reset, again)
        return Fate(there, back, None, again)


CALM = Weather()


class Action(NamedTuple):
    """Something that is done to the world at a moment: pause, cancel, crash, vanish, stall, wipe, evict."""

    at: float
    kind: str
    seconds: float
    pick: float  # 0..1, chooses the victim


@dataclass(frozen=True, slots=True)
class Habits:
    """How one client behaves."""

    name: str
    resources: tuple[str, ...]
    ttl_ms: int
    rate: float  # of its clock against true time
    offset: float
    pushable: bool = True
    renews: bool = True
    at_least_ms: int = 0
    delay_ms: int = 0
    max_hold: float | None = None
    extends: float = 0.0  # how likely at each step
    dozes: float = 0.0  # how likely to freeze between the check and the write
    impatient: float = 0.0  # how likely to wait for a bounded time, or not at all
    work: float = 0.1  # seconds in all, at most
    pause: float = 0.1  # seconds between two turns, at most
    insists: bool = True  # repeats a release that went unanswered


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides beforehand."""

    seed: int
    kind: str
    weather: Weather
    clients: tuple[Habits, ...]
    actions: tuple[Action, ...]
    calm_at: float
    server_rate: float

    @property
    def longest_ttl_ms(self) -> int:
        """Also counts what extend may ask for."""
        return max(3 * one.ttl_ms for one in self.clients)


def draw_plan(seed: int) -> Plan:
    random = Random(f"plan {seed}")
    kind = KINDS[seed % len(KINDS)]
    base = random.choice((0.3, 0.6, 1.2) if kind != "quiet" else (0.3, 1.2, 4.0))
    calm_at = base * random.uniform(6, 12)
    names = ("r1",) if random.random() < 0.8 else ("r1", "r2")
    clients = tuple(draw_habits(random, f"c{n}", names, base, kind) for n in range(random.randint(2, 4)))
    weather = draw_weather(random, base) if kind in ("stormy", "wiped") else CALM
    actions = draw_actions(random, kind, base, calm_at)
    return Plan(seed, kind, weather, clients, actions, calm_at, clock_rate(random))


def clock_rate(random: Random) -> float:
    return 1 + random.choice((-1, 1, random.uniform(-1, 1))) * CLOCK_ERROR


def draw_habits(random: Random, name: str, names: tuple[str, ...], base: float, kind: str) -> Habits:
    def sometimes(likely: float) -> bool:
        return random.random() < likely

    ttl = base * random.choice((0.5, 1, 1, 2))
    return Habits(
        name=name,
        resources=names,
        ttl_ms=int(ttl * 1000),
        rate=clock_rate(random),
        offset=random.uniform(0, 10_000),
        pushable=sometimes(0.8),
        renews=sometimes(0.8),
        work=base * random.choice((0.1, 0.5, 2)),
        pause=base * random.choice((0.05, 0.5, 1)),
        at_least_ms=int(ttl * random.uniform(100, 1500)) if sometimes(0.15) else 0,
        impatient=0.5 if kind != "quiet" and sometimes(0.4) else 0,
        max_hold=base * random.uniform(0.3, 2) if kind != "quiet" and sometimes(0.15) else None,
        extends=0.3 if kind != "quiet" and sometimes(0.3) else 0,
        dozes=0.1 if kind != "quiet" and sometimes(0.3) else 0,
        delay_ms=int(ttl * 500) if kind != "quiet" and sometimes(0.1) else 0,
        insists=sometimes(0.7),
    )


def draw_weather(random: Random, base: float) -> Weather:
    """Each fault is off in half of the seeds: a selection finds more than everything at once."""
    likely = [random.choice((0, 0, 0.02, 0.1)) * random.uniform(0.5, 2) for _ in Weather._fields[:-1]]
    return Weather._make([*likely, base * random.choice((0.1, 0.5, 1.5))])


def draw_actions(random: Random, kind: str, base: float, calm_at: float) -> tuple[Action, ...]:
    if kind == "quiet":
        return ()
    menu = ["pause", "cancel", "stall"]
    if kind != "gentle":
        menu += ["pause", "crash", "vanish", "evict"]
    menu = [one for one in menu if random.random() < 0.6]
    kinds = [random.choice(menu) for _ in range(random.randint(0, 8))] if menu else []
    kinds += ["wipe"] * (random.randint(1, 2) if kind == "wiped" else 0)
    return tuple(
        Action(random.random() * calm_at, one, base * random.uniform(0.05, 2.5), random.random()) for one in kinds
    )
