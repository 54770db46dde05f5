"""How a seed becomes a plan: drawn once, before time starts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from leasehold._core.rules import MUTEX, READ, SEMAPHORE, WRITE
from tests.support.simulator.faults import CALM, Action, draw_actions, draw_weather
from tests.support.simulator.plans import Habits, Plan, Want, kind_of, theme_of

CLOCK_ERROR = 0.0049  # a client and the server together stay within the 1 % that policy.drift allows
MOST_LIMIT = 4


def draw_plan(seed: int) -> Plan:
    plan, base = plain_plan(seed)
    return plan if plan.theme == MUTEX else Dressing(plan, base).dressed()


def plain_plan(seed: int) -> tuple[Plan, float]:
    """For plain locks; and about how many seconds everything takes."""
    random = Random(f"plan {seed}")
    kind = kind_of(seed)
    base = random.choice((0.3, 0.6, 1.2) if kind != "quiet" else (0.3, 1.2, 4.0))
    calm_at = base * random.uniform(6, 12)
    names = ("r1",) if random.random() < 0.8 else ("r1", "r2")
    clients = tuple(draw_habits(random, f"c{n}", names, base, kind) for n in range(random.randint(2, 4)))
    weather = draw_weather(random, base) if kind in ("stormy", "wiped", "turned") else CALM
    actions = draw_actions(random, kind, base, calm_at)
    theme = theme_of(seed)
    return Plan(seed, kind, theme, weather, clients, actions, calm_at, clock_rate(random)), base


def clock_rate(random: Random) -> float:
    return 1 + random.choice((-1, 1, random.uniform(-1, 1))) * CLOCK_ERROR


def draw_habits(random: Random, name: str, names: tuple[str, ...], base: float, kind: str) -> Habits:
    def sometimes(likely: float) -> bool:
        return random.random() < likely

    ttl = base * random.choice((0.5, 1, 1, 2))
    return Habits(
        name=name,
        wants=tuple(map(Want, names)),
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


class Dressing:
    """The same plan for clients that want something else than a lock each, and perhaps for those who watch them."""

    def __init__(self, plan: Plan, base: float) -> None:
        self.plan = plan
        self.base = base
        self.random = Random(f"{plan.theme} {plan.seed}")

    def dressed(self) -> Plan:
        draw = DRESSES[self.plan.theme]
        others = [self.newcomer(f"d{n}", self.plan.kind) for n in range(self.random.randint(0, 2))]
        clients = [draw(self, habits) for habits in (*self.plan.clients, *others)]
        onlookers = [self.onlooker(f"w{n}", clients) for n in range(self.random.choice((0, 1, 2)))]
        return replace(
            self.plan,
            clients=tuple(clients),
            onlookers=tuple(onlookers),
            actions=(*self.plan.actions, *self.resizing(clients), *self.blinking(onlookers), *self.hanging()),
        )

    def newcomer(self, name: str, kind: str) -> Habits:
        return draw_habits(self.random, name, ("r1",), self.base, kind)

    def onlooker(self, name: str, clients: list[Habits]) -> Habits:
        """Watches one of the resources."""
        wants = self.random.choice(clients).wants
        return replace(self.newcomer(name, "quiet"), wants=(self.random.choice(wants),))

    # ------------------------------------------------------------ themes

    def readers(self, habits: Habits) -> Habits:
        rules = self.random.choice(((READ,), (READ, READ, WRITE), (WRITE,)))
        wants = tuple(Want(one.resource, rule) for one in habits.wants for rule in rules)
        return replace(habits, wants=wants, downgrades=self.random.choice((0, 0.3, 0.7)))

    def permits(self, habits: Habits) -> Habits:
        return replace(habits, wants=self.some_permits("r1"))

    def some_permits(self, resource: str) -> tuple[Want, ...]:
        """Mostly all go by the same limit. A big claim must get its turn among small ones."""
        limit = 1 + self.plan.seed // 7 % MOST_LIMIT
        if self.random.random() < 0.15:
            limit = self.random.randint(1, MOST_LIMIT)
        sizes = self.random.choice(((1,), (limit,), (1, self.random.randint(1, limit)), (1, limit)))
        return tuple(Want(resource, SEMAPHORE, size, limit) for size in sizes)

    def together(self, habits: Habits) -> Habits:
        """Each resource has its primitive, the same for everybody."""
        ways = ((MUTEX,), (READ, WRITE), (SEMAPHORE,), (MUTEX,), (WRITE,))
        wants: list[Want] = []
        for number, resource in enumerate(("a", "b", "c")[: 2 + self.plan.seed // 5 % 2]):
            rule = self.random.choice(ways[(self.plan.seed // 3 + number) % len(ways)])
            wants += self.some_permits(resource) if rule == SEMAPHORE else (Want(resource, rule),)
        return replace(habits, wants=tuple(wants), several=0.8, downgrades=self.random.choice((0, 0.3)))

    def election(self, habits: Habits) -> Habits:
        return replace(habits, says=self.random.choice((0.2, 0.6)))

    def anything(self, habits: Habits) -> Habits:
        """Every rule on one resource, and now and then another beside it."""
        wants = [Want("r1", rule) for rule in (MUTEX, READ, READ, WRITE)] + list(self.some_permits("r1"))
        some = self.random.sample(wants, self.random.randint(1, len(wants)))
        if self.random.random() < 0.5:
            some.append(Want("r2", self.random.choice((MUTEX, READ))))
        return replace(habits, wants=tuple(some), several=0.3, downgrades=0.3, says=self.random.choice((0, 0.3)))

    # ------------------------------------------------------------ what happens besides

    def moment(self, kind: str) -> Action:
        seconds = self.base * self.random.uniform(0.05, 2.5)
        return Action(self.random.random() * self.plan.calm_at, kind, seconds, self.random.random())

    def resizing(self, clients: list[Habits]) -> list[Action]:
        counted = any(want.rule == SEMAPHORE for one in clients for want in one.wants)
        return [self.moment("resize") for _ in range(self.random.choice((0, 2, 5)) if counted else 0)]

    def hanging(self) -> list[Action]:
        """Somebody is cancelled while the store does not answer: so much is then in doubt."""
        if self.plan.kind == "quiet" or self.random.random() < 0.5:
            return []
        stall = self.moment("stall")
        moments = [stall.at + stall.seconds * self.random.random() for _ in range(2)]
        return [stall, *(self.moment("cancel")._replace(at=min(at, self.plan.calm_at)) for at in moments)]

    def blinking(self, onlookers: list[Habits]) -> list[Action]:
        if not onlookers or self.plan.kind == "quiet":
            return []
        kinds = ("blink", "leave") if self.plan.kind != "gentle" else ("blink",)
        return [self.moment(self.random.choice(kinds)) for _ in range(self.random.choice((0, 1, 2)))]


DRESSES = {
    "readers": Dressing.readers,
    "permits": Dressing.permits,
    "together": Dressing.together,
    "election": Dressing.election,
    "anything": Dressing.anything,
}
