"""The protocol of etcd and ZooKeeper under the seeded simulator, as it is and with one rule broken at a time.

A failing seed prints how to replay it. The soak takes its seeds from LEASEHOLD_SEEDS, as ``first:last``.
"""

from __future__ import annotations

import os
import re
import sys
from itertools import count, islice
from typing import Any

import pytest

from leasehold._core import ops
from leasehold._core.holding import grant_spans
from leasehold._core.types import Grant, Instant
from leasehold.stores.record import drafts, handover, text
from leasehold.stores.record.drafts import Drafts
from leasehold.stores.record.requests import ANY, Part
from leasehold.stores.record.waits import Waits
from tests.model.breaking import Break, patched
from tests.support.simulator import simulate_records
from tests.support.simulator.plans import KINDS, kind_of
from tests.support.simulator.records import RecordProcess, RecordWorld, Version
from tests.support.simulator.simulate import history

QUICK = range(80)  # every kind with every theme; half of them on each kind of server
SOAK = "1000:20000"
MOST_SEEDS = 1500
ONE_OF_EACH = range(0, 10 * len(KINDS), len(KINDS) + 1)
pytestmark = pytest.mark.timeout(300)


def test_every_promise_is_kept() -> None:
    """Exclusion, growing fences, refused stale writes, nothing left and nobody forgotten, whatever goes wrong. And
    everything does: a simulator in which nothing goes wrong proves nothing."""
    played = [simulate_records.run(seed) for seed in QUICK]
    assert sum(one.checks.grants for one in played) > 10 * len(QUICK)
    assert sum(one.checks.writes for one in played) > 10 * len(QUICK)
    told = "".join(map(history, played))
    for sign in (
        "freezes for",
        "is killed",
        "vanishes with its host",
        "will be cancelled",
        "stalls for",
        "loses its memory",
        "has its wall clock set by",
        "ends the session",
        "a watch stays silent",
        "event=wake",
        "event=granted",
        '"expired"',
        '"withdrawn"',
        "Evict(",
        "Resize(",
    ):
        assert sign in told, sign


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_promise_is_kept_in_thousands_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """The same, for as many seeds as one has time for."""
    first, last = os.environ.get("LEASEHOLD_SEEDS", SOAK).split(":")
    with capsys.disabled():
        sys.stdout.write(f"\nseeds {first} to {last}\n")
    for seed in range(int(first), int(last)):
        simulate_records.run(seed)


@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_the_same_seed_tells_the_same_history(seed: int) -> None:
    """I17."""
    first, second = simulate_records.run(seed), simulate_records.run(seed)
    assert history(first) == history(second)


# ---------------------------------------------------------------- broken rules (I18)


def session_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant ends with the session of its holder, as that of an ephemeral node or of a leased key does."""
    end_session = RecordWorld.end_session

    def end_all(world: RecordWorld, session: int) -> None:
        names = [
            one.name for one in world.processes.values() if isinstance(one, RecordProcess) and one.session == session
        ]
        end_session(world, session)
        for resource, state in tuple(world.states.items()):
            for grant in state.holders:
                if grant.owner.split(":")[0] in names:
                    world.turn(ops.Withdraw(resource, grant.owner))

    monkeypatch.setattr(RecordWorld, "end_session", end_all)


def blind_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A put in place of a comparison."""
    holds = RecordWorld._holds

    def any_revision(world: RecordWorld, part: Part, session: int) -> bool:
        revision = part.revision if part.revision == ANY else world.version(part.resource).revision
        return holds(world, part._replace(revision=revision), session)

    monkeypatch.setattr(RecordWorld, "_holds", any_revision)


def overtaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that does not care who waits."""
    holds = RecordWorld._holds

    def whoever_waits(world: RecordWorld, part: Part, session: int) -> bool:
        return holds(world, part._replace(nobody_waits=False), session)

    monkeypatch.setattr(RecordWorld, "_holds", whoever_waits)


def found_is_new(line: Drafts, grant: Grant, owner: str, now: Instant) -> ops.Reply:
    """A grant that is found in the record counts from now."""
    return ops.Granted(grant.fence, grant.ttl_ms, grant.slots, 0, grant.rule)


def handed_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant to a place counts from when its owner reads of it."""
    own = Drafts.own

    def counts_from_now(line: Drafts, grant: Grant, owner: str, now: Instant) -> ops.Reply:
        return own(line, grant, owner, now) if grant.owner == owner else found_is_new(line, grant, owner, now)

    monkeypatch.setattr(Drafts, "own", counts_from_now)
    monkeypatch.setattr(Waits, "_granted", lambda waits, wait, known, read: False)


def sure_of_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, which learns of its grant from the record, does not look who has come behind it."""
    granted = Waits._granted
    monkeypatch.setattr(Waits, "_granted", lambda waits, wait, known, read: granted(waits, wait, known, True))


def any_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release grants to a place that it has read of, whether it is still there or not."""
    holds = RecordWorld._holds

    def gone_or_not(world: RecordWorld, part: Part, session: int) -> bool:
        return holds(world, part._replace(first=None), session)

    monkeypatch.setattr(RecordWorld, "_holds", gone_or_not)


def behind_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim joins behind a place that it has read of, whether it is still there or not."""
    holds = RecordWorld._holds

    def gone_or_not(world: RecordWorld, part: Part, session: int) -> bool:
        join = part.join and part.join._replace(behind=None)
        return holds(world, part._replace(join=join), session)

    monkeypatch.setattr(RecordWorld, "_holds", gone_or_not)
    monkeypatch.setattr(drafts, "LATELY_MS", 10**9)
    monkeypatch.setattr(drafts, "MANY", 1)


def stale_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release grants to the first place, however old its last sign of life is."""
    monkeypatch.setattr(handover, "is_fresh", lambda offer, now: True)


def record_first(world: RecordWorld, earlier: Version, later: Version) -> tuple[Version, Version]:
    """The record is read before the places."""
    return later, earlier


def seen_by_server(kept: text.Kept, known: text.Sightings, now: Instant) -> dict[int, int]:
    """What is seen for the first time counts from when it was written, by the clock of the server."""
    return {mark: known.get(mark, now.ms - (now.wall_us - mark) // 1000) for mark in kept.marks}


def seen_early(kept: text.Kept, known: text.Sightings, now: Instant) -> dict[int, int]:
    """A part counts from when the resource was last seen at all, in whatever state."""
    earliest = min(known.values(), default=now.ms)
    return {mark: known.get(mark, earliest) for mark in kept.marks}


def one_mark_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal keeps the mark of what it renews."""
    kept = text.kept

    def same_marks(before: text.Kept, base: Any, after: Any, now: Instant, *rest: Any, **more: Any) -> text.Kept:
        new = kept(before, base, after, now, *rest, **more)
        known = {(one.owner, one.fence): mark for one, mark in zip(before.state.holders, before.marks, strict=False)}
        marks = list(new.marks)
        if new.state.holders and not any(one.closed_until_ms for one in new.state.holders):
            for place, one in enumerate(new.state.holders):
                marks[place] = known.get((one.owner, one.fence), marks[place])
        return new._replace(marks=tuple(marks))

    monkeypatch.setattr(text, "kept", same_marks)


def withdraws_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A withdrawal that goes unanswered is not repeated, and nobody else removes the place."""
    monkeypatch.setattr(RecordProcess, "look_after", lambda process: None)
    monkeypatch.setattr(drafts, "OVERDUE_MS", 10**9)


# What is broken, the promises of which one is broken by it, the kind of seeds, and where it pays to begin.
BROKEN: dict[str, tuple[Break, str, str, int]] = {
    "a session decides": (session_decides, "I1|I7", "", 80),
    "blind writes": (blind_writes, "I1|I2|I7|I8|I9|I10", "", 0),
    "overtaking": (overtaking, "I15", "quiet", 96),
    "a grant that is found counts anew": (patched(Drafts, "own", found_is_new), "I1", "stormy", 0),
    "a grant to a place counts from when it is read": (handed_is_new, "I1", "", 1),
    "who came behind the first one": (sure_of_places, "I12", "quiet", 2050),
    "grants to places that are gone": (any_place, "I1|I2|I6|I7|I12|I15", "", 1),
    "joins behind places that are gone": (behind_nobody, "I12", "quiet", 150),
    "grants to places that are silent": (stale_offers, "I14", "", 1),
    "the record is read before the places": (patched(RecordWorld, "read_order", record_first), "I6|I13", "quiet", 0),
    "the server's clock decides": (patched(text, "first_seen", seen_by_server), "I1|I7|I9|I10|I12", "turned", 0),
    "time that was not watched counts": (patched(text, "first_seen", seen_early), "I1|I7", "", 0),
    "a renewal is not seen": (one_mark_for_all, "I1|I7|I8", "", 0),
    "doors that others saw": (patched(text, "_relied_on", lambda before, after: set()), "I1", "", 150),
    "withdraws once": (withdraws_once, "I6|I12", "", 120),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is the protocol without one of its rules."""
    broken, promises, kind, first = BROKEN[name]
    broken(monkeypatch)
    fitting = (seed for seed in count(first) if not kind or kind_of(seed) == kind)
    grant_spans.cache_clear()
    try:
        found = simulate_records.find_violation(islice(fitting, MOST_SEEDS))
    finally:
        grant_spans.cache_clear()
    assert found is not None, "nobody noticed"
    seed, violation = found
    assert re.match(rf"seed {seed}: ({promises})\b", str(violation)), violation
