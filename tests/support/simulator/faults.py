"""What goes wrong: the network's weather, and what is done to clients and to the store at a moment.

Drawn with a plan, before time starts. Each kind of seed (``plans``) has its own selection.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

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
    """Something that is done to the world at a moment: pause, cancel, crash, vanish, stall, wipe, turn (the server's
    clock), evict, resize; and to an onlooker: blink, leave."""

    at: float
    kind: str
    seconds: float
    pick: float  # 0..1, chooses the victim


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
    kinds += ["turn"] * (random.randint(1, 3) if kind == "turned" else 0)
    return tuple(
        Action(random.random() * calm_at, one, base * random.uniform(0.05, 2.5), random.random()) for one in kinds
    )
