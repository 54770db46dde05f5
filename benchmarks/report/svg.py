"""Writes a chart as SVG: axes, lines or steps, and a legend. The colours suit a light and a dark page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.report.rows import Axis, Chart, Points

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 84, 40, 56, 68
LEGEND_LINE = 20
# Distinguishable without seeing red or green (Okabe and Ito); the dashes tell lines apart without any colour.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2", "1 4")
STYLE = """
  .page { fill: #ffffff } text { fill: #222222; font: 13px system-ui, sans-serif } .title { font-size: 16px }
  .grid { stroke: #dddddd } .axis { stroke: #666666 } .line { fill: none; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #16181d } text { fill: #e6e6e6 } .grid { stroke: #33363d } .axis { stroke: #a0a0a0 }
  }
"""


class Scale:
    """Where a value is on the page."""

    def __init__(self, axis: Axis, values: Sequence[float], begin: float, end: float) -> None:
        self.axis, self._begin, self._end = axis, begin, end
        self.ticks = list(axis.ticks) or (_log_ticks(values) if axis.log else _linear_ticks(values))
        known = [*values, *self.ticks]
        self._low, self._high = self._linear(min(known)), self._linear(max(known))

    def __call__(self, value: float) -> float:
        """The coordinate."""
        span = self._high - self._low or 1.0
        return self._begin + (self._linear(value) - self._low) / span * (self._end - self._begin)

    def _linear(self, value: float) -> float:
        return math.log10(value) if self.axis.log else value


def _log_ticks(values: Sequence[float]) -> list[float]:
    """Powers of ten; with few of them also their double and their fivefold. They enclose all values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    first = max((tick for tick in ticks if tick <= min(values)), default=ticks[0])
    last = min((tick for tick in ticks if tick >= max(values)), default=ticks[-1])
    return [tick for tick in ticks if first <= tick <= last]


def _linear_ticks(values: Sequence[float]) -> list[float]:
    """From 0 in about six steps of 1, 2 or 5 times a power of ten."""
    high = max(values) or 1.0
    power = 10.0 ** math.floor(math.log10(high / 6))
    step = next(one * power for one in (1, 2, 5, 10) if one * power * 6 >= high)
    return [number * step for number in range(math.ceil(high / step - 1e-9) + 1)]


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def drawn(chart: Chart) -> str:
    """The whole file."""
    lines = {name: [point for point in points if _can_be_drawn(chart, point)] for name, points in chart.lines.items()}
    ours_first = sorted(lines, key=lambda name: not name.startswith("Leasehold"))
    lines = {name: lines[name] for name in ours_first if lines[name]}
    if not lines:
        raise ValueError(f"the chart {chart.name!r} has no points")
    bottom = HEIGHT - BOTTOM
    x = Scale(chart.x, [px for points in lines.values() for px, _ in points], LEFT, WIDTH - RIGHT)
    y = Scale(chart.y, [py for points in lines.values() for _, py in points], bottom, TOP)
    height = HEIGHT + LEGEND_LINE * len(lines)
    body = [*_axes(x, y), *_curves(lines, x, y, chart.steps), *_legend(list(lines))]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(chart.title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
            f'<text class="title" x="{LEFT}" y="30">{escape(chart.title)}</text>',
            *body,
            "</svg>\n",
        ]
    )


def _can_be_drawn(chart: Chart, point: tuple[float, float]) -> bool:
    """Neither infinite, nor zero on a logarithmic axis."""
    axes = (chart.x, chart.y)
    return all(math.isfinite(value) and (value > 0 or not axis.log) for value, axis in zip(point, axes, strict=True))


def _axes(x: Scale, y: Scale) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for tick in x.ticks:
        at = f"{x(tick):.1f}"
        parts.append(f'<line class="grid" x1="{at}" y1="{TOP}" x2="{at}" y2="{bottom}"/>')
        parts.append(f'<text x="{at}" y="{bottom + 20}" text-anchor="middle">{_label(tick)}</text>')
    for tick in y.ticks:
        at = f"{y(tick):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{at}" x2="{right}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{_label(tick)}</text>')
    middle = (TOP + bottom) / 2
    return [
        *parts,
        f'<path class="axis line" d="M{LEFT} {TOP}V{bottom}H{right}"/>',
        f'<text x="{(LEFT + right) / 2}" y="{bottom + 44}" text-anchor="middle">{escape(x.axis.label)}</text>',
        f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{escape(y.axis.label)}</text>',
    ]


def _curves(lines: dict[str, list[tuple[float, float]]], x: Scale, y: Scale, steps: bool) -> list[str]:
    parts = []
    for number, points in enumerate(lines.values()):
        parts.append(f'<path class="line" {_stroke(number)} d="{_path(points, x, y, steps)}"/>')
        if not steps:
            dots = [f'<circle cx="{x(px):.1f}" cy="{y(py):.1f}" r="3.5"/>' for px, py in points]
            parts.append(f'<g fill="{COLOURS[number % len(COLOURS)]}">{"".join(dots)}</g>')
    return parts


def _path(points: Points, x: Scale, y: Scale, steps: bool) -> str:
    (first_x, first_y), *others = [(f"{x(px):.1f}", f"{y(py):.1f}") for px, py in points]
    step = "H{} V{}" if steps else "L{} {}"
    return f"M{first_x} {first_y}" + "".join(step.format(*point) for point in others)


def _stroke(number: int) -> str:
    dash = DASHES[number % len(DASHES)]
    return f'stroke="{COLOURS[number % len(COLOURS)]}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _legend(names: list[str]) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        at = HEIGHT + LEGEND_LINE * number
        parts.append(f'<path class="line" {_stroke(number)} d="M{LEFT} {at}h36"/>')
        parts.append(f'<text x="{LEFT + 46}" y="{at + 4}">{escape(name)}</text>')
    return parts
