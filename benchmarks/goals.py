"""The goals: which figure of which part must reach what, and one table that says whether it did.

Ratios are within one run. Leases are fenced, queue-aware and renewed, and ``hold.lock(...)`` is made anew each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.parts import (
    batches,
    consensus,
    embedded,
    handoffs,
    leases,
    pairs,
    postgresql,
    startup,
    tasks,
    topologies,
)
from benchmarks.peers import FLOOR, OURS, OURS_ASYNCIO, PYTHON_REDIS_LOCK, RAW, REDIS_ASYNCIO, REDIS_PY
from benchmarks.race import FAIRNESS, HANDOFFS_PER_S, WAIT_SHARES
from benchmarks.report import markdown
from benchmarks.report.rows import Figure, Row
from leasehold._core.policy import MOST_PASSES


@dataclass(frozen=True)
class Goal:
    """A figure, or its ratio to a peer, and its bound."""

    name: str
    work: str
    contender: str
    unit: str
    bound: float
    peer: str = ""
    at_least: bool = True  # else at most
    quick: bool = True  # also in a quick run

    def measured(self, rows: Sequence[Row]) -> Figure | None:
        """The figure in these rows, if it was measured."""
        for row in rows:
            if (row.work, row.contender, row.unit) == (self.work, self.contender, self.unit):
                return row.ratios.get(self.peer) if self.peer else row.figure
        return None

    def reached(self, figure: Figure) -> bool:
        """By the median."""
        return figure.value >= self.bound if self.at_least else figure.value <= self.bound

    def __str__(self) -> str:
        bound = f"{self.bound:,.0f}" if self.bound >= 100 else f"{self.bound:.3g}"
        return f"{'≥' if self.at_least else '≤'} {bound}"


def at_least(bound: float, name: str, work: str, contender: str, unit: str, peer: str = "") -> Goal:
    return Goal(name, work, contender, unit, bound, peer)


def at_most(bound: float, name: str, work: str, contender: str, unit: str, peer: str = "") -> Goal:
    return Goal(name, work, contender, unit, bound, peer, at_least=False)


def later(*goals: Goal) -> list[Goal]:
    """Those of parts that a quick run leaves out."""
    return [replace(goal, quick=False) for goal in goals]


ETCD, ZOOKEEPER = consensus.ETCD_ALONE, consensus.ZOOKEEPER_ALONE
CREWS, TASKS = handoffs.CREWS, handoffs.TASKS
EIGHT, SIXTY_FOUR, SQLITE = handoffs.PROCESSES, handoffs.threads_work(64), embedded.PROCESSES
GOALS = [
    at_most(3.2, "server time of a pair, × bare pair", pairs.SYNC, OURS, pairs.SERVER_US, RAW),
    at_least(0.45, "sync pairs, × floor", pairs.SYNC, OURS, pairs.PAIRS, FLOOR),
    at_least(2.2, "sync pairs, × redis-py Lock", pairs.SYNC, OURS, pairs.PAIRS, REDIS_PY),
    at_least(1.5, "sync pairs, × redis-py Lock, as before cohorts", pairs.SYNC, OURS, pairs.PAIRS, REDIS_PY),
    at_least(2.7, "asyncio pairs, × redis.asyncio Lock", pairs.ASYNCIO, OURS_ASYNCIO, pairs.PAIRS, REDIS_ASYNCIO),
    at_least(40, "linger= re-acquire, × redis-py Lock", pairs.LINGER, pairs.LINGERING, pairs.PAIRS, REDIS_PY),
    at_least(10, "1,000 tasks, × redis.asyncio Lock", tasks.work(1_000), OURS_ASYNCIO, pairs.PAIRS, REDIS_ASYNCIO),
    at_least(15, "64 threads, handoffs, × python-redis-lock", SIXTY_FOUR, OURS, HANDOFFS_PER_S, PYTHON_REDIS_LOCK),
    at_most(1.05, "64 threads, fairness", SIXTY_FOUR, OURS, FAIRNESS),
    at_least(15, "64 tasks, handoffs, × python-redis-lock", TASKS, OURS_ASYNCIO, HANDOFFS_PER_S, PYTHON_REDIS_LOCK),
    at_most(1.05, "64 tasks, fairness", TASKS, OURS_ASYNCIO, FAIRNESS),
    at_most(1.1, "commands a handoff, 64 threads ÷ 16", handoffs.GROWTH, OURS, handoffs.GROWTH_UNIT),
    at_least(2.5, "8 processes, handoffs, × python-redis-lock", EIGHT, OURS, HANDOFFS_PER_S, PYTHON_REDIS_LOCK),
    at_most(1.05, "8 processes, fairness", EIGHT, OURS, FAIRNESS),
    at_least(3, "8 × 8 threads, handoffs, × python-redis-lock", CREWS, OURS, HANDOFFS_PER_S, PYTHON_REDIS_LOCK),
    at_most(2, "8 × 8 threads, wait p99, × fair share", CREWS, OURS, WAIT_SHARES),
    at_most(
        2,
        "8 processes beside 64 threads, their wait p99, × fair share",
        handoffs.BOUND,
        handoffs.bounded(MOST_PASSES),
        handoffs.REMOTE_WAIT,
    ),
    at_most(
        0.35,
        "renewal of 10,000, CPU, × redis-py pipeline",
        leases.renewals_work(10_000),
        OURS,
        leases.CPU,
        leases.PIPELINE,
    ),
    at_most(400, "bytes of a held lease, Redis", leases.MEMORY, OURS, leases.IN_REDIS),
    at_most(800, "bytes of a held lease, Python", leases.MEMORY, OURS, leases.IN_PYTHON),
    at_least(1.3, "SQLite pairs, × filelock", embedded.ALONE, embedded.OURS, "pairs/s", embedded.FILELOCK),
    *later(
        at_least(11_500, "SQLite, 64 threads, handoffs/s", embedded.threads_work(64), embedded.OURS, HANDOFFS_PER_S),
    ),
    at_least(5, "SQLite, 8 processes, handoffs, × filelock", SQLITE, embedded.OURS, HANDOFFS_PER_S, embedded.FILELOCK),
    at_most(1.2, "SQLite, 8 processes, fairness", SQLITE, embedded.OURS, FAIRNESS),
    *later(
        at_least(
            0.6, "PostgreSQL pairs, × two statements", postgresql.ALONE, postgresql.OURS, "pairs/s", postgresql.BARE
        ),
        at_least(
            2,
            "PostgreSQL, 8 processes, handoffs, × polling by hand",
            postgresql.PROCESSES,
            postgresql.OURS,
            HANDOFFS_PER_S,
            postgresql.BY_HAND,
        ),
        at_least(0.8, "etcd pairs, × two bare transactions", ETCD, consensus.OURS, "pairs/s", consensus.BARE),
        at_least(1.5, "ZooKeeper pairs, × kazoo's Lock", ZOOKEEPER, consensus.OURS, "pairs/s", consensus.KAZOO),
        at_least(
            1,
            "ZooKeeper, 8 processes, handoffs, × kazoo's Lock",
            consensus.ZOOKEEPER_PROCESSES,
            consensus.OURS,
            HANDOFFS_PER_S,
            consensus.KAZOO,
        ),
        at_most(2, "Redlock, 5 ms away, round trips", topologies.FAR, topologies.OURS, topologies.ROUND_TRIPS),
        *[
            at_least(1, f"Redlock pairs, × {peer}", topologies.DIRECT, ours, topologies.PAIRS, peer)
            for ours, peer in (
                (topologies.OURS, topologies.POTTERY),
                (topologies.OURS, topologies.REDLOCK_PY),
                (topologies.OURS_ASYNCIO, topologies.AIOREDLOCK),
            )
        ],
        at_least(
            1 / 1.2,
            "Cluster, one caller, × one server",
            topologies.CLUSTER,
            topologies.CLUSTER,
            topologies.PAIRS,
            topologies.ONE,
        ),
        at_least(
            1 / 1.2,
            "Cluster, 1,000 tasks on 3 masters, × one server",
            topologies.TASKS,
            topologies.CLUSTER,
            topologies.PAIRS,
            topologies.ONE,
        ),
        at_least(
            0.95,
            "Sentinel, × the same primary alone",
            topologies.SENTINEL,
            topologies.SENTINEL,
            topologies.PAIRS,
            topologies.ONE,
        ),
    ),
    at_least(
        10, "100 leases, 2 ms away, × one by one", batches.FAR, batches.TOGETHER, batches.PAIRS, batches.ONE_BY_ONE
    ),
    at_least(
        10,
        "100 leases on Redis, one core, × one by one",
        batches.NEAR,
        batches.TOGETHER,
        batches.PAIRS,
        batches.ONE_BY_ONE,
    ),
    at_least(
        10, "100 leases on SQLite, × one by one", batches.SQLITE, batches.TOGETHER, batches.PAIRS, batches.ONE_BY_ONE
    ),
    at_most(2.8, "leasehold run, start-up, × python -c pass", startup.START_UP, startup.RUN, startup.MS, startup.PASS),
]


def any_measured(rows: Sequence[Row]) -> bool:
    """Whether a part with a goal has run."""
    return any(goal.measured(rows) for goal in GOALS)


def missing(rows: Sequence[Row], quick: bool) -> list[str]:
    """The goals that were not measured, and should have been in such a run."""
    return [goal.name for goal in GOALS if goal.measured(rows) is None and (goal.quick or not quick)]


def table(rows: Sequence[Row]) -> str:
    """The goals that were measured, as a Markdown table."""
    lines = [
        [goal.name, markdown.ratio(figure), str(goal), "yes" if goal.reached(figure) else "no"]
        for goal in GOALS
        if (figure := goal.measured(rows))
    ]
    return markdown.table(["goal", "measured", "goal is", "reached"], lines)
