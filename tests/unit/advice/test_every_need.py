"""What is true of every need: there is a verdict or a refusal, and a lease alone never keeps anything correct."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import InvalidRequest
from leasehold._core.schemes import OPENED
from leasehold.advice import CASES, Need, Verdict, advise
from leasehold.advice.decision import CONSENSUS, FAILS_OVER, NO_GRANT_FORGOTTEN, NOWHERE, ONE_SERVER, UNKNOWN, decide
from leasehold.advice.questions import CHOICES
from leasehold.advice.rules import RULES
from leasehold.advice.verdict import TOOLS
from tests.unit.advice.needs import combinations, needs

BOOL = st.sampled_from([None, True, False])
ANSWERS = st.fixed_dictionaries(
    {"protects": st.sampled_from(["efficiency", "correctness"])},
    optional={
        "work": st.sampled_from([None, *CHOICES["work"]]),
        "duplicates": st.sampled_from([None, *CHOICES["duplicates"]]),
        "idempotent": BOOL,
        "downstream_fences": BOOL,
        "survives_failover": BOOL,
        "duration": st.none() | st.floats(min_value=0.001, max_value=1e6) | st.sampled_from(["5m", "2h"]),
        "durable_state": BOOL,
        "row": BOOL,
        "audit": BOOL,
        "regions": BOOL,
        "steps": BOOL,
        "availability": st.sampled_from([None, *CHOICES["availability"]]),
        "metrics": BOOL,
        "recovery": BOOL,
        "limit": st.none() | st.integers(1, 1000),
        "unique": st.none() | st.lists(st.text("abc", min_size=1), min_size=1, max_size=3),
    },
)
TEXT = st.text("ab7 \x00\x1bé", max_size=5)
ANYTHING: Any = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.lists(TEXT, max_size=3)


def verdict_of(answers: dict[str, Any]) -> Verdict | None:
    """The verdict; None for answers that contradict each other."""
    try:
        return advise(Need(**answers))
    except InvalidRequest:
        return None


@pytest.mark.slow
def test_every_combination_is_decided_or_refused() -> None:
    """There is a rule for every need, no rule is hidden behind those above it, and some answers are refused."""
    every = needs()
    assert {id(decide(need).rule) for need in every} == {id(rule) for rule in RULES}
    assert 0 < len(every) < len(list(combinations()))


@pytest.mark.slow
def test_correctness_is_never_left_to_a_lease() -> None:
    """Where correctness is at stake, a lease never comes out alone: something else refuses the second."""
    for need in needs():
        if need.protects == "correctness":
            columns = decide(need).columns
            assert columns.lease != "yes"
            assert columns.transaction.startswith("yes")
            assert columns.lease != "yes, with its fence" or columns.fencing.startswith("yes")


def test_efficiency_is_never_told_to_do_without() -> None:
    """Where only work is at stake, nothing stronger than the durable state that is there is required."""
    for need in needs():
        if need.protects == "efficiency":
            assert decide(need).columns.tool != "consensus store"


SYSTEMS = {
    "Redis": "redis", "Sentinel": "sentinel", "Cluster": "cluster", "Redlock": "redlock",
    "SQLite": "sqlite", "etcd": "etcd", "ZooKeeper": "zookeeper", "PostgreSQL": "postgresql",
}  # fmt: skip


@pytest.mark.slow
def test_only_what_connect_opens_is_recommended() -> None:
    """Whatever the need, each system that it is sent to is in the list of those that connect opens."""
    failover = [replace(need, survives_failover=True) for need in needs()[::7]]
    recommended = {decide(need).columns.store for need in (*needs(), *failover)}
    assert recommended == {NOWHERE, ONE_SERVER, FAILS_OVER, CONSENSUS, NO_GRANT_FORGOTTEN}
    named = {name for store in recommended for word, name in SYSTEMS.items() if word in store}
    assert named == {"redis", "sentinel", "cluster", "postgresql", "etcd", "zookeeper"} <= set(OPENED)


@pytest.mark.slow
def test_consensus_is_for_leases_that_must_not_be_forgotten() -> None:
    """A lease that only saves work needs no majority, unless somebody says so; where nothing else could refuse the
    second writer, it is etcd or ZooKeeper."""
    for need in needs():
        columns = decide(need).columns
        asked = columns.lease == "yes, with its fence" or columns.tool == "consensus store"
        assert (columns.store == CONSENSUS) == asked


@given(ANSWERS)
def test_a_verdict_or_a_refusal(answers: dict[str, Any]) -> None:
    """Whatever the answers: a verdict that reads well and is JSON, or InvalidRequest; never another error."""
    verdict = verdict_of(answers)
    if verdict is None:
        return
    assert verdict.tool in TOOLS and len(verdict.reasons) >= 2
    assert json.loads(json.dumps(verdict.as_dict())) == verdict.as_dict()
    shown = str(verdict)
    assert "{" not in shown and "None" not in shown and "True" not in shown
    assert all(reason in shown for reason in (*verdict.reasons, *verdict.warnings))
    assert copy.deepcopy(verdict) == verdict


@given(st.dictionaries(st.sampled_from(["work", "limit", "audit", "duration", "unique", "duplicates"]), ANYTHING))
def test_nonsense_is_refused(answers: dict[str, Any]) -> None:
    """Values of any type give a need or InvalidRequest, and the refusal names the field."""
    refusal = ""
    try:
        Need.of({"protects": "efficiency", **answers})
    except InvalidRequest as error:
        refusal = str(error)
    assert not refusal or any(field in refusal for field in answers)


CAREFUL = {"idempotent": False, "downstream_fences": False, "durable_state": False, "steps": False}


@pytest.mark.slow
@pytest.mark.parametrize("field", CAREFUL)
def test_unknown_is_the_careful_answer(field: str) -> None:
    """Who does not know whether something helps is advised as if it did not."""
    for need in needs():
        if getattr(need, field) is None and need.work not in ("transition", "section"):
            assert decide(need).columns == decide(replace(need, **{field: CAREFUL[field]})).columns  # type: ignore[arg-type]  # by name


@pytest.mark.slow
def test_unknown_duplicates_are_as_bad_as_can_be() -> None:
    """Costly where work is at stake, wrong where correctness is."""
    for need in needs():
        if need.duplicates is None:
            worst = replace(need, duplicates="wrong" if need.protects == "correctness" else "costly")
            assert decide(need).columns == decide(worst).columns


@given(ANSWERS)
def test_what_is_not_known_is_said(answers: dict[str, Any]) -> None:
    """An answer that is missing and would change the verdict is named in the reasons, with what it would lead to."""
    verdict = verdict_of(answers)
    if verdict is None:
        return
    need = Need(**answers)
    for field in ("idempotent", "downstream_fences", "durable_state"):
        if getattr(need, field) is None:
            other = verdict_of({**answers, field: True})
            if other is not None and other.tool != verdict.tool:
                told = [
                    one for one in verdict.reasons if one.startswith(f"{UNKNOWN[field]} is not known, and counts as no")
                ]
                assert len(told) == 1 and f"yes would lead to {other.tool}" in told[0]


@given(ANSWERS)
def test_answers_make_the_same_need(answers: dict[str, Any]) -> None:
    """What a need gives as JSON makes the same need again."""
    try:
        need = Need(**answers)
    except InvalidRequest:
        return
    assert Need.of(json.loads(json.dumps(need.answers()))) == need
    assert hash(need) == hash(Need(**answers))


def test_cases_are_needs_like_any_other() -> None:
    """They can be changed a little, and asked about again."""
    capture = CASES["payment-capture"]
    assert advise(replace(capture, downstream_fences=True)).tool == "lock + guard"
    assert advise(replace(capture, idempotent=False)).tool == "transition"
