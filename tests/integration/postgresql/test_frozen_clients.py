"""SIGSTOP and SIGKILL of a client after each of its requests: others are delayed for a moment, and nothing is half
done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import leasehold
from tests.integration.postgresql.steps import SCENES, SHORT, TTL, parts
from tests.support.servers.database import Database
from tests.support.servers.postgres import PostgresServer
from tests.support.waiting import PATIENCE, until
from tests.support.workers.crew import Crew, Worker
from tests.support.workers.journal import now

pytestmark = pytest.mark.slow

MOST = 40  # requests of one scene
PARENTS = 3
FROZEN = "frozen client"  # the name of its sessions
FEWEST = {"use": 1, "queue": 4, "hand over": 2, "take over": 3, "give away": 4, "all": 3, "downgrade": 5}


class Steps(Crew):
    """Children of one process that are harmed at a step of theirs."""

    module = "tests.integration.postgresql.steps"

    def prepare(self) -> str:
        """There is nothing to protect."""
        return ""


class Harmed(NamedTuple):
    """A child that was frozen or killed."""

    parent: Worker
    scene: str
    name: str
    step: int
    pid: int | None

    def __str__(self) -> str:
        """Where it was harmed."""
        return f"{self.scene}, after request {self.step}"

    def place(self, hold: leasehold.Leasehold) -> Any:
        """What it used."""
        return SCENES[self.scene][0](hold, self.name)


@pytest.fixture
def crew(tmp_path: Path, postgres_database: Database) -> Iterator[Steps]:
    """Parents of such children."""
    crew = Steps(tmp_path, f"{postgres_database.url}?application_name={FROZEN.replace(' ', '%20')}")
    yield crew
    crew.close()


def stage(scene: str, name: str, keeper: leasehold.Leasehold) -> Any:
    """What a child finds: somebody holds it, or has held it. The lease, which must not be dropped."""
    if scene.startswith("queue"):
        return SCENES[scene][0](keeper, name).acquire(wait=0)
    if scene == "take over":
        return keeper.lock("step", name, ttl=SHORT, renew=False).acquire(wait=0)
    return None


def wait_behind(scene: str, name: str, other: leasehold.Leasehold) -> Any:
    """The lease of somebody who came when the child held it."""
    place = SCENES[scene][0](other, name)
    until(place.locked, "the child holds it")
    return take(place)


def take(place: Any) -> Any:
    """A lease, and when it was received."""
    return place.acquire(wait=PATIENCE), now()


def harm_at_every_step(
    steps: Worker, scene: str, harm: signal.Signals, keeper: leasehold.Leasehold, staged: list[Any], waiter: Any
) -> list[Harmed]:
    """One child for each step of the scene, each with a resource of its own."""
    harmed: list[Harmed] = []
    for step in range(1, MOST):
        name = f"{scene} {step}".replace(" ", "-")
        staged.append(stage(scene, name, keeper))
        if scene == "hand over":
            waiter(scene, name)
        answer = steps.ask("play", scene=scene, name=name, nth=step, harm=int(harm))
        if not answer["harmed"]:
            assert answer.get("error") == "", f"{scene}, never harmed: {answer}\n{steps.errors()}"
            return harmed
        harmed.append(Harmed(steps, scene, name, step, answer.get("pid")))
    raise AssertionError(f"{scene} never ends")


def harm_in_scenes(steps: Worker, scenes: list[str], connecting: int, *more: Any) -> list[Harmed]:
    """The children of one parent. ``connecting``: how many requests are made for that on the main thread."""
    harmed = []
    for scene in scenes:
        found = harm_at_every_step(steps, scene, *more)
        assert len(found) >= FEWEST.get(scene, 1) + connecting, f"{scene}: {found}"
        harmed += found
    return harmed


def in_transaction(server: PostgresServer) -> list[Any]:
    """Sessions of children inside a transaction."""
    where = f"application_name = '{FROZEN}' AND state LIKE 'idle in transaction%'"
    return server.execute(f"SELECT pid, query FROM pg_stat_activity WHERE {where}")


@pytest.mark.parametrize(
    ("flavour", "harm"),
    [
        ("sync", signal.SIGSTOP),
        pytest.param("asyncio", signal.SIGSTOP, marks=pytest.mark.soak),
        pytest.param("sync", signal.SIGKILL, marks=pytest.mark.soak),
        pytest.param("asyncio", signal.SIGKILL, marks=pytest.mark.soak),
    ],
)
def test_a_client_is_harmed_after_every_request(
    crew: Steps, postgres_server: PostgresServer, postgres_database: Database, flavour: str, harm: signal.Signals
) -> None:
    """While all of them stand still, or are gone, another gets each resource: the server has ended their transactions.
    Nobody is inside with another, fences grow, and who wakes up takes nothing away."""
    with (
        leasehold.connect(postgres_database.url) as keeper,
        leasehold.connect(postgres_database.url) as other,
        ThreadPoolExecutor(100) as threads,
    ):
        waiting = {}

        def waiter(scene: str, name: str) -> None:
            waiting[name] = threads.submit(wait_behind, scene, name, other)

        harmed: list[Harmed] = []
        staged: list[Any] = []
        names = list(SCENES)
        more = (int(flavour == "sync"), harm, keeper, staged, waiter)
        plays = [
            threads.submit(harm_in_scenes, crew.spawn(flavour), names[first::PARENTS], *more)
            for first in range(PARENTS)
        ]
        for play in plays:
            harmed += play.result(2 * PATIENCE)
        keeper.close()
        for one in harmed:
            if one.name not in waiting:
                waiting[one.name] = threads.submit(
                    lambda place: (place.acquire(wait=PATIENCE), now()), one.place(other)
                )
        granted = {name: grant.result(PATIENCE) for name, grant in waiting.items()}
        assert all(lease for lease, _ in granted.values())
        assert in_transaction(postgres_server) == []
        for one in harmed:
            judge(one, one.parent.ask("go_on", pid=one.pid) if one.pid else None, granted[one.name])
        for name, (lease, _) in granted.items():
            assert lease.release() is not False, f"{name} was taken away from its holder"
        left_over = [one.name for one in harmed if one.pid and other.inspect(f"step:{one.name}").waiters]
        assert left_over == []
    until(lambda: not postgres_server.execute(f"SELECT 1 FROM pg_stat_activity WHERE application_name = '{FROZEN}'"))


def judge(one: Harmed, report: dict[str, Any] | None, granted: tuple[Any, float]) -> None:
    """What a child says that has woken up: it was inside before the other one, and with a lower fence."""
    if report is None:
        return
    lease, at = granted
    fences = {part.resource: part.fence for part in parts(lease)}
    assert not report["harmed"], f"{one}: {report}"
    for resource, fence, since, till in report["inside"]:
        assert since >= till or till <= at, f"{one} was inside with another: {report}"
        assert fence < fences[resource], f"{one}: {fence} and {fences}"
    assert report["error"] in ("", "LeaseLost", "NotHeld", "StoreUnavailable", "OutcomeUnknown"), f"{one}: {report}"


def test_ttl_is_longer_than_a_frozen_session() -> None:
    """Else a grant would show nothing: the row could be locked until its lease is over."""
    from leasehold.stores.postgresql.statements import FROZEN_MS

    assert FROZEN_MS < 1_000 < TTL * 1_000
