"""The stale-owner model, scene by scene, for any target. A guard with a mistake fails an assertion."""

from __future__ import annotations

import time
from typing import Any

from leasehold.testing.guards import A, B
from tests.model.stale_owner import evidence
from tests.model.stale_owner.crew import GuardCrew
from tests.model.stale_owner.evidence import Verdict
from tests.support.waiting import until
from tests.support.workers.crew import report
from tests.support.workers.scenes import harm

TTL = 0.3  # of the one who is frozen; nobody renews it
LONG = 30.0  # of the one who comes after it
STORM_TTL = 0.2
STORM_WORK = 0.004  # seconds between read and write: there most pauses hit
FENCE = 1794768018952706


class Pair:
    """A, who is frozen, and B, who comes after it. Each scene has a counter of its own, named after it."""

    def __init__(self, crew: GuardCrew) -> None:
        self.crew = crew
        self.a, self.b = crew.ready("sync", "sync")
        self.job, self.old, self.new = "", 0, 0

    def begin(self, job: str) -> None:
        """A counter that stands at 0."""
        self.job = job
        self.crew.target.prepare(job)

    def freeze(self, job: str, do: str = "look", **more: Any) -> dict[str, Any]:
        """A acquires, does something and stands still. What it answered before."""
        self.begin(job)
        self.old = self.a.ask("acquire", kind=job, ttl=TTL, renew=False)["fence"]
        answer = self.a.ask(do, **more)
        self.crew.freeze(self.a)
        return answer

    def succeed(self) -> None:
        """B waits until the lease of A is over."""
        self.new = self.b.ask("acquire", kind=self.job, ttl=LONG)["fence"]
        assert self.new > self.old

    def refused(self, answer: dict[str, Any]) -> None:
        """StaleOwner, with both fences."""
        assert answer.get("error") == "StaleOwner", f"a stale owner was not refused: {answer}"
        assert (answer["fence"], answer["seen"]) == (self.old, self.new)

    def intact(self, value: int, fences: list[int], tried: int) -> None:
        """The counter and its history are the work of those who may."""
        verdict = self.crew.verdict(self.job)
        assert self.crew.target.value(self.job) == value
        assert [write.fence for write in self.crew.target.history(self.job)] == fences
        assert verdict == Verdict(len(fences), tried, 0, 0, 0), verdict


# ---------------------------------------------------------------- A, pause, B, and A wakes up


def overtaken(pair: Pair) -> None:
    """B has written when A wakes up: A's write is refused, and so is everything that it tries afterwards."""
    a, b = pair.a, pair.b
    assert pair.freeze("overtaken")["value"] == 0
    pair.succeed()
    assert b.ask("look")["value"] == 0
    assert b.ask("put", value=1)["value"] == 1
    a.go_on()
    pair.refused(a.ask("put", value=1))
    assert a.ask("state")["state"] == "lost"
    pair.refused(a.ask("look"))
    pair.refused(a.ask("put", value=7))
    assert b.ask("look")["value"] == 1 and b.ask("put", value=2)["value"] == 2
    pair.intact(2, [pair.new, pair.new], tried=2)


def read_modify_write(pair: Pair) -> None:
    """A wakes up between B's read and B's write. B has only presented its fence: that is enough (trap 46).

    Where a read is not remembered A came first: B is told that what it read is old, and reads again."""
    a, b = pair.a, pair.b
    assert pair.freeze("read-modify-write")["value"] == 0
    pair.succeed()
    read = b.ask("look")["value"]
    a.go_on()
    late = a.ask("put", value=read + 1)
    answer = b.ask("put", value=read + 1)
    lost = pair.crew.verdict(pair.job).lost
    assert lost == 0, f"{lost} updates were lost"
    if pair.crew.target.optimistic:
        assert late["value"] == 1 and answer["error"] == "Conflict"
        assert b.ask("look")["value"] == 1 and b.ask("put", value=2)["value"] == 2
        pair.refused(a.ask("put", value=2))
        pair.intact(2, [pair.old, pair.new], tried=1)
    else:
        pair.refused(late)
        pair.intact(1, [pair.new], tried=1)


def equal_fences(pair: Pair) -> None:
    """Two owners with one fence: whoever presents it first is the one, and the other changes nothing."""
    a, b = pair.a, pair.b
    pair.begin("equal-fences")
    pair.old = pair.new = FENCE
    a.ask("bare", fence=FENCE, resource=pair.job, owner=A)
    b.ask("bare", fence=FENCE, resource=pair.job, owner=B)
    assert a.ask("look")["value"] == 0
    if not pair.crew.target.optimistic:
        pair.refused(b.ask("look"))
        pair.refused(b.ask("put", value=1))
    assert a.ask("put", value=1)["value"] == 1
    pair.refused(b.ask("look"))
    pair.refused(b.ask("put", value=2))
    pair.intact(1, [FENCE], tried=1 if pair.crew.target.optimistic else 2)


# ---------------------------------------------------------------- everything in one transaction


def late_transaction(pair: Pair) -> None:
    """A wakes up after B's transaction, and begins one of its own: it is refused before it reads."""
    assert pair.freeze("late-transaction")["value"] == 0
    pair.succeed()
    assert pair.b.ask("add")["value"] == 1
    pair.a.go_on()
    pair.refused(pair.a.ask("add"))
    pair.intact(1, [pair.new], tried=1)


def frozen_inside(pair: Pair) -> None:
    """A stands still between check and write, and is thawed: it came first, so its write counts, and B adds to it."""
    assert pair.freeze("frozen-inside", "add", pause=True) == {"inside": True}
    pair.succeed()
    pair.b.tell("add")
    assert locked_out(pair), f"somebody came between a check and its write: {pair.b.hear()}"
    pair.a.go_on()
    pair.a.tell("go on")
    assert pair.a.hear()["value"] == 1
    answer = pair.b.hear()
    assert answer["value"] == 2
    assert answer["busy"] > 0 or not pair.crew.target.impatient, "it was told that the database is locked"
    pair.refused(pair.a.ask("add"))
    pair.intact(2, [pair.old, pair.new], tried=1)


def killed_inside(pair: Pair) -> None:
    """A's connection dies with it: nothing of it is left, and B goes on."""
    assert pair.freeze("killed-inside", "add", pause=True) == {"inside": True}
    pair.succeed()
    pair.b.tell("add")
    assert locked_out(pair), f"somebody came between a check and its write: {pair.b.hear()}"
    pair.a.kill()
    assert pair.b.hear()["value"] == 1
    pair.intact(1, [pair.new], tried=0)


def locked_out(pair: Pair) -> bool:
    """B was told to write, and cannot while A stands between its check and its write. It has begun, or it was told once
    that somebody is there."""
    begun = evidence.NOTHING if pair.crew.target.impatient else evidence.TRY

    def at_it() -> bool:
        lines = evidence.read_log(pair.crew.log, pair.job)
        return any((line.worker, line.what) == (pair.b.name, begun) for line in lines)

    until(lambda: at_it() or not pair.b.silent(), "B tries to write")
    time.sleep(0.2)
    return pair.b.silent()


# ---------------------------------------------------------------- a write that takes more than one message


def frozen_in_write(pair: Pair) -> None:
    """A stands still in the middle of its write. Either B is kept out until A is done, or A's write is refused."""
    assert pair.freeze("frozen-in-write", "look_and_put", value=1, pause=True) == {"inside": True}
    pair.succeed()
    pair.b.tell("look")
    if not pair.crew.target.optimistic:
        time.sleep(0.3)
        assert pair.b.silent(), f"somebody came into the middle of a write: {pair.b.hear()}"
        pair.a.go_on()
        pair.a.tell("go on")
        assert pair.a.hear()["value"] == 1 and pair.b.hear()["value"] == 1
        assert pair.b.ask("put", value=2)["value"] == 2
        pair.intact(2, [pair.old, pair.new], tried=0)
    else:
        assert pair.b.hear()["value"] == 0 and pair.b.ask("put", value=1)["value"] == 1
        pair.a.go_on()
        pair.a.tell("go on")
        pair.refused(pair.a.hear())
        pair.intact(1, [pair.new], tried=1)


def killed_in_write(pair: Pair) -> None:
    """A dies in the middle of its write: it has not happened, and B goes on."""
    assert pair.freeze("killed-in-write", "look_and_put", value=1, pause=True) == {"inside": True}
    pair.succeed()
    pair.a.kill()
    assert pair.b.ask("look")["value"] == 0 and pair.b.ask("put", value=1)["value"] == 1
    pair.intact(1, [pair.new], tried=0)


# ---------------------------------------------------------------- eight workers


def storm(crew: GuardCrew, seconds: float, seed: int) -> Verdict:
    """Whoever holds is frozen or killed, and goes on writing when it wakes up."""
    crew.target.prepare("storm")
    lost = kills = 0
    for turn in range(8):  # on a busy machine a storm may pass without harm: then another
        harmed = harm(crew, seconds, seed + 1_000 * turn, kind="storm", ttl=STORM_TTL, work=STORM_WORK)
        verdict = crew.verdict("storm")
        lost, kills = lost + sum(answer["lost"] for answer in harmed.answers), kills + harmed.kills
        report(f"{crew.label}: {verdict}; {lost} losses, {harmed.freezes} freezes, {kills} kills")
        crew.sound()
        if verdict.tried > 0 and lost > 0 and kills > 0 and verdict.writes > 5:
            break
        for worker in crew.workers:
            worker.close()
    assert verdict.tried > 0, "nobody tried a stale write: this run proves nothing"
    assert lost > 0 and kills > 0
    assert verdict.writes > 5
    return verdict
