"""Why: the sentences of a verdict speak of the answers that were given, and of those that were not."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from leasehold.advice import CASES, Need, Verdict, advise
from leasehold.advice.decision import CONSENSUS, FAILS_OVER, NO_GRANT_FORGOTTEN, ONE_SERVER, WARNINGS
from tests.support.tables import each
from tests.unit.advice.needs import needs


@cache
def verdicts() -> list[Verdict]:
    """Of every seventh need, made once."""
    return [advise(need) for need in needs()[::7]]


def reasons(**answers: Any) -> str:
    """All of them in one text."""
    return "\n".join(advise(Need.of(answers)).reasons)


@each("name", CASES)
def test_they_name_the_answers(name: str) -> None:
    """What is harmed, what it is, and what a duplicate is, in the words of the answers."""
    need = CASES[name]
    told = "\n".join(advise(need).reasons)
    assert f"{need.protects.capitalize()} is at stake:" in told
    assert re.search(rf"The work is an? {need.work}( effect)?:", told)
    assert f"Duplicates are {need.duplicates}:" in told


@pytest.mark.slow
def test_they_are_sentences() -> None:
    """For people: they begin and end as sentences do, and none names a field as a program does."""
    told = {one for verdict in verdicts() for one in (*verdict.reasons, *verdict.warnings)}
    names = [field.name for field in fields(Need)]
    for sentence in told:
        assert sentence[0].isupper() and sentence.endswith(".")
        assert not [name for name in names if "_" in name and name in sentence]


def test_length_and_number_are_named() -> None:
    """A duration or a limit that decided stands in the reasons; one that did not is left out."""
    assert "The work takes 3h: over 1h" in reasons(protects="efficiency", duration="3h")
    assert "The work takes 200ms: at most 1s" in reasons(protects="correctness", work="section", duration="200ms")
    assert "Up to 3 may run at once" in reasons(protects="efficiency", limit=3)
    assert "takes" not in reasons(protects="efficiency", limit=3, duplicates="harmless", duration="5m")
    assert "Up to" not in reasons(protects="efficiency", limit=1)


def test_unknown_answers_are_told_with_what_they_would_change() -> None:
    """What an answer that is missing counts as, and where another answer would lead."""
    told = reasons(protects="correctness")
    assert "Whether the effect can be made idempotent is not known, and counts as no; yes would lead to once." in told
    assert "durable state that can decide is not known, and counts as no; yes would lead to transition." in told
    assert "How long the work can take is not known, and counts as up to 1h; over 1h would lead to jobs." in told
    assert "The kind of work is not known" in told


def test_unknown_answers_that_change_nothing_are_not_told() -> None:
    """A cache is a cache: whether somebody downstream checks a fence is of no interest."""
    told = reasons(protects="efficiency", work="cache", duplicates="harmless", duration="1s")
    assert "fence" not in told and "durable" not in told


def test_a_lease_that_matters_lives_where_nothing_is_forgotten() -> None:
    """With its fence a lease may keep things correct: until somebody says that a failover may forget it, it may not."""
    need = {"protects": "correctness", "work": "external", "downstream_fences": True}
    assert advise(Need.of(need)).store == CONSENSUS
    told = {**need, "survives_failover": False, "regions": False}
    assert advise(Need.of({**told, "availability": "hours"})).store == ONE_SERVER
    assert advise(Need.of(told)).store == FAILS_OVER
    assert advise(Need.of({**need, "regions": False})).store == NO_GRANT_FORGOTTEN
    assert "survive a failover is not known, and counts as yes" in reasons(**need, regions=False)
    assert "partitions between regions are expected is not known, and counts as yes" in reasons(**need)


def test_a_failover_that_must_not_forget() -> None:
    """A majority has each grant, and so has a synchronous standby; what that costs is said."""
    need = {"protects": "efficiency", "duplicates": "costly", "survives_failover": True}
    assert advise(Need.of(need)).store == NO_GRANT_FORGOTTEN
    assert "waits for the disks of a majority" in reasons(**need)
    assert advise(Need.of({**need, "regions": True})).store == CONSENSUS


def test_regions_that_can_be_cut_off() -> None:
    """A majority where a duplicate costs something; one store in each region where it does not."""
    need = {"protects": "efficiency", "regions": True}
    assert advise(Need.of({**need, "duplicates": "costly"})).store == CONSENSUS
    assert "Regions can be cut off from each other:" in reasons(**need)
    borne = advise(Need.of({**need, "duplicates": "harmless"}))
    assert borne.store == ONE_SERVER
    assert borne.warnings == ("One store in each region is enough: a duplicate for each of them is harmless.",)


def test_hours() -> None:
    """Over an hour is long and an hour is not; a workflow is long however long it takes; so are several of them."""
    assert advise(Need.of({"protects": "efficiency", "duration": 3600})).tool == "lock"
    assert advise(Need.of({"protects": "efficiency", "duration": 3600.001})).tool == "jobs"
    assert "takes" not in reasons(protects="efficiency", work="workflow")
    several = {"protects": "efficiency", "limit": 3, "duplicates": "harmless"}
    assert advise(Need.of(several)).tool == "semaphore"
    assert advise(Need.of({**several, "duration": "3h"})).tool == "semaphore + jobs"


def test_a_second() -> None:
    """A row lock may be held for a second, and no longer."""
    section = {"protects": "correctness", "work": "section"}
    assert advise(Need.of({**section, "duration": 1})).tool == "row_lock"
    assert advise(Need.of({**section, "duration": 1.001})).tool == "lock + guard"
    assert advise(Need.of(section)).tool == "lock + guard"


def test_a_section_without_a_row() -> None:
    """PostgreSQL locks a name for a short one; a longer one needs a lease all the same. Not known: there is a row."""
    section = {"protects": "correctness", "work": "section", "duration": "200ms"}
    assert advise(Need.of({**section, "row": False})).tool == "advisory_lock"
    assert advise(Need.of({**section, "row": True})).tool == "row_lock"
    assert advise(Need.of({**section, "row": False, "duration": "20s"})).tool == "lock + guard"
    assert "row stands for the work is not known, and counts as yes; no would lead to advisory_lock" in (
        reasons(**section)
    )


@pytest.mark.slow
def test_every_warning_can_be_due() -> None:
    """No sentence is left over, and a case that is in order has none but those that it must have."""
    more = [Need.of({"protects": "efficiency", "duplicates": "harmless", field: True}) for field in
            ("survives_failover", "regions", "audit")]  # fmt: skip
    fenced = {"protects": "correctness", "work": "external", "downstream_fences": True}
    missing = {"steps": False, "availability": "none", "metrics": False, "recovery": False}
    workflow, command = {"protects": "efficiency", "work": "workflow"}, {"protects": "correctness", "work": "command"}
    more += [Need.of({**answers, **missing}) for answers in (workflow, command, fenced)]
    due = {text for verdict in [*verdicts(), *map(advise, more)] for text in verdict.warnings}
    assert due == {one.text for one in WARNINGS}
    assert advise(CASES["cache-rebuild"]).warnings == ()


def test_an_audit_trail_is_asked_for_once() -> None:
    """In the transaction where that is its word, as a warning elsewhere; unknown counts as yes for correctness."""
    transition = advise(Need.of({"protects": "correctness", "work": "transition"}))
    assert transition.transaction.endswith("+ audit") and not [one for one in transition.warnings if "audit" in one]
    command = advise(Need.of({"protects": "correctness", "work": "command"}))
    assert "an audit trail is required is not known, and counts as yes" in "\n".join(command.warnings)
    settled = {"protects": "correctness", "work": "command", "audit": False, "metrics": True, "recovery": True}
    assert advise(Need.of(settled)).warnings == (
        "An idempotency key needs a durable home: a key that is forgotten protects nothing.",
    )


def test_work_that_can_be_split() -> None:
    """Progress is durable, step by step; what cannot be split is begun again. Of short work it is not asked."""
    long = {"protects": "efficiency", "duration": "3h"}
    assert advise(Need.of({**long, "steps": True})).transaction.endswith("with heartbeat + progress of each step")
    assert "goes on with the first that is not recorded" in reasons(**long, steps=True)
    assert "split" not in "\n".join(advise(Need.of({**long, "steps": True})).warnings)
    assert advise(Need.of({**long, "steps": False})).transaction == advise(Need.of(long)).transaction
    assert "A takeover begins the work again" in "\n".join(advise(Need.of({**long, "steps": False})).warnings)
    assert "can be split into durable steps is not known, and counts as no; yes would lead to" in reasons(**long)
    assert "split" not in reasons(protects="efficiency", duration="3s")


def test_how_long_the_store_may_be_away() -> None:
    """One that fails over by itself, unless hours are fine. Not known: seconds where correctness is at stake, hours
    where a lease only saves work."""
    task = {"protects": "efficiency", "work": "task"}
    stores = {
        answer: advise(Need.of({**task, "availability": answer})).store for answer in ("hours", "seconds", "none")
    }
    assert stores == {"hours": ONE_SERVER, "seconds": FAILS_OVER, "none": FAILS_OVER}
    assert "is away is not known, and counts as hours; seconds would lead to where the lease lives" in reasons(**task)
    command = {"protects": "correctness", "work": "command"}
    assert advise(Need.of(command)).store == FAILS_OVER
    assert "is away is not known, and counts as seconds; hours would lead to" in reasons(**command)
    assert "away" not in reasons(protects="efficiency", work="message", availability="seconds")
    must = {answers["protects"]: "\n".join(advise(Need.of({**answers, "availability": "none"})).warnings)
            for answers in (task, command)}  # fmt: skip
    assert "costs duplicates" in must["efficiency"] and "the database still decides" in must["correctness"]
    majority = {**task, "survives_failover": True, "duplicates": "costly", "availability": "hours"}
    assert advise(Need.of(majority)).store == NO_GRANT_FORGOTTEN


@pytest.mark.parametrize(("field", "word"), [("metrics", "alerts"), ("recovery", "cleared")])
def test_metrics_and_recovery(field: str, word: str) -> None:
    """Said where they are missing; not known counts as missing where correctness is at stake. Without a lease nobody
    needs them."""

    def warned(protects: str, work: str, **answers: Any) -> bool:
        return word in "\n".join(advise(Need.of({"protects": protects, "work": work, **answers})).warnings)

    assert warned("efficiency", "task", **{field: False}) and warned("correctness", "command", **{field: False})
    assert warned("correctness", "command") and not warned("efficiency", "task")
    assert not warned("correctness", "command", **{field: True})
    assert not warned("correctness", "message", **{field: False})


def test_it_reads_well() -> None:
    """For people: what to use, the columns, the reasons."""
    lines = str(advise(CASES["monthly-invoices"])).splitlines()
    assert lines[0] == "Use hold.cron to save work, and a unique constraint for the result."
    assert "  transaction required   yes, unique (customer, period)" in lines
    assert lines.index("Why") < lines.index("Warnings")
