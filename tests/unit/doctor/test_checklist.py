"""The sixteen points: each can pass, fail, or be only yours to know; evidence is stronger than an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import leasehold
from leasehold.doctor import Examination, answers, examine
from leasehold.doctor.checklist import FAIL, PASS, POINTS, UNKNOWN, UNTRIED, points
from leasehold.doctor.exposition import Exposition
from leasehold.doctor.report import Report, warning
from leasehold.doctor.trial import Trial
from leasehold.errors import InvalidRequest
from leasehold.observe.prometheus import PrometheusObserver
from tests.support.tables import each

GOOD = Trial((0.001,) * 9, *[True] * 5)
YES: answers.Answers = {name: True for name in answers.QUESTIONS if name != "protects"}


def seen(trial: Trial | None = GOOD, store: str = "redis", **more: str) -> Examination:
    """An examination with this trial and these warnings."""
    findings = tuple(warning(check.replace("_", " "), text, "why", "fix") for check, text in more.items())
    return Examination(Report(store, "here", findings), trial)


def verdicts(examination: Examination, metrics: str = "", given: answers.Answers | None = None) -> list[str]:
    """Of all points in their order."""
    found = points(examination, Exposition(metrics) if metrics else None, given)
    assert [one.number for one in found] == list(range(1, 17)) and all(one.reason for one in found)
    return [one.verdict for one in found]


def test_there_are_sixteen() -> None:
    """With these titles, which people know from the page."""
    page = (Path(__file__).parents[3] / "docs" / "howto" / "doctor.md").read_text()
    assert len(POINTS) == 16 and all(f"| {title} |" in page for title, _ in POINTS)


def test_without_metrics_and_answers() -> None:
    """The store shows five of them; people know the rest."""
    passed = [number for number, verdict in enumerate(verdicts(seen()), 1) if verdict == PASS]
    assert passed == [1, 2, 3, 4, 9] and set(verdicts(seen())) == {PASS, UNKNOWN}


def test_without_a_lease() -> None:
    """What was not tried is not claimed, and nobody is asked to know it."""
    found = verdicts(seen(None, store="cluster"), given=YES)
    assert [number for number, verdict in enumerate(found, 1) if verdict == UNTRIED] == [1, 2, 3, 4, 9]
    assert verdicts(seen(None))[8] == PASS and PASS not in verdicts(seen(None, store="cluster"))


@each(
    ("field", "number"),
    {
        "ends_by_itself": 1,
        "owners_unique": 2,
        "release_compares": 3,
        "renewal_compares": 4,
        "renewal_expires": 4,
    }.items(),
)
def test_a_store_that_does_not_keep_the_protocol(field: str, number: int) -> None:
    """Fails the point that it breaks."""
    found = verdicts(seen(Trial(**{**GOOD._asdict(), field: False})))
    assert [at for at, verdict in enumerate(found, 1) if verdict == FAIL] == [number]


def test_every_answer_decides_a_point() -> None:
    """Yes passes, no fails, and a text is a yes that is shown."""
    assert verdicts(seen(), given=YES) == [PASS] * 16
    for name in YES:
        found = points(seen(), None, {**YES, name: False})
        assert [one.verdict for one in found].count(FAIL) == 1, name
    found = points(seen(), None, {"runbook": "wiki/leases"})
    assert found[15].verdict == PASS and "wiki/leases" in found[15].reason


def test_what_protects_only_efficiency() -> None:
    """Needs neither a fence nor a database; but an answer that says no still counts."""
    found = verdicts(seen(), given={"protects": "efficiency"})
    assert [found[number - 1] for number in (7, 8, 12)] == [PASS] * 3
    assert verdicts(seen(), given={"protects": "efficiency", "fenced": False})[6] == FAIL


BAD = {
    1: "leasehold_keys_without_ttl 1",
    3: 'leasehold_lost_total{kind="a",reason="deleted"} 1',
    5: 'leasehold_lost_total{kind="a",reason="expired"} 1',
    6: 'leasehold_stale_release_total{kind="a"} 1',
    7: 'leasehold_unguarded_total{kind="a"} 1',
    8: 'leasehold_unguarded_total{kind="a"} 1',
    10: 'leasehold_antipattern_total{kind="a",pattern="retry_loop"} 1',
    13: "leasehold_held 1",
}


@each("number", BAD)
def test_evidence_is_stronger_than_answers(number: int) -> None:
    """Metrics show that it is not so."""
    assert verdicts(seen(), BAD[number], YES)[number - 1] == FAIL


def test_keys_of_another_library() -> None:
    """Somebody acquires without a TTL."""
    assert verdicts(seen(keys_without_ttl="2 keys have no TTL"), given=YES)[0] == FAIL


GOOD_SIGNS = {
    5: 'leasehold_ttl_seconds{kind="a"} 30\nleasehold_hold_seconds_bucket{kind="a",le="10.0"} 2000\n'
    'leasehold_hold_seconds_bucket{kind="a",le="+Inf"} 2000',
    6: 'leasehold_lost_total{kind="a",reason="renewal_failed"} 2',
    8: 'leasehold_fencing_rejected_total{kind="a",downstream="sql"} 2',
    10: 'leasehold_contention_total{kind="a"} 5',
}


@each("number", GOOD_SIGNS)
def test_metrics_can_show_that_it_is_so(number: int) -> None:
    """Without an answer."""
    assert verdicts(seen(), GOOD_SIGNS[number])[number - 1] == PASS


@each("reason", ["closed", "resigned"])
def test_what_a_program_ends_itself_shows_nothing(reason: str) -> None:
    """A coordinator that is closed, or a leader that resigns, has lost nothing that its work did not know of."""
    meant = f'leasehold_lost_total{{kind="a",reason="{reason}"}} 7'
    assert verdicts(seen(), meant)[5] == UNKNOWN
    found = points(seen(), Exposition(f'{meant}\nleasehold_lost_total{{kind="a",reason="evicted"}} 1'), None)[5]
    assert (found.verdict, found.reason[:17]) == (PASS, "1 lease was lost,")


def test_metrics_of_the_observer() -> None:
    """Have all that the point about metrics wants, before anything was counted."""
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    assert verdicts(seen(), generate_latest(registry).decode())[12] == PASS


def test_a_real_store() -> None:
    """In memory: the trial passes."""
    with leasehold.connect("memory://") as hold:
        assert verdicts(examine(hold))[:4] == [PASS] * 4


# ---------------------------------------------------------------- the file of answers


def test_answers_in_both_formats() -> None:
    """TOML and JSON say the same; what is not known may be null there."""
    expected = {"protects": "correctness", "runbook": "wiki", "guarded": False}
    assert answers.parse('protects = "correctness"\nrunbook = "wiki"\nguarded = false\n') == expected
    assert answers.parse(json.dumps({**expected, "metrics": None})) == expected


def test_the_template_is_such_a_file() -> None:
    """As it is it answers nothing; without the comment signs, everything."""
    text = answers.template()
    assert answers.parse(text) == {}
    lines = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    assert answers.parse("\n".join(lines)).keys() == answers.QUESTIONS.keys()


@each(
    ("text", "why"),
    {
        "runbok = true": "there is no answer called 'runbok'",
        'protects = "money"': "protects must be one of efficiency, correctness",
        "runbook = 3": "runbook is true, false, or a text",
        'runbook = " "': "runbook is true, false, or a text",
        'fenced = "no"': "fenced is 'no' as a text",
        '{"guarded": " False "}': "guarded is 'False' as a text",
        'backoff = "todo"': "backoff is 'todo' as a text",
        "runbook": "neither TOML nor JSON",
        "{runbook": "neither TOML nor JSON",
    }.items(),
)
def test_answers_that_cannot_be_read(text: str, why: str) -> None:
    """One sentence."""
    with pytest.raises(InvalidRequest, match=why):
        answers.parse(text)


def test_answers_that_are_too_deep() -> None:
    """Refused like any other syntax."""
    for deep in ('{"runbook": ' * 9999, "runbook = " + "[" * 9999):
        with pytest.raises(InvalidRequest, match="neither TOML nor JSON"):
            answers.parse(deep)
