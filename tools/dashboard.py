"""Writes deploy/grafana/leasehold.json, the dashboard for Grafana.

    .venv/bin/python tools/dashboard.py

This file is the dashboard: edit it, run it, and commit both. A test compares the two, and runs each query.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PATH = Path(__file__).parent.parent / "deploy/grafana/leasehold.json"
COLUMNS, WIDTH, HEIGHT = 3, 8, 8  # panels side by side; in the units of Grafana, where a row is 24 wide
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """One picture. ``queries`` are expressions, each with its legend; KIND and RANGE are filled in. ``unit`` is one of
    Grafana's."""

    title: str
    unit: str
    text: str
    queries: Sequence[tuple[str, str]]


def rate(metric: str, by: str, labels: str = "") -> str:
    """How often it happens each second."""
    return f"sum by ({by}) (rate(leasehold_{metric}_total{{{_labels(labels)}}}[RANGE]))"


def count(metric: str, by: str, labels: str = "") -> str:
    """How often it happened, as bars of whole events. A counter appears when it first counts, and increase() does not
    see that: one that was not there before counts in full."""
    series = f"leasehold_{metric}_total{{{_labels(labels)}}}"
    return f"sum by ({by}) (({series} unless {series} offset RANGE) or increase({series}[RANGE]))"


def gauge(metric: str, by: str = "kind", how: str = "sum", labels: str = "") -> str:
    """A value of the present state, over all processes."""
    return f"{how} by ({by}) (leasehold_{metric}{{{_labels(labels)}}})"


def quantile(part: float, metric: str) -> str:
    """Of a histogram."""
    return f"histogram_quantile({part}, sum by (kind, le) (rate(leasehold_{metric}_seconds_bucket{{KIND}}[RANGE])))"


def share(part: str, whole: str) -> str:
    """A part of the whole; nothing while nothing happens. 0 if there never was such a part."""
    return f"({part} or {whole} * 0) / {whole}"


def _labels(more: str) -> str:
    return f"KIND, {more}" if more else "KIND"


ACQUIRING = [
    Panel(
        "Success rate",
        "percentunit",
        "The part of all acquires that got the lease. A single try that was busy, a wait that ran out and a store that "
        "was not there all lower it: the next panel tells which.",
        [(share(rate("acquire", "kind", 'outcome="acquired"'), rate("acquire", "kind")), "{{kind}}")],
    ),
    Panel(
        "Acquires by outcome",
        "ops",
        "acquired; busy (one try); timeout (the wait ran out); cancelled; unavailable (the store was not there, "
        "nothing was taken); unknown (a reply was lost, the claim is cleaned up).",
        [(rate("acquire", "kind, outcome"), "{{kind}} {{outcome}}")],
    ),
    Panel(
        "Contention",
        "percentunit",
        "The part of all acquires that found the resource held. High and steady: the section is too long or the lock "
        "too coarse; give it an id, or spread it over buckets.",
        [(share(rate("contention", "kind"), rate("acquire", "kind")), "{{kind}}")],
    ),
    Panel(
        "Wait, p50 and p99",
        "s",
        "From the call to the grant, or to giving up. Single tries that were busy are not in it: they did not wait.",
        [(quantile(0.5, "acquire_wait"), "{{kind}} p50"), (quantile(0.99, "acquire_wait"), "{{kind}} p99")],
    ),
    Panel(
        "Waiters",
        "short",
        "Acquires that wait now, over all processes. A line that only grows has a holder in front that hangs.",
        [(gauge("waiters"), "{{kind}}")],
    ),
    Panel(
        "Leases held",
        "short",
        "Leases that are held now, over all processes.",
        [(gauge("held"), "{{kind}}")],
    ),
]

HOLDING = [
    Panel(
        "Hold, p50 and p99",
        "s",
        "From the grant to the end of the lease. Compare with the largest ttl: a ttl of more than ten times p99.9 "
        "blocks others for too long when a holder dies.",
        [(quantile(0.5, "hold"), "{{kind}} p50"), (quantile(0.99, "hold"), "{{kind}} p99")],
    ),
    Panel(
        "Held for longest",
        "s",
        "The age of the oldest lease that is held now. Leaders hold theirs for as long as they live.",
        [(gauge("oldest_held_seconds", how="max"), "{{kind}}")],
    ),
    Panel(
        "Largest ttl",
        "s",
        "The largest ttl in use. A holder that dies blocks others for that long.",
        [(gauge("ttl_seconds", how="max"), "{{kind}}")],
    ),
    Panel(
        "Renewal slack, p5",
        "s",
        "How much time was left at a renewal until the work would have had to stop: about half of the ttl when all is "
        "well. When it shrinks, pauses or a slow store eat the margin, and losses are near.",
        [(quantile(0.05, "renew_slack"), "{{kind}}")],
    ),
    Panel(
        "Renewals by outcome",
        "ops",
        "renewed; failed (not confirmed: the lease is unsure); not_owner (the lease is lost).",
        [(rate("renew", "kind, outcome"), "{{kind}} {{outcome}}")],
    ),
    Panel(
        "Releases by outcome",
        "ops",
        "released; not_owner (too late); unknown (not confirmed: repeated in the background, until the ttl).",
        [(rate("release", "kind, outcome"), "{{kind}} {{outcome}}")],
    ),
]

TROUBLE = [
    Panel(
        "Leases lost, by reason",
        "short",
        "Leases that ended while their holder still used them. expired: a pause, or work longer than a ttl that is not "
        "renewed. renewal_failed: the store was away. taken, deleted: somebody else wrote to the key. evicted: an "
        "operator. max_hold, max_idle: limits of yours. closed and resigned are intended.",
        [(count("lost", "kind, reason"), "{{kind}} {{reason}}")],
    ),
    Panel(
        "Stale releases",
        "short",
        "Releases that came after the lease had ended: the work ran on without it. Let it call lease.check(), and "
        "guard its writes.",
        [(count("stale_release", "kind"), "{{kind}}")],
    ),
    Panel(
        "Fencing rejections (the protection worked)",
        "short",
        "Writes of a stale owner that a guard refused. Nothing was damaged: without the guard each of these would have "
        "overwritten newer data. Look at the losses of the same kind for the cause.",
        [(count("fencing_rejected", "kind, downstream"), "{{kind}} at {{downstream}}")],
    ),
    Panel(
        "Unguarded leases",
        "short",
        'Leases with protects="correctness" whose fence was neither presented to a guard nor read: nothing would '
        "refuse a stale owner.",
        [(count("unguarded", "kind"), "{{kind}}")],
    ),
    Panel(
        "Anti-patterns",
        "short",
        "Known mistakes that the leases of a kind show, and the number of processes that saw them: ttl_too_long, "
        "ttl_too_short, no_id (one global lock), retry_loop, unguarded. The log says what to do.",
        [(gauge("antipattern_total", "kind, pattern"), "{{kind}} {{pattern}}")],
    ),
    Panel(
        "Locks without a TTL",
        "short",
        "Keys without a TTL that leaks() has found: they are held for ever when their holder dies. Absent until "
        "something looks.",
        [("max(leasehold_keys_without_ttl)", "keys")],
    ),
]

SERVED = 'outcome=~"hit|stale|shared|error_hit|rebuilt|error"'

CACHES = [
    Panel(
        "Single flight: calls and rebuilds",
        "ops",
        "hit; stale (an old value was served, and rebuilt in the background); shared (another caller's rebuild); "
        "error_hit (a cached error). rebuilt and error count the calls of the function itself.",
        [(rate("single_flight", "kind, outcome"), "{{kind}} {{outcome}}")],
    ),
    Panel(
        "Single flight: served without waiting",
        "percentunit",
        "The part of all calls that got a cached value at once, fresh or stale.",
        [
            (
                share(rate("single_flight", "kind", 'outcome=~"hit|stale"'), rate("single_flight", "kind", SERVED)),
                "{{kind}}",
            )
        ],
    ),
    Panel(
        "Idempotency keys",
        "short",
        "first (the work begins); replay (a stored outcome was returned); again (an earlier attempt was interrupted); "
        "conflict (the key was used with another request).",
        [(count("once", "kind, outcome"), "{{kind}} {{outcome}}")],
    ),
]

WORK = [
    Panel(
        "Cron: runs and ticks",
        "short",
        "ok, error, lost (the lease was lost during the run), died (the process was gone), missed (no process was "
        "there), skipped (an earlier run was still running).",
        [(count("cron", "kind, outcome"), "{{kind}} {{outcome}}")],
    ),
    Panel(
        "Cron: since the last success",
        "s",
        "How long ago a run of any host was last a success.",
        [(f"time() - {gauge('cron_last_success_timestamp_seconds', how='max')}", "{{kind}}")],
    ),
    Panel(
        "Cron: duration, p50 and p99",
        "s",
        "How long runs took. A run that takes longer than the time between two ticks makes ticks skipped.",
        [(quantile(0.5, "cron_duration"), "{{kind}} p50"), (quantile(0.99, "cron_duration"), "{{kind}} p99")],
    ),
    Panel(
        "Jobs: what happened",
        "short",
        "claimed, completed, failed (tried again), dead, released; taken_over: the lease of another worker had run "
        "out; refused: a worker came too late, and changed nothing.",
        [(count("jobs", "kind, outcome"), "{{kind}} {{outcome}}")],
    ),
    Panel(
        "Jobs by state",
        "short",
        "As counts() has found them last. expired: running, and the lease of the worker has run out.",
        [(gauge("jobs_by_state", "kind, state", how="max"), "{{kind}} {{state}}")],
    ),
    Panel(
        "Elections: leaders and terms",
        "short",
        "How many processes lead, and how many terms began: a leader that changes often is not healthy.",
        [(gauge("election_leading"), "{{kind}} leads"), (count("election_terms", "kind"), "{{kind}} new terms")],
    ),
    Panel(
        "Elections: without a leader",
        "s",
        "For how long no candidate has known of a leader; 0 while there is one.",
        [(gauge("election_leaderless_seconds", how="min"), "{{kind}}")],
    ),
]

ROWS = {
    "Acquiring": ACQUIRING,
    "Holding": HOLDING,
    "Trouble": TROUBLE,
    "Patterns: caches and idempotency": CACHES,
    "Patterns: cron, jobs, elections": WORK,
}


def dashboard() -> dict[str, Any]:
    """The whole document."""
    return {
        "title": "Leasehold",
        "uid": "leasehold",
        "description": "Leases, their trouble, and the patterns that use them.",
        "tags": ["leasehold"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _kinds()]},
        "panels": _panels(),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _kinds() -> dict[str, Any]:
    query = 'label_values({__name__=~"leasehold_.*_total"}, kind)'
    return {
        "name": "kind", "label": "Kind", "type": "query", "datasource": SOURCE, "query": query, "refresh": 2,
        "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 1,
    }  # fmt: skip


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    top = 0
    for title, panels in ROWS.items():
        made.append({"type": "row", "title": title, "collapsed": False, "panels": [], **_place(0, top, 24, 1)})
        top += 1
        for number, panel in enumerate(panels):
            line, column = divmod(number, COLUMNS)
            made.append(_picture(panel) | _place(column * WIDTH, top + line * HEIGHT, WIDTH, HEIGHT))
        top += HEIGHT * -(-len(panels) // COLUMNS)
    return [{"id": number, **one} for number, one in enumerate(made, 1)]


def _place(x: int, y: int, w: int, h: int) -> dict[str, Any]:
    return {"gridPos": {"x": x, "y": y, "w": w, "h": h}}


def _picture(panel: Panel) -> dict[str, Any]:
    bars = any("increase(" in expression for expression, _ in panel.queries)
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {"drawStyle": "bars", "fillOpacity": 60} if bars else {"drawStyle": "line"},
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": _filled(expression), "legendFormat": legend}
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _filled(expression: str) -> str:
    return expression.replace("KIND", 'kind=~"$kind"').replace("RANGE", "$__rate_interval")


def text() -> str:
    """As the file has it."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text())
    sys.stdout.write(f"{PATH}: {sum(map(len, ROWS.values()))} panels\n")
