"""``leasehold doctor``: examine the store as a program would use it, the metrics of programs, and the checklist."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from base64 import b64encode
from http.client import HTTPException, InvalidURL
from typing import Any
from urllib.parse import unquote_to_bytes

import click

from leasehold.cli.coordinator import failed, open_hold
from leasehold.cli.output import CommandEnded, ExitCode, printable
from leasehold.cli.terminal import MOST_BYTES, echo, paint, text_of, wrapped
from leasehold.doctor import Examination, Finding, answers, antipatterns, checklist, examine
from leasehold.doctor.checklist import FAIL, PASS, UNKNOWN, UNTRIED, Point
from leasehold.doctor.exposition import Exposition
from leasehold.doctor.report import NOTE, OK, PROBLEM, SEVERITIES, WARNING
from leasehold.errors import InvalidRequest, LeaseholdError

PROBLEMS = 1  # the exit code when there are any
SCRAPED_WITHIN = 5.0  # seconds
COLOURS = {
    OK: "green", NOTE: "cyan", WARNING: "yellow", PROBLEM: "red",
    PASS: "green", FAIL: "red", UNKNOWN: "yellow", UNTRIED: "red",
}  # fmt: skip
SEVERE = (PROBLEM, WARNING)  # what is told of the store above the checklist
RIGHTS = ("permissions", "operators")  # checks whose fix is what an administrator types
WIDEST = max(map(len, SEVERITIES))
LOGIN = re.compile(r"(https?://)([^/?#]*)@")


def print_report(
    url: str | None,
    namespace: str | None,
    as_json: bool,
    with_checklist: bool,
    metrics_from: str | None,
    answers_from: str | None,
) -> None:
    """Examine, print, and exit with 1 when there is a problem, or a point of the checklist fails."""
    if answers_from is not None and not with_checklist:
        raise click.UsageError("--answers is for the checklist: add --checklist")
    answered = _read(answers_from, answers.parse) if answers_from is not None else {}
    metrics = _read_metrics(metrics_from) if metrics_from is not None else None
    found = _examined(url, namespace)
    if metrics is not None:
        found = found._replace(report=found.report.with_findings(antipatterns.find(metrics)))
    points = checklist.points(found, metrics, answered) if with_checklist else []
    if as_json:
        _print_json(found, points, with_checklist)
    else:
        _print(found, points, with_checklist)
    raise SystemExit(_code(found, points))


def print_template() -> None:
    echo(answers.template().rstrip("\n"))


def _examined(url: str | None, namespace: str | None) -> Examination:
    try:
        with open_hold(url, namespace) as hold:
            return examine(hold)
    except LeaseholdError as error:
        raise failed(error) from error


def _code(found: Examination, points: list[Point]) -> int:
    if not found.report.reachable:
        return ExitCode.UNAVAILABLE
    return PROBLEMS if found.report.worst == PROBLEM or any(one.verdict == FAIL for one in points) else 0


# ---------------------------------------------------------------- what is given


def _read(path: str, parse: Any) -> Any:
    text = text_of(path)
    try:
        return parse(text)
    except InvalidRequest as error:
        raise CommandEnded(ExitCode.USAGE, "failed", f"{printable(path)}: {printable(str(error))}") from None


def _read_metrics(place: str) -> Exposition:
    """From a file, standard input, or a URL that Prometheus scrapes."""
    if not place.startswith(("http://", "https://")):
        found: Exposition = _read(place, Exposition)
        return found
    login = LOGIN.match(place)
    url = place if login is None else login[1] + place[login.end() :]
    try:
        request = urllib.request.Request(url)  # noqa: S310 - the scheme was checked
        if login is not None:  # urllib would take it for a part of the host
            sent = b64encode(unquote_to_bytes(login[2])).decode("ascii")
            request.add_unredirected_header("Authorization", f"Basic {sent}")  # not to where a reply sends us
        with urllib.request.urlopen(request, timeout=SCRAPED_WITHIN) as reply:  # noqa: S310 - likewise
            text = reply.read(MOST_BYTES).decode("utf-8", "replace")
        return Exposition(text)
    except (OSError, ValueError, HTTPException) as error:  # those of urllib are OSErrors, InvalidRequest a ValueError
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is the reply
        why = getattr(error, "reason", None) or ("this is no URL" if isinstance(error, InvalidURL) else error)
        scheme, _, rest = url.partition("://")
        shown = f"{scheme}://{rest.rpartition('@')[2]}"  # never a password, however it is written
        raise CommandEnded(ExitCode.USAGE, "failed", f"{printable(shown)}: {printable(str(why))}") from None


# ---------------------------------------------------------------- for programs


def _print_json(found: Examination, points: list[Point], with_checklist: bool) -> None:
    document = found.report.as_dict()
    if found.trial is not None:
        document["latency"] = {"p50": found.trial.p(0.5), "p99": found.trial.p(0.99)}
    if with_checklist:
        document["checklist"] = [one.as_dict() for one in points]
    echo(json.dumps(document, indent=2))


# ---------------------------------------------------------------- for people


def _print(found: Examination, points: list[Point], with_checklist: bool) -> None:
    report = found.report
    echo(paint(printable(f"{report.store}: {report.place}"), bold=True))
    shown = [one for one in report.findings if not with_checklist or one.severity in SEVERE]
    groups = _grouped(shown)
    for finding, places in groups.items():
        _print_finding(finding, ", ".join(one for one in places if one not in ("", report.place)))
    for point in points:
        _print_point(point)
    echo()
    echo(_summary([one.severity for one in groups], points))


def _grouped(findings: list[Finding]) -> dict[Finding, list[str]]:
    """The places of each finding: several servers often have the same one."""
    groups: dict[Finding, list[str]] = {}
    for one in findings:
        groups.setdefault(one.at(""), []).append(one.place)
    return groups


def _print_finding(finding: Finding, place: str) -> None:
    head = paint(f"{finding.severity:<{WIDEST}}", COLOURS[finding.severity])
    where = f" [{printable(place)}]" if place else ""
    _echo(f"{head}  {finding.check}: {printable(finding.text)}{where}", WIDEST + 2)
    if finding.severity != OK and finding.reason:
        _echo(f"{'':{WIDEST}}  {printable(finding.reason)}.", WIDEST + 2)
    if finding.fix and (finding.severity != OK or finding.check in ("permissions", "operators")):
        label = "rights" if finding.check in RIGHTS else "fix"
        _echo(f"{'':{WIDEST}}  {label}: {printable(finding.fix)}", WIDEST + 4)


def _print_point(point: Point) -> None:
    verdict = paint(f"{point.verdict:<{len(UNKNOWN)}}", COLOURS[point.verdict])
    indent = len(UNKNOWN) + 6
    _echo(f"{point.number:>2}  {verdict}  {point.title}", indent)
    _echo(f"{'':{indent}}{printable(point.reason)}", indent)


def _echo(line: str, indent: int) -> None:
    for part in wrapped(line, " " * indent):
        echo(part)


def _summary(severities: list[str], points: list[Point]) -> str:
    """Only what was printed is counted: once, what several servers have."""
    counts = [_count(severities.count(one), one) for one in (SEVERE if points else (*SEVERE, NOTE))]
    verdicts = [point.verdict for point in points]
    decided = (PASS, FAIL, UNKNOWN, *([UNTRIED] if UNTRIED in verdicts else []))
    return ", ".join([*counts, *([f"{verdicts.count(one)} {one}" for one in decided] if points else [])])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
