"""What a seed means: the clients, their habits, what they want, and what goes wrong.

There are five kinds of seeds. ``quiet``: nothing goes wrong, so the order of grants must be perfect. ``gentle``:
no packet is lost, but clients freeze, are cancelled and give up, and the server stalls; nothing may be left behind.
``stormy``: a random selection of all faults. ``wiped``: as stormy, and the store loses its memory, so exclusion is
off the table while fences and guards must still hold. ``turned``: as stormy, and the server's clock is set: back, and
nobody may notice but who has to wait for longer; or forward, and then leases end early, which is as bad as a wipe.

Each kind is played with every theme, which says what the clients want. Half of all seeds want plain locks.

Faults end at ``calm_at``. From then on everything must heal by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from leasehold._core.rules import MUTEX
from tests.support.simulator.faults import Action, Weather

KINDS = ("quiet", "gentle", "stormy", "stormy", "wiped", "stormy", "turned", "stormy")
THEMES = (MUTEX, "readers", MUTEX, "permits", MUTEX, "together", MUTEX, "election", MUTEX, "anything")


class Want(NamedTuple):
    """Something that a client may ask for."""

    resource: str
    rule: str = MUTEX
    permits: int = 1
    limit: int = 1


@dataclass(frozen=True, slots=True)
class Habits:
    """How one client behaves."""

    name: str
    wants: tuple[Want, ...]
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
    several: float = 0.0  # how likely to want several at once
    downgrades: float = 0.0  # how likely at each step of a writer
    says: float = 0.0  # how likely at each step to say something else of itself


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides beforehand."""

    seed: int
    kind: str
    theme: str
    weather: Weather
    clients: tuple[Habits, ...]
    actions: tuple[Action, ...]
    calm_at: float
    server_rate: float
    onlookers: tuple[Habits, ...] = ()  # each watches what it wants first

    @property
    def longest_ttl_ms(self) -> int:
        """Also counts what extend may ask for."""
        return max(3 * one.ttl_ms for one in self.clients)


def kind_of(seed: int) -> str:
    return KINDS[seed % len(KINDS)]


def theme_of(seed: int) -> str:
    return THEMES[seed // len(KINDS) % len(THEMES)]
