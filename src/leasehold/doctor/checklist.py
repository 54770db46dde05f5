"""The checklist before production: sixteen points, each *pass*, *fail* or *only you can know*; *not tried* without a
store.

A point is decided by what was seen: in the trial on the store, in the metrics of programs. What people answer counts
where nothing was seen that says otherwise: evidence of a failure is stronger than an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from leasehold.advice.samples import ENOUGH
from leasehold.doctor import antipatterns
from leasehold.doctor.answers import QUESTIONS, Answers
from leasehold.doctor.examination import Examination
from leasehold.doctor.exposition import Exposition
from leasehold.doctor.report import NOTE, OK, Finding
from leasehold.doctor.trial import Trial

PASS: Final = "pass"  # noqa: S105 - no password
FAIL: Final = "fail"
UNKNOWN: Final = "only you can know"
UNTRIED: Final = "not tried"
NO_LEASE = "no lease could be taken: mend the problem above, and try again"
MEASURED = {
    "acquire": "leasehold_acquire_total",
    "release": "leasehold_release_total",
    "extend": "leasehold_renew_total",
    "lost": "leasehold_lost_total",
    "stale": "leasehold_stale_release_total",
}


class Point(NamedTuple):
    """One point, and why it is decided so."""

    number: int
    title: str
    verdict: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


class Evidence(NamedTuple):
    """All that is known."""

    examination: Examination
    metrics: Exposition | None
    patterns: Sequence[Finding]
    answers: Answers

    @property
    def trial(self) -> Trial | None:
        return self.examination.trial

    def shown(self, *names: str) -> list[Finding]:
        """Anti-patterns of these names that are more than a note."""
        return [one for one in self.patterns if one.check in names and one.severity not in (OK, NOTE)]

    @property
    def only_efficiency(self) -> bool:
        return self.answers.get("protects") == "efficiency"


Decision = tuple[str, str]


def points(examination: Examination, metrics: Exposition | None = None, answers: Answers | None = None) -> list[Point]:
    """All points in their order."""
    patterns = antipatterns.find(metrics) if metrics is not None else []
    evidence = Evidence(examination, metrics, patterns, answers or {})
    return [Point(number, title, *decide(evidence)) for number, (title, decide) in enumerate(POINTS, 1)]


# ---------------------------------------------------------------- from the store


def _atomic(seen: Evidence) -> Decision:
    leaks = [one for one in seen.examination.report.of("keys without ttl") if one.severity not in (OK, NOTE)]
    for one in (*leaks, *seen.shown("no ttl")):
        return FAIL, one.text
    if seen.trial is None:
        return UNTRIED, NO_LEASE
    return _tried(seen.trial.ends_by_itself, "a lease has its end from its first moment: one step sets both")


def _unique(seen: Evidence) -> Decision:
    if seen.trial is None:
        return UNTRIED, NO_LEASE
    return _tried(seen.trial.owners_unique, f"{len(seen.trial.latencies) + 1} acquisitions had different owners")


def _release(seen: Evidence) -> Decision:
    for one in seen.shown("blind delete"):
        return FAIL, one.text
    if seen.trial is None:
        return UNTRIED, NO_LEASE
    return _tried(seen.trial.release_compares, "a release with another owner was refused, and the lease stayed")


def _renewal(seen: Evidence) -> Decision:
    if seen.trial is None:
        return UNTRIED, NO_LEASE
    passed = seen.trial.renewal_compares and seen.trial.renewal_expires
    return _tried(passed, "a renewal with another owner was refused; one by its owner set a new end")


def _tried(passed: bool, text: str) -> Decision:
    return (PASS, text) if passed else (FAIL, f"in the trial it was not so that {text}")


def _hash_tags(seen: Evidence) -> Decision:
    if seen.examination.report.store != "cluster":
        return PASS, f"a store on {seen.examination.report.store} has no slots"
    if seen.trial is None:
        return UNTRIED, NO_LEASE
    return PASS, "one script used all keys of a resource in the Cluster, which refuses keys of several slots"


# ---------------------------------------------------------------- from metrics and answers

LOST = "leasehold_lost_total"
MEANT = ("closed", "resigned")  # by the program itself: they do not show what it does at a loss


def _ttl(seen: Evidence) -> Decision:
    for one in seen.shown("ttl too long", "ttl too short"):
        return FAIL, one.text
    if seen.metrics is not None and seen.metrics.has(antipatterns.TTL) and _enough(seen.metrics):
        return PASS, "the ttls fit to how long leases are held, by the metrics"
    return _answered(seen, "ttl_measured")


def _enough(metrics: Exposition) -> bool:
    return metrics.count(antipatterns.HOLD) >= ENOUGH


def _stops(seen: Evidence) -> Decision:
    for one in seen.shown("believing expiry"):
        return FAIL, one.text
    lost = seen.metrics.total(LOST) - sum(seen.metrics.total(LOST, reason=one) for one in MEANT) if seen.metrics else 0
    if lost:
        were = antipatterns.many(lost, "lease was", "leases were")
        return PASS, f"{were} lost, and no release or guarded write came afterwards"
    return _answered(seen, "work_stops")


def _fenced(seen: Evidence) -> Decision:
    for one in seen.shown("no fencing", "redlock as magic"):
        return FAIL, one.text
    return _unless_efficiency(seen, "fenced")


def _guarded(seen: Evidence) -> Decision:
    refused = seen.metrics.total("leasehold_fencing_rejected_total") if seen.metrics is not None else 0
    if refused and not seen.shown("no fencing", "redlock as magic"):
        return PASS, f"a guard refused {antipatterns.many(refused, 'stale write', 'stale writes')}"
    for one in seen.shown("no fencing", "redlock as magic"):
        return FAIL, one.text
    return _unless_efficiency(seen, "guarded")


def _backoff(seen: Evidence) -> Decision:
    for one in seen.shown("endless retry"):
        return FAIL, one.text
    if seen.metrics is not None and seen.metrics.total("leasehold_contention_total"):
        return PASS, "there was contention, and no retry loop in the metrics"
    return _answered(seen, "backoff")


def _durable(seen: Evidence) -> Decision:
    return _unless_efficiency(seen, "durable_state")


def _metrics(seen: Evidence) -> Decision:
    if seen.metrics is None:
        return _answered(seen, "metrics")
    missing = [what for what, name in MEASURED.items() if not seen.metrics.has(name)]
    if missing:
        return FAIL, f"the metrics lack {', '.join(missing)}: add a PrometheusObserver"
    return PASS, "the exposition has all of them"


def _unless_efficiency(seen: Evidence, name: str) -> Decision:
    if seen.only_efficiency and name not in seen.answers:
        return PASS, "only efficiency is protected, by the answers"
    return _answered(seen, name)


def _answered(seen: Evidence, name: str) -> Decision:
    answer = seen.answers.get(name)
    if answer is None:
        return UNKNOWN, f"{QUESTIONS[name]} In the answers: {name}"
    if answer is False:
        return FAIL, f"the answers say no: {name}"
    return PASS, f"the answers say so: {name}" + (f", {answer}" if isinstance(answer, str) else "")


def _by_answer(name: str) -> Callable[[Evidence], Decision]:
    return lambda seen: _answered(seen, name)


POINTS: tuple[tuple[str, Callable[[Evidence], Decision]], ...] = (
    ("acquire is atomic with a TTL", _atomic),
    ("owner unique for each acquisition", _unique),
    ("release compares and deletes", _release),
    ("renewal compares and expires", _renewal),
    ("ttl from measured work and pause", _ttl),
    ("work stops when renewal fails", _stops),
    ("fence where stale writes matter", _fenced),
    ("downstream enforces it", _guarded),
    ("hash tags right", _hash_tags),
    ("bounded backoff with jitter", _backoff),
    ("duplicates idempotent or harmless", _by_answer("idempotent")),
    ("correctness-critical state in a database or consensus", _durable),
    ("metrics for acquire, release, extend, lost, stale", _metrics),
    ("a stale-release test", _by_answer("stale_release_test")),
    ("fault injection for timeout, crash, expiry", _by_answer("fault_injection")),
    ("a runbook for inspecting and clearing", _by_answer("runbook")),
)
