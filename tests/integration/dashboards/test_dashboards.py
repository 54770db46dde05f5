"""The dashboard and the alerts: written for metrics that exist, checked and run by a real Prometheus."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server

from leasehold.cli import run_outcome
from leasehold.observe import metrics
from leasehold.observe.prometheus import PrometheusObserver
from tests.support.observe.workload import Workload
from tests.support.servers.prometheus import PrometheusServer, promtool
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "deploy/grafana/leasehold.json"
ALERTS, STORIES = ROOT / "deploy/prometheus/alerts.yml", ROOT / "deploy/prometheus/alerts_test.yml"
PAGE, RUNBOOK = ROOT / "docs/howto/dashboards.md", ROOT / "docs/howto/runbook.md"

SERIES = re.compile(r"\bleasehold_[a-z_]+")
KNOWN = {
    *(f"leasehold_{name}_total" for name in metrics.COUNTERS),
    *(f"leasehold_{name}_seconds_bucket" for name in metrics.HISTOGRAMS),
    *(f"leasehold_{name}" for name in metrics.GAUGES),
}
OF_RUNS = set(run_outcome.HELP)  # in the file of a command, and for alerts: a picture needs more than a run a day


def panels() -> list[dict[str, Any]]:
    """Those with a picture."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def queries() -> list[str]:
    """The expressions of all panels, for all kinds, over the last minute."""
    return [
        target["expr"].replace("$kind", ".*").replace("$__rate_interval", "1m")
        for panel in panels()
        for target in panel["targets"]
    ]


def rules() -> list[dict[str, Any]]:
    """All alerts."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


# ---------------------------------------------------------------- the files


def test_the_dashboard_is_up_to_date() -> None:
    """It is what tools/dashboard.py writes."""
    spec = importlib.util.spec_from_file_location("dashboard", ROOT / "tools/dashboard.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert DASHBOARD.read_text() == tool.text(), "run tools/dashboard.py"


def test_every_metric_is_in_a_panel() -> None:
    """And no panel or alert asks for one that does not exist."""
    shown = {name for query in queries() for name in SERIES.findall(query)}
    assert shown == KNOWN
    assert {name for rule in rules() for name in SERIES.findall(rule["expr"])} <= KNOWN | OF_RUNS


def test_panels_do_not_overlap() -> None:
    """Each has a place of its own on the grid, and an id."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in found)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in found}) == len(found)


def test_every_panel_and_alert_is_on_its_page() -> None:
    """A panel with what it shows; an alert with a section of the runbook, in the same order."""
    page = PAGE.read_text()
    assert [panel["title"] for panel in panels() if panel["title"] not in page] == []
    assert all(panel["description"] for panel in panels())
    sections = re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()]


def test_the_first_event_is_seen(tmp_path: Path) -> None:
    """A counter appears with its first event: each panel of bars shows it, and once. A share is 0 where there never was
    a part, as the success rate of a program that was started while its store was away."""
    bars = [query for query in queries() if "increase(" in query]
    counters = {name: f'{name}{{kind="job"}}' for query in bars for name in SERIES.findall(query)}
    failing = 'leasehold_acquire_total{kind="job", outcome="unavailable"}'
    (success,) = [target["expr"] for one in panels() if one["title"] == "Success rate" for target in one["targets"]]
    wanted = [(query, time, value) for query in bars for time, value in (("10m", 1), ("12m", 0))]
    wanted.append((success.replace("$kind", ".*").replace("$__rate_interval", "1m"), "12m", 0))
    story = {
        "interval": "15s",
        "input_series": [
            *({"series": series, "values": "_x40 1x20"} for series in counters.values()),
            {"series": failing, "values": "0+1x80"},
        ],
        "promql_expr_test": [
            {"expr": query, "eval_time": time, "exp_samples": [{"labels": '{kind="job"}', "value": value}]}
            for query, time, value in wanted
        ],
    }
    file = tmp_path / "first.yml"
    file.write_text(yaml.safe_dump({"tests": [story]}))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0 and len(bars) >= 8, done.stdout + done.stderr


# ---------------------------------------------------------------- the alerts


def test_promtool_accepts_the_alerts() -> None:
    """As the tool of Prometheus checks them."""
    done = promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(rules())} rules found" in done.stdout


def test_the_stories_of_the_alerts() -> None:
    """Each fires on its story and is silent otherwise."""
    done = promtool("test", "rules", str(STORIES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_both_stories() -> None:
    """One in which it fires, and the healthy one in which it does not; and it says what happened and what to do."""
    healthy, *stories = yaml.safe_load(STORIES.read_text())["tests"]
    fires = {test["alertname"] for story in stories for test in story["alert_rule_test"] if test["exp_alerts"]}
    silent = {test["alertname"] for test in healthy["alert_rule_test"] if not test["exp_alerts"]}
    names = {rule["alert"] for rule in rules()}
    assert fires == silent == names
    assert all(set(rule["annotations"]) == {"summary", "action"} and rule["labels"]["severity"] for rule in rules())
    watched = {name for rule in rules() for name in SERIES.findall(rule["expr"])}
    told = {name for line in healthy["input_series"] for name in SERIES.findall(line["series"])}
    assert watched - told == {"leasehold_antipattern_total"}, "a healthy service has all of them but mistakes"


# ---------------------------------------------------------------- a real Prometheus


@pytest.fixture
def prometheus(redis_url: str, tmp_path: Path) -> Iterator[tuple[PrometheusServer, Workload]]:
    """A Prometheus that scrapes a program which does everything, and what a run of a crontab leaves."""
    registry = CollectorRegistry()
    run_outcome.RunOutcome(registry, "backup", None).ended(0, ran=True)
    workload = Workload(redis_url, tmp_path, PrometheusObserver(registry))
    page, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        workload.start()
        with PrometheusServer(page.server_port) as server:
            yield server, workload
    finally:
        workload.close()
        page.shutdown()
        page.server_close()
        thread.join(60)


def test_no_query_is_empty(prometheus: tuple[PrometheusServer, Workload]) -> None:
    """Every query of every panel has values, and so has every series that an alert looks at."""
    server, workload = prometheus
    left = [*queries(), *_watched()]

    def all_have_values() -> bool:
        workload.check()
        left[:] = [query for query in left if not server.values(query)]
        return not left

    try:
        until(all_have_values, "every query has a value", every=0.3)
    except AssertionError as error:
        raise AssertionError(f"no values: {left}") from error


def _watched() -> list[str]:
    """The series that the alerts look at."""
    return sorted({name for rule in rules() for name in SERIES.findall(rule["expr"])})
