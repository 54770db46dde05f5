"""From a need to the columns of its verdict: the rule that fits, and the store that a lease would live in."""

from __future__ import annotations

from typing import NamedTuple

from leasehold.advice.facts import Facts, facts
from leasehold.advice.need import Need
from leasehold.advice.rules import FENCED, NO, Rule, rule_for

DUPLICATES = {"harmless": "yes", "costly": "costly, not wrong", "wrong": "no"}
NOWHERE, ONE_REDIS, CONSENSUS = "none is needed", "one Redis or Sentinel, with the watchdog", "etcd or ZooKeeper"


class Columns(NamedTuple):
    """What a verdict says, without its reasons."""

    tool: str
    lease: str
    fencing: str
    transaction: str
    duplicates: str
    store: str


class Decision(NamedTuple):
    """The rule that fits, the facts that it was found by, and the columns."""

    rule: Rule
    known: Facts
    columns: Columns


class Unique:
    """The columns of a unique constraint, in a line of the table."""

    def __init__(self, columns: tuple[str, ...] | None) -> None:
        self._columns = columns

    def __format__(self, otherwise: str) -> str:
        named = ", ".join(self._columns or ()) or otherwise
        return f"unique ({named})" if named else "a unique constraint"


def decide(need: Need) -> Decision:
    known = facts(need)
    rule = rule_for(known)
    transaction = rule.transaction.format(unique=Unique(need.unique), audit=" + audit" if known.audit else "")
    duplicates = DUPLICATES[known.duplicates]
    return Decision(
        rule, known, Columns(rule.tool, rule.lease, rule.fencing, transaction, duplicates, _store(rule, known))
    )


def _store(rule: Rule, known: Facts) -> str:
    """A lease that only saves work may be forgotten. One that more depends on may not, until somebody says so."""
    if rule.lease == NO:
        return NOWHERE
    apart = known.regions is True and known.duplicates != "harmless"
    unknown = rule.lease == FENCED and None in (known.survives_failover, known.regions)
    if rule.tool == "consensus store" or known.survives_failover is True or apart or unknown:
        return CONSENSUS
    return ONE_REDIS
