"""What the benchmark writes: Markdown tables, JSON and SVG, from rows that are made up here."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import goals
from benchmarks.report import files, markdown, page, svg
from benchmarks.report.rows import Axis, Chart, Figure, Result, Row, compare, ecdf

NAMESPACE = "{http://www.w3.org/2000/svg}"
CHART = Chart(
    "waiters",
    "Throughput <against> waiters",
    Axis("threads & tasks", log=True, ticks=(2, 16, 64)),
    Axis("handoffs/s", log=True),
    {"Leasehold": [(2, 2500), (16, 3000), (64, 2800)], "another": [(2, 1500), (16, 1200), (64, 0)]},
)


# ---------------------------------------------------------------- rows


def test_ratios_are_taken_within_a_round() -> None:
    """Both contenders were half as fast in the second round: the ratio does not notice."""
    ours, theirs = compare("work", "pairs/s", {"ours": [300, 150, 300], "theirs": [100, 50, 100]}, "theirs")
    assert ours.ratios["theirs"] == Figure(3, 3, 3)
    assert theirs.ratios["theirs"] == Figure(1, 1, 1)
    assert ours.figure == Figure(300, 225, 300)


def test_one_round_and_an_endless_one() -> None:
    """One value has no spread; a party without a turn makes fairness infinite, and nothing raises."""
    assert Figure.of([7]) == Figure(7, 7, 7)
    assert Figure.of([1, 2, math.inf]) == Figure(2, 1, math.inf)


def test_an_ecdf_ends_at_one_and_is_thinned_out() -> None:
    """The line goes from the least sample to the greatest; the median is where half of all are."""
    line = ecdf(
        "latency", "Latency", "µs", {"ours": [float(value) for value in range(10_000, 0, -1)]}, points=101
    ).lines["ours"]
    assert len(line) == 101
    assert [line[0], line[-1]] == [(1, 1 / 10_000), (10_000, 1)]
    assert line[50][0] == pytest.approx(5_000, abs=1)


# ---------------------------------------------------------------- Markdown


def test_rows_become_one_table_for_each_work() -> None:
    """A line for each contender, a column for each unit and for each peer; what was not measured is a dash."""
    rows = [
        *compare("alone", "pairs/s", {"Leasehold": [2000.0], "peer": [1000.0]}, "peer"),
        *compare("alone", "CPU, µs", {"Leasehold": [12.34]}),
        *compare("crowd", "fairness", {"peer": [math.inf]}),
    ]
    alone, crowd = markdown.tables(rows).split("\n\n")
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in alone.splitlines()] == [
        ["alone", "pairs/s", "× peer", "CPU, µs"],
        ["-" * 15, "-" * 8 + ":", "-" * 7 + ":", "-" * 8 + ":"],
        ["**Leasehold**", "2,000", "2.00", "12.3"],
        ["peer", "1,000", "1.00", markdown.NOTHING],
    ]
    assert len({len(line) for line in alone.splitlines()}) == 1
    assert "| peer" in crowd and "∞" in crowd


def test_figures_show_their_spread() -> None:
    """A rate in per cent of the median, a ratio as a range."""
    assert markdown.plain(Figure(1000, 950, 1050)) == "1,000 ± 5 %"
    assert markdown.ratio(Figure(1.5, 1.25, 1.75)) == "1.50 (1.25 to 1.75)"
    assert markdown.plain(Figure(28, 28, 28)) == "28"


# ---------------------------------------------------------------- goals


def test_goals_are_reached_by_the_median() -> None:
    """At least and at most; a goal without its row was not measured."""
    least, most = (
        goals.at_least(2.0, "faster", "work", "ours", "pairs/s", "peer"),
        goals.at_most(800, "small", "work", "ours", "B"),
    )
    rows = [Row("work", "ours", "pairs/s", Figure(9, 9, 9), {"peer": Figure(2.0, 1.9, 2.1)})]
    assert least.measured(rows) == Figure(2.0, 1.9, 2.1)
    assert most.measured(rows) is None
    for goal, value, reached in ((least, 2.0, True), (least, 1.99, False), (most, 800, True), (most, 801, False)):
        assert goal.reached(Figure(value, 0, 1e9)) is reached
    assert (str(least), str(most)) == ("≥ 2", "≤ 800")


def test_every_goal_that_was_measured_is_a_line_of_the_table() -> None:
    """Reached or not; the others are missing."""
    first, second, third = goals.GOALS[1:4]
    rows = [
        Row(
            first.work,
            first.contender,
            first.unit,
            Figure(1, 1, 1),
            {first.peer: Figure(9, 9, 9), second.peer: Figure(0.1, 0.1, 0.1)},
        )
    ]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in goals.table(rows).splitlines()[2:]]
    assert lines == [
        [first.name, "9.00", "≥ 0.45", "yes"],
        [second.name, "0.10", "≥ 2.2", "no"],
        [third.name, "0.10", "≥ 1.5", "no"],  # another bound for the same figure
    ]
    others = [goal for goal in goals.GOALS if goal not in {first, second, third}]
    assert goals.missing(rows, quick=False) == [goal.name for goal in others]
    assert goals.missing(rows, quick=True) == [goal.name for goal in others if goal.quick] != []


# ---------------------------------------------------------------- JSON and files


def test_json_has_everything_and_is_valid() -> None:
    """Infinity is not JSON: it is null. Every goal is there, whether it was measured or not."""
    rows = compare("crowd", "fairness", {"ours": [1.0], "peer": [math.inf]}, "ours")
    report = files.Report(
        {"Python": "3.11"}, {"handoffs": Result(rows, [CHART], ["a note"])}, {"leases": "Broken: lost"}
    )
    found = json.loads(files.as_json(report), parse_constant=pytest.fail)
    assert found["format"] == files.FORMAT
    assert found["machine"] == {"Python": "3.11"}
    assert found["rows"][0] == {
        "part": "handoffs", "work": "crowd", "contender": "ours", "unit": "fairness", "value": 1, "low": 1, "high": 1,
        "ratios": {"ours": {"value": 1, "low": 1, "high": 1}},
    }  # fmt: skip
    assert found["rows"][1]["value"] is None
    assert {tuple(goal) for goal in found["goals"]} == {("goal", "bound", "at_least", "measured", "reached")}
    assert [goal["goal"] for goal in found["goals"]] == [goal.name for goal in goals.GOALS]
    assert found["charts"][0]["lines"]["Leasehold"] == [[2, 2500], [16, 3000], [64, 2800]]
    assert (found["notes"], found["failures"]) == ({"handoffs": ["a note"]}, {"leases": "Broken: lost"})


def test_files_of_a_report(tmp_path: Path) -> None:
    """The Markdown shows each chart that is written beside it, and says what failed."""
    report = files.Report({"Python": "3.11"}, {"handoffs": Result([], [CHART])}, {"leases": "Broken: lost"})
    written = files.write(report, tmp_path / "new" / "folder")
    assert [path.name for path in written] == ["report.md", "report.json", "waiters.svg"]
    text = written[0].read_text()
    assert "](waiters.svg)" in text
    assert "**leases failed**: Broken: lost" in text
    ET.parse(written[2])  # noqa: S314  # our own file


# ---------------------------------------------------------------- a page


def marked(*names: str) -> str:
    """A page with a mark for each name."""
    return "".join(f"<!-- benchmark: {name} -->\nold {name}\n<!-- end of benchmark -->\n" for name in names)


def test_tables_are_written_between_the_marks_of_a_page(tmp_path: Path) -> None:
    """Charts go to a folder beside the page. What was not measured is kept and named; the machine is kept, too."""
    target = tmp_path / "speed.md"
    target.write_text(marked("handoffs", "machine", "goals", "pairs.sync"))
    rows = compare("crowd", "fairness", {"ours": [1.5]})
    left = page.fill(target, files.Report({"Python": "3.11"}, {"handoffs": Result(rows, [CHART])}))
    assert left == ["goals", "pairs.sync"]
    written, kept = target.read_text().split("<!-- end of benchmark -->\n", 1)
    assert "| ours " in written and "1.50" in written and "](speed/waiters.svg)" in written
    assert "old" not in written
    assert kept == marked("machine", "goals", "pairs.sync")
    assert (tmp_path / "speed" / "waiters.svg").read_text() == svg.drawn(CHART)


def test_filling_a_page_twice_changes_nothing(tmp_path: Path) -> None:
    """The marks stay where they are."""
    target = tmp_path / "speed.md"
    target.write_text("<!-- benchmark: machine -->\n<!-- end of benchmark -->\n")
    report = files.Report({"Python": "3.11"})
    page.fill(target, report)
    once = target.read_text()
    page.fill(target, report)
    assert target.read_text() == once
    assert "Python 3.11" in once


# ---------------------------------------------------------------- SVG


def test_a_chart_is_valid_and_complete() -> None:
    """Title, labels with units, a legend, and a line for each contender, without the point at zero on a log axis."""
    root = ET.fromstring(svg.drawn(CHART))  # noqa: S314  # our own text
    texts = [element.text for element in root.iter(f"{NAMESPACE}text")]
    assert root.findtext(f"{NAMESPACE}title") == CHART.title
    assert {CHART.title, "threads & tasks", "handoffs/s", "Leasehold", "another", "2", "16", "64"} <= set(texts)
    ours, theirs = root.findall(f"{NAMESPACE}g")
    assert (len(ours), len(theirs)) == (3, 2)


def test_everything_is_inside_the_page() -> None:
    """Points are placed between the axes, greater ones further up, steps of the same logarithm equally far apart."""
    root = ET.fromstring(svg.drawn(CHART))  # noqa: S314  # our own text
    circles = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in root.iter(f"{NAMESPACE}circle")]
    for x, y in circles:
        assert svg.LEFT <= x <= svg.WIDTH - svg.RIGHT
        assert svg.TOP <= y <= svg.HEIGHT - svg.BOTTOM
    (left, slow), (middle, fast), (right, _) = circles[:3]
    assert fast < slow
    assert (middle - left) / (right - middle) == pytest.approx(math.log(8) / math.log(4), abs=0.01)


def test_an_ecdf_is_drawn_in_steps_and_small() -> None:
    """200 points of 20,000 samples: a few kB for each line."""
    chart = ecdf("latency", "Latency", "µs", {"ours": [1.0 + number / 100 for number in range(20_000)]})
    text = svg.drawn(chart)
    path = ET.fromstring(text).findall(f"{NAMESPACE}path")[1].attrib["d"]  # noqa: S314  # our own text
    assert path.count("H") == path.count("V") == 199
    assert len(text) < 8_000


def test_linear_axes_begin_at_zero() -> None:
    """So that a bar of twice the size is twice as much; the last tick is not below the greatest value."""
    scale = svg.Scale(Axis("MB"), [3.0, 13.0], 0, 100)
    assert scale.ticks == [0, 5, 10, 15]
    assert (scale(0), scale(15)) == (0, 100)
    assert svg.Scale(Axis("µs", log=True), [30, 4_000], 0, 100).ticks == [20, 50, 100, 200, 500, 1000, 2000, 5000]


def test_a_chart_without_points_is_refused() -> None:
    """An empty picture would look as if something was measured."""
    with pytest.raises(ValueError, match="no points"):
        svg.drawn(Chart("empty", "Empty", Axis("x"), Axis("y"), {"ours": [(1, math.inf)]}))
