"""The six cases, and the rows of the two tables: each comes out as it is written."""

from __future__ import annotations

from typing import Any

import pytest

import leasehold
from leasehold.advice import CASES, Need, advise
from leasehold.advice.decision import CONSENSUS, NO_GRANT_FORGOTTEN, ONE_SERVER
from leasehold.advice.rules import RULES
from leasehold.advice.verdict import TOOLS
from tests.support.tables import each

# lease, fencing, transaction, duplicates
SIX = {
    "cache-rebuild": ("yes", "no (a version or short TTL is enough)", "no", "yes"),
    "search-index-refresh": ("yes", "helpful", "no", "yes"),
    "report-export": ("yes", "yes, on the job row", "conditional update of its status", "costly, not wrong"),
    "monthly-invoices": ("only to save work", "yes", "yes, unique (customer, period)", "no"),
    "payment-capture": (
        "only to save work", "not sufficient", "yes, idempotency key at the provider and unique constraint", "no",
    ),
    "legal-case-assignment": ("only to save work", "not sufficient", "yes, conditional transition + audit", "no"),
}  # fmt: skip
TOOL = {
    "cache-rebuild": "single_flight",
    "search-index-refresh": "cron",
    "report-export": "lock + guard",
    "monthly-invoices": "cron + insert_once",
    "payment-capture": "once",
    "legal-case-assignment": "transition",
}


@each("name", SIX)
def test_the_six_cases(name: str) -> None:
    """Each case says in its four columns exactly what the table says, and which tool that is."""
    verdict = leasehold.advise(CASES[name])
    assert (verdict.lease, verdict.fencing, verdict.transaction, verdict.duplicates) == SIX[name]
    assert verdict.tool == TOOL[name]


def test_there_are_no_more_and_no_less() -> None:
    """The names, in the order of the table."""
    assert list(CASES) == list(SIX)
    assert CASES["monthly-invoice-generation"] is CASES["monthly-invoices"]
    with pytest.raises(KeyError, match="daily-invoices"):
        CASES["daily-invoices"]


@each("name", SIX)
def test_every_answer_of_a_case_is_given(name: str) -> None:
    """A case leaves nothing open, so that nothing in it is a guess."""
    assert not [reason for reason in advise(CASES[name]).reasons if "not known" in reason]


EFFICIENCY, CORRECTNESS = {"protects": "efficiency"}, {"protects": "correctness"}
STATE = {"durable_state": True, "idempotent": True, "audit": True, "duplicates": "wrong", **CORRECTNESS}

# situation: answers; then what the verdict must be.
SITUATIONS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "duplicate cache rebuild": (
        {"work": "cache", "duplicates": "harmless", "survives_failover": False, **EFFICIENCY},
        {"tool": "single_flight", "lease": "yes", "store": ONE_SERVER},
    ),
    "duplicate non-critical schedule": (
        {"work": "schedule", "duplicates": "harmless", "idempotent": True, **EFFICIENCY},
        {"tool": "cron", "lease": "yes"},
    ),
    "expensive task, N for each tenant": (
        {"work": "task", "limit": 3, "duplicates": "costly", "durable_state": True, **EFFICIENCY},
        {"tool": "semaphore + jobs", "lease": "yes", "transaction": "conditional update of its status"},
    ),
    "state transition of a database row": (
        {"work": "transition", **EFFICIENCY},
        {"tool": "transition", "lease": "no", "transaction": "conditional update or transaction"},
    ),
    "payment, stock, legal or regulatory correctness": (
        STATE,
        {"tool": "transition", "lease": "only to save work", "transaction": "yes, conditional transition + audit"},
    ),
    "long-running workflow (hours)": (
        {"work": "workflow", "duration": "5h", **EFFICIENCY},
        {"tool": "jobs", "lease": "only to save work", "transaction": "yes, durable ownership with heartbeat"},
    ),
    "any work of hours": (
        {"work": "task", "duration": "61m", **EFFICIENCY},
        {"tool": "jobs"},
    ),
    "external effect that can check a fence": (
        {"work": "external", "downstream_fences": True, **CORRECTNESS},
        {"tool": "lock + guard", "lease": "yes, with its fence", "fencing": "yes, checked where the effect happens"},
    ),
    "external effect that cannot: idempotency": (
        {"work": "external", "downstream_fences": False, "idempotent": True, **CORRECTNESS},
        {"tool": "once", "lease": "only to save work", "fencing": "not sufficient"},
    ),
    "external effect that cannot: durable state": (
        {"work": "external", "downstream_fences": False, "idempotent": False, "durable_state": True, **CORRECTNESS},
        {"tool": "transition", "transaction": "yes, intent recorded before the effect + audit"},
    ),
    "external effect that cannot: stronger coordination": (
        {"work": "external", "downstream_fences": False, "idempotent": False, "durable_state": False, **CORRECTNESS},
        {"tool": "consensus store", "store": CONSENSUS},
    ),
    "unique processing of a command": (
        {"work": "command", **CORRECTNESS},
        {"tool": "once", "lease": "only to save work", "transaction": "yes, unique (command id)"},
    ),
    "message handling": (
        {"work": "message", "idempotent": True, **CORRECTNESS},
        {"tool": "consumer group", "lease": "no", "store": "none is needed"},
    ),
    "general mutual exclusion, occasional duplicates harmless": (
        {"work": "general", "duplicates": "harmless", **EFFICIENCY},
        {"tool": "lock", "lease": "yes", "store": ONE_SERVER},
    ),
    "strong consistency across services: the state": (
        {"survives_failover": True, "durable_state": False, **CORRECTNESS},
        {"tool": "consensus store", "store": CONSENSUS},
    ),
    "strong consistency across services: the lock": (
        {"survives_failover": True, "duplicates": "costly", **EFFICIENCY},
        {"tool": "lock", "store": NO_GRANT_FORGOTTEN},
    ),
    "the database is the ground truth and the section is short": (
        {"work": "section", "duration": "200ms", **CORRECTNESS},
        {"tool": "row_lock", "lease": "no", "transaction": "yes, row lock in one transaction (FOR UPDATE NOWAIT)"},
    ),
}


@each("situation", SITUATIONS)
def test_every_situation(situation: str) -> None:
    """Each row of the table of verdicts is what its answers lead to."""
    answers, expected = SITUATIONS[situation]
    verdict = advise(Need.of(answers))
    assert {column: getattr(verdict, column) for column in expected} == expected


REACH: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "avoid duplicate cache rebuild": (
        {"work": "cache", **EFFICIENCY}, ("usually enough", "overkill", "not needed"),
    ),
    "avoid duplicate non-critical cron": (
        {"work": "schedule", **EFFICIENCY}, ("usually enough", "maybe", "not needed"),
    ),
    "single worker for an idempotent job": (
        {"work": "task", "idempotent": True, "durable_state": True, **EFFICIENCY},
        ("often, with idempotency", "maybe", "maybe"),
    ),
    "payment, stock, legal transition": (STATE, ("not enough alone", "not enough alone", "required")),
    "external effect with stale risk": (
        {"work": "external", "downstream_fences": True, **CORRECTNESS},
        ("needs fencing", "needs fencing", "often required"),
    ),
}  # fmt: skip


@each("use", REACH)
def test_how_far_each_mechanism_carries(use: str) -> None:
    """Each row of that table: one Redis, Redlock, consensus or a database."""
    answers, expected = REACH[use]
    assert tuple(advise(Need.of(answers)).reach) == expected


def test_every_tool_is_explained_and_used() -> None:
    """No rule names a tool without a sentence, and no sentence is left over."""
    assert {rule.tool for rule in RULES} == set(TOOLS)
