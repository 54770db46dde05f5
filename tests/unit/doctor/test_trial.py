"""The trial: as the store keeps ids hidden, in a namespace, and a store that breaks the protocol."""

from __future__ import annotations

from typing import Any

import pytest

import leasehold
from leasehold._core import ops
from leasehold.doctor import examine, trial
from leasehold.doctor.report import Report, note, ok, problem, warning
from leasehold.stores.memory import MemoryStore


def test_hidden_ids_and_a_namespace() -> None:
    """The same trial, and nothing is held afterwards."""
    with leasehold.connect(MemoryStore(), namespace="acme", hide_ids="a key of our own") as hold:
        seen = trial.run(hold)
        assert all(seen[1:]) and len(seen.latencies) == trial.PAIRS
        assert [one.resource for one in hold.scan() if one.held] == []


class Careless(MemoryStore):
    """Releases for anybody."""

    def execute(self, op: Any) -> Any:
        """A stranger's release is carried out as if it were the owner's."""
        if isinstance(op, ops.Release):
            view = super().execute(ops.Inspect(op.resource))
            op = op._replace(owner=view.holders[0].owner) if view.holders else op  # type: ignore[union-attr]
        return super().execute(op)


def test_a_store_that_does_not_compare() -> None:
    """It is found, and named."""
    with leasehold.connect(Careless()) as hold:
        seen = examine(hold)
    assert seen.trial is not None and not seen.trial.release_compares
    (finding,) = seen.report.of("protocol")
    assert finding.severity == "problem" and "release_compares" in finding.text


@pytest.mark.parametrize(("slowest", "severity"), [(0.01, "ok"), (0.4, "warning")])
def test_latency(slowest: float, severity: str) -> None:
    """By the slowest of a hundred."""
    seen = trial.Trial((*[0.001] * 98, slowest, slowest), *[True] * 5)
    assert (seen.p(0.5), seen.p(0.99)) == (0.001, slowest) and trial.latency(seen).severity == severity


def test_a_report() -> None:
    """Its worst severity, its findings by check, and its form for programs."""
    findings = (ok("a", "fine"), note("b", "so"), warning("b", "hm", "why", "fix"))
    report = Report("redis", "here", findings)
    assert report.worst == "warning" and report.with_findings([problem("c", "x", "why", "fix")]).worst == "problem"
    assert report.of("b") == list(findings[1:]) and report.count("ok") == 1 and Report("redis", "", ()).worst == "ok"
    assert report.as_dict()["findings"][0] == findings[0]._asdict()
