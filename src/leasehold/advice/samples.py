"""How long the work takes, from recorded samples: a list of durations, or the metrics of a scrape."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from leasehold._core.durations import seconds
from leasehold.errors import InvalidRequest

METRIC = "leasehold_hold_seconds"
SHARE = 0.999
ENOUGH = 1000  # with fewer, one in a thousand has not been seen

TEXT = r'"(?:[^"\\]|\\.)*"'
# Its labels, its value, perhaps a time stamp, perhaps an exemplar.
BUCKET = re.compile(rf'{METRIC}_bucket\s*\{{((?:[^"}}]|{TEXT})*)\}}\s*(\S+)(?:\s+[^\s#]\S*)?(?:\s+#.*)?')
LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
EXPOSITION = re.compile(r"[a-zA-Z_:][\w:]*(\s*\{|\s)")  # the name of a metric; no duration begins with a letter


class Measured(NamedTuple):
    """``p999`` is in seconds; None: it is longer than the last bucket, ``at_least``, and it is unknown by how much."""

    p999: float | None
    samples: int
    at_least: float
    warnings: tuple[str, ...]


def measured(text: str, kind: str | None = None) -> Measured:
    """The p99.9 of durations, one a line (``8s``, ``120ms``, or a bare number of seconds; blank lines and lines with
    ``#`` are skipped), or of the histogram ``leasehold_hold_seconds`` in the text format of Prometheus. ``kind``
    chooses one where the histogram has several.

    >>> from leasehold.advice import measured
    >>> measured("1s\\n250ms\\n8\\n").p999
    8.0
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    samples = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if any(EXPOSITION.match(line) for _, line in samples):
        return _of_histogram(_buckets(samples), kind)
    if kind is not None:
        raise InvalidRequest("kind chooses among metrics, and these are durations: leave it out")
    return _of_durations([_duration(number, line) for number, line in samples])


def _of_durations(found: list[float]) -> Measured:
    if not found:
        raise InvalidRequest("there are no durations in it: one a line, such as 8s or 120ms")
    longest = sorted(found)[_rank(len(found)) - 1]
    return Measured(longest, len(found), longest, _few(len(found), "it is the longest of them"))


def _duration(number: int, text: str) -> float:
    try:
        return float(text) if _is_number(text) and float(text) >= 0 else seconds(text, "the duration")
    except InvalidRequest as error:
        raise InvalidRequest(f"line {number}: {error}") from None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


# ---------------------------------------------------------------- metrics


def _buckets(lines: list[tuple[int, str]]) -> dict[str, dict[float, float]]:
    """For each kind, how many samples are at most as long as each bound; several processes are added up."""
    kinds: dict[str, dict[float, float]] = {}
    for number, line in lines:
        if not line.startswith(f"{METRIC}_bucket"):
            continue
        kind, bound, count = _bucket(number, line)
        bounds = kinds.setdefault(kind, {})
        bounds[bound] = bounds.get(bound, 0.0) + count
    return kinds


def _bucket(number: int, line: str) -> tuple[str, float, float]:
    match = BUCKET.fullmatch(line)
    labels = dict(LABEL.findall(match[1])) if match else {}
    try:
        bound, count = float(labels["le"]), float(match[2] if match else "")
    except (KeyError, ValueError):
        raise InvalidRequest(f"line {number} is no bucket of {METRIC} that can be read") from None
    if math.isnan(bound) or not 0 <= count < math.inf:
        raise InvalidRequest(f"line {number}: a bucket has a bound, and counts from 0 up")
    return labels.get("kind", ""), bound, count


def _of_histogram(kinds: dict[str, dict[float, float]], kind: str | None) -> Measured:
    buckets = sorted(_chosen(kinds, kind).items())
    bounds, counts = [bound for bound, _ in buckets], [count for _, count in buckets]
    if bounds[-1] != math.inf or counts != sorted(counts):
        raise InvalidRequest(f'the buckets of {METRIC} are not complete: they grow up to the one with le="+Inf"')
    total = int(counts[-1])
    if not total:
        raise InvalidRequest(f"{METRIC} has counted nothing yet")
    place = next(at for at, count in enumerate(counts) if count >= _rank(total))
    last = bounds[-2] if len(bounds) > 1 else 0.0
    few = _few(total, "it is the bucket of the longest of them")
    if bounds[place] == math.inf:
        return Measured(None, total, last, (*few, f"p99.9 is over {last:g}s, the last bucket; by how much is unknown"))
    bucket = f"p99.9 is at most {bounds[place]:g}s: that is the upper bound of its bucket, and it may be less"
    return Measured(bounds[place], total, bounds[place], (*few, bucket))


def _chosen(kinds: dict[str, dict[float, float]], kind: str | None) -> dict[float, float]:
    known = ", ".join(sorted(kinds))
    if not kinds:
        raise InvalidRequest(f"there are metrics in it, but no {METRIC}: give durations, or a scrape with that")
    if kind is None and len(kinds) > 1:
        raise InvalidRequest(f"there are several kinds in it: choose one with kind, of {known}")
    if kind is not None and kind not in kinds:
        raise InvalidRequest(f"there is no kind {kind[:40]!r} in it, only {known}")
    return kinds[next(iter(kinds)) if kind is None else kind]


def _rank(total: int) -> int:
    """The rank of the p99.9, counted from 1. Rounded, for in floats 0.999 × 1000 is a little more than 999."""
    return max(math.ceil(round(total * SHARE, 6)), 1)


def _few(total: int, so: str) -> tuple[str, ...]:
    if total >= ENOUGH:
        return ()
    return (f"{total} samples are few for a p99.9, which needs {ENOUGH}: {so}",)
