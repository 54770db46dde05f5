"""The report of a run, and its files: ``report.md``, ``report.json`` and an SVG for each chart."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import goals
from benchmarks.report import markdown, svg
from benchmarks.report.rows import Chart, Figure, Result, Row

FORMAT = 1  # of the JSON


@dataclass
class Report:
    """What every part found, on which machine, and which parts failed."""

    facts: Mapping[str, str]
    results: dict[str, Result] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """Those of all parts."""
        return [row for result in self.results.values() for row in result.rows]


def write(report: Report, folder: Path) -> list[Path]:
    """Every file, in this folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"report.md": as_markdown(report), "report.json": as_json(report)}
    texts |= {f"{chart.name}.svg": svg.drawn(chart) for result in report.results.values() for chart in result.charts}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


# ---------------------------------------------------------------- Markdown


def as_markdown(report: Report) -> str:
    """The machine, the goals, and each part with its tables, charts and notes."""
    failures = [f"**{part} failed**: {error}\n" for part, error in report.failures.items()]
    parts = [part_as_markdown(name, result) for name, result in report.results.items()]
    reached = ["## Goals\n", goals.table(report.rows)] if goals.any_measured(report.rows) else []
    return "\n".join(["# Benchmark\n", machine(report), *failures, *reached, *parts])


def machine(report: Report) -> str:
    """What was measured on and with."""
    return "; ".join(f"{name} {value}" for name, value in report.facts.items()) + "\n"


def part_as_markdown(name: str, result: Result) -> str:
    """One part, under its name."""
    return f"## {name}\n\n{contents(result)}"


def contents(result: Result, folder: str = "") -> str:
    """Its tables, its charts, which are files in this folder, and its notes."""
    charts = [f"![{chart.title}]({folder}{chart.name}.svg)\n" for chart in result.charts]
    notes = [f"{note}\n" for note in result.notes]
    return "\n".join([markdown.tables(result.rows), *charts, *notes])


# ---------------------------------------------------------------- JSON


def as_json(report: Report) -> str:
    """The same as data. A figure that is infinite, such as the fairness to somebody who got no turn, is null."""
    found = {
        "format": FORMAT,
        "machine": dict(report.facts),
        "goals": [_goal(goal, report.rows) for goal in goals.GOALS],
        "rows": [{"part": part, **_row(row)} for part, result in report.results.items() for row in result.rows],
        "charts": [
            {"part": part, **_chart(chart)} for part, result in report.results.items() for chart in result.charts
        ],
        "notes": {part: result.notes for part, result in report.results.items() if result.notes},
        "failures": report.failures,
    }
    return json.dumps(found, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _row(row: Row) -> dict[str, Any]:
    ratios = {peer: _figure(figure) for peer, figure in row.ratios.items()}
    return {"work": row.work, "contender": row.contender, "unit": row.unit, **_figure(row.figure), "ratios": ratios}


def _goal(goal: goals.Goal, rows: list[Row]) -> dict[str, Any]:
    figure = goal.measured(rows)
    return {
        "goal": goal.name,
        "bound": goal.bound,
        "at_least": goal.at_least,
        "measured": figure and _figure(figure),
        "reached": figure and goal.reached(figure),
    }


def _chart(chart: Chart) -> dict[str, Any]:
    lines = {name: [[_number(x), _number(y)] for x, y in points] for name, points in chart.lines.items()}
    return {"name": chart.name, "title": chart.title, "x": chart.x.label, "y": chart.y.label, "lines": lines}


def _figure(figure: Figure) -> dict[str, float | None]:
    return {name: _number(value) for name, value in figure._asdict().items()}


def _number(value: float) -> float | None:
    """Six digits are more than enough."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
