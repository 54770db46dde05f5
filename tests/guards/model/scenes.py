"""The stale-owner model, scene by scene, for any target. A guard with a mistake fails an assertion."""

from __future__ import annotations

import time
from typing import Any

from leasehold.testing.guards import A, B
from tests.guards.model.crew import GuardCrew
from tests.guards.model.evidence import Verdict
from tests.processes.crew import Worker, report, until
from tests.processes.scenes import harm

TTL = 0.3  # of the one who is frozen; nobody renews it
LONG = 30.0  # of the one who comes after it
STORM_TTL = 0.2
STORM_WORK = 0.004  # seconds between read and write: there most pauses hit
JOB = "job"


def frozen_holder(crew: GuardCrew, how: str = "look") -> tuple[Worker, int]:
    """A holds, has presented its fence and read 0, and stands still past its ttl. ``how`` it got there."""
    crew.target.prepare(JOB)
    a = crew.spawn()
    fence = a.ask("acquire", kind=JOB, ttl=TTL, renew=False)["fence"]
    if how == "look":
        assert a.ask("look")["value"] == 0
    else:
        assert a.ask(how, pause=True) == {"inside": True}
    crew.freeze(a)
    return a, fence


def successor(crew: GuardCrew, old: int) -> tuple[Worker, int]:
    """B waits until the lease of A is over."""
    b = crew.spawn()
    fence = b.ask("acquire", kind=JOB, ttl=LONG)["fence"]
    assert fence > old
    return b, fence


def refused(answer: dict[str, Any], fence: int, seen: int) -> None:
    """StaleOwner, with both fences."""
    assert answer.get("error") == "StaleOwner", f"a stale owner was not refused: {answer}"
    assert (answer["fence"], answer["seen"]) == (fence, seen)


def intact(crew: GuardCrew, value: int, fences: list[int], tried: int) -> None:
    """The counter and its history are the work of those who may."""
    verdict = crew.verdict(JOB)
    assert crew.target.value(JOB) == value
    assert [write.fence for write in crew.target.history(JOB)] == fences
    assert verdict == Verdict(len(fences), tried, 0, 0, 0), verdict


# ---------------------------------------------------------------- A, pause, B, and A wakes up


def overtaken(crew: GuardCrew) -> None:
    """B has written when A wakes up: A's write is refused, and so is everything that it tries afterwards."""
    a, old = frozen_holder(crew)
    b, new = successor(crew, old)
    assert b.ask("look")["value"] == 0
    assert b.ask("put", value=1)["value"] == 1
    a.go_on()
    refused(a.ask("put", value=1), old, new)
    assert a.ask("state")["state"] == "lost"
    refused(a.ask("look"), old, new)
    refused(a.ask("put", value=7), old, new)
    assert b.ask("look")["value"] == 1 and b.ask("put", value=2)["value"] == 2
    intact(crew, 2, [new, new], tried=2)


def read_modify_write(crew: GuardCrew) -> None:
    """A wakes up between B's read and B's write. B has only presented its fence: that is enough (trap 46)."""
    a, old = frozen_holder(crew)
    b, new = successor(crew, old)
    read = b.ask("look")["value"]
    a.go_on()
    late = a.ask("put", value=read + 1)
    b.ask("put", value=read + 1)
    lost = crew.verdict(JOB).lost
    assert lost == 0, f"{lost} updates were lost"
    refused(late, old, new)
    intact(crew, 1, [new], tried=1)


def late_transaction(crew: GuardCrew) -> None:
    """A wakes up after B's transaction, and begins one of its own."""
    a, old = frozen_holder(crew)
    b, new = successor(crew, old)
    assert b.ask("add")["value"] == 1
    a.go_on()
    refused(a.ask("add"), old, new)
    intact(crew, 1, [new], tried=1)


def equal_fences(crew: GuardCrew) -> None:
    """Two owners with one fence: whoever presents it first is the one, and the other changes nothing."""
    crew.target.prepare(JOB)
    a, b = crew.spawn(), crew.spawn()
    a.ask("bare", fence=1794768018952706, resource=JOB, owner=A)
    b.ask("bare", fence=1794768018952706, resource=JOB, owner=B)
    assert a.ask("look")["value"] == 0
    refused(b.ask("look"), 1794768018952706, 1794768018952706)
    refused(b.ask("put", value=1), 1794768018952706, 1794768018952706)
    assert a.ask("put", value=1)["value"] == 1
    refused(b.ask("put", value=2), 1794768018952706, 1794768018952706)
    intact(crew, 1, [1794768018952706], tried=2)


# ---------------------------------------------------------------- frozen inside a transaction


def locked_out(crew: GuardCrew, b: Worker) -> None:
    """B wants to add, and cannot while A stands between its check and its write. It says so only when it is done."""
    b.tell("add")
    time.sleep(0.3)
    assert b.silent(), f"somebody came between a check and its write: {b.hear()}"


def frozen_inside(crew: GuardCrew) -> None:
    """A is thawed: it came first, so its write counts, and B adds to it."""
    a, old = frozen_holder(crew, "add")
    b, new = successor(crew, old)
    locked_out(crew, b)
    a.go_on()
    a.tell("go on")
    assert a.hear()["value"] == 1
    answer = b.hear()
    report(f"busy {answer['busy']} times")
    assert answer["value"] == 2
    refused(a.ask("add"), old, new)
    intact(crew, 2, [old, new], tried=1)


def killed_inside(crew: GuardCrew) -> None:
    """A's connection dies with it: nothing of it is left, and B goes on."""
    a, old = frozen_holder(crew, "add")
    b, new = successor(crew, old)
    locked_out(crew, b)
    a.kill()
    assert b.hear()["value"] == 1
    intact(crew, 1, [new], tried=0)


# ---------------------------------------------------------------- eight workers


def storm(crew: GuardCrew, seconds: float, seed: int) -> Verdict:
    """Whoever holds is frozen or killed, and goes on writing when it wakes up."""
    crew.target.prepare(JOB)
    harmed = harm(crew, seconds, seed, kind=JOB, ttl=STORM_TTL, work=STORM_WORK)
    until(lambda: not crew.peek(JOB).queue, "nobody is left in the queue")
    verdict = crew.verdict(JOB)
    lost = sum(answer["lost"] for answer in harmed.answers)
    report(f"{crew.description.kind}: {verdict}; {lost} losses, {harmed.freezes} freezes, {harmed.kills} kills")
    crew.sound()
    assert verdict.tried > 0, "nobody tried a stale write: this run proves nothing"
    assert lost > 0 and harmed.kills > 0
    assert verdict.writes > 20
    return verdict
