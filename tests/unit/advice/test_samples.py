"""What was recorded: lists of durations, and scrapes of what PrometheusObserver counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

import leasehold
from leasehold import InvalidRequest
from leasehold.advice import measured
from leasehold.observe.prometheus import PrometheusObserver
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.tables import each


def scrape(**counts: dict[str, int]) -> str:
    """Buckets of some kinds, cumulative as Prometheus has them."""
    lines = ["# HELP leasehold_hold_seconds From the grant", "# TYPE leasehold_hold_seconds histogram"]
    for kind, buckets in counts.items():
        for bound, count in buckets.items():
            lines.append(f'leasehold_hold_seconds_bucket{{kind="{kind}",le="{bound}"}} {count}.0')
    return "\n".join(lines)


def test_durations() -> None:
    """One a line, with a unit or as bare seconds; blank lines and comments are passed over."""
    found = measured("# taken on Monday\n8s\n\n 120ms \n2\n1e-3\n0\n")
    assert (found.p999, found.samples) == (8.0, 5)


@each(("count", "expected"), [(1000, 998), (1001, 999), (2000, 1997), (10_000, 9989)])
def test_the_percentile(count: int, expected: int) -> None:
    """The smallest that 99.9 % do not exceed: one in a thousand is longer."""
    assert measured("\n".join(str(one) for one in range(count))).p999 == expected


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_few_samples(found: list[int]) -> None:
    """Of fewer than a thousand it is the longest, which is said."""
    result = measured("\n".join(map(str, found)))
    assert result.p999 == max(found)
    assert result.warnings[0].startswith(f"{len(found)} samples are few for a p99.9")


def test_enough_samples() -> None:
    """A thousand are enough."""
    assert measured("1s\n" * 1000).warnings == ()
    assert measured("1s\n" * 999).warnings != ()


@each("line", ["-1", "-1s", "8 parsecs", "1:30", "0x10", "1_0q", "%", "nan", "inf"])
def test_lines_that_are_no_duration(line: str) -> None:
    """The line is named."""
    with pytest.raises(InvalidRequest, match="line 2"):
        measured(f"1s\n{line}\n")


@each("text", ["", "\n\n", "# nothing\n"])
def test_no_durations(text: str) -> None:
    """An empty file says what should be in it."""
    with pytest.raises(InvalidRequest, match="one a line"):
        measured(text)


def test_a_histogram() -> None:
    """The p99.9 is the upper bound of its bucket, which is said."""
    found = measured(scrape(job={"0.1": 500, "1.0": 1998, "10.0": 2000, "+Inf": 2000}))
    assert (found.p999, found.samples) == (1.0, 2000)
    assert "upper bound of its bucket" in found.warnings[0]


def test_beyond_the_last_bucket() -> None:
    """What took longer than the last bucket is not guessed."""
    found = measured(scrape(job={"1.0": 10, "3600.0": 1990, "+Inf": 2000}))
    assert (found.p999, found.at_least) == (None, 3600.0)
    assert found.warnings == ("p99.9 is over 3600s, the last bucket; by how much is unknown",)


def test_several_kinds() -> None:
    """One must be chosen, and those that there are are named."""
    text = scrape(job={"1.0": 1000, "+Inf": 1000}, mail={"1.0": 0, "10.0": 1000, "+Inf": 1000})
    with pytest.raises(InvalidRequest, match=r"several kinds.*job, mail"):
        measured(text)
    with pytest.raises(InvalidRequest, match=r"no kind 'fax'.*job, mail"):
        measured(text, "fax")
    assert measured(text, "mail").p999 == 10.0


def test_a_kind_of_durations() -> None:
    """There is nothing to choose among durations."""
    with pytest.raises(InvalidRequest, match="leave it out"):
        measured("1s", "job")


def test_several_processes_are_added_up() -> None:
    """The same kind with other labels, time stamps and exemplars, as a federation gives it."""
    lines = [
        'leasehold_hold_seconds_bucket{instance="a:1",kind="job",le="1.0"} 999 1794768018952',
        'leasehold_hold_seconds_bucket{instance="a:1",kind="job",le="+Inf"} 1000 1794768018952',
        'leasehold_hold_seconds_bucket{instance="b,\\"}:1",kind="job",le="1.0"} 1000 # {trace="1"} 0.5',
        'leasehold_hold_seconds_bucket{instance="b,\\"}:1",kind="job",le="+Inf"} 1000',
        "go_goroutines 7",
    ]
    found = measured("\n".join(lines))
    assert (found.samples, found.p999) == (2000, 1.0)


@each(
    ("text", "why"),
    [
        ("go_goroutines 7\n", "no leasehold_hold_seconds"),
        ('leasehold_hold_seconds_bucket{kind="job"} 7', "line 1 is no bucket"),
        ('leasehold_hold_seconds_bucket{kind="job",le="soon"} 7', "line 1 is no bucket"),
        ('leasehold_hold_seconds_bucket{kind="job",le="1.0"} many', "line 1 is no bucket"),
        ("leasehold_hold_seconds_bucket 7", "line 1 is no bucket"),
        ('leasehold_hold_seconds_bucket{kind="job",le="1.0"} -7', "counts from 0 up"),
        ('leasehold_hold_seconds_bucket{kind="job",le="1.0"} NaN', "counts from 0 up"),
        (scrape(job={"1.0": 7}), "not complete"),
        (scrape(job={"1.0": 7, "10.0": 6, "+Inf": 7}), "not complete"),
        (scrape(job={"1.0": 0, "+Inf": 0}), "counted nothing"),
    ],
)
def test_metrics_that_cannot_be_used(text: str, why: str) -> None:
    """Each says what is wrong."""
    with pytest.raises(InvalidRequest, match=why):
        measured(text)


def test_what_our_own_observer_makes() -> None:
    """Both formats of a real scrape are understood, with everything else that is in them."""
    registry, clock = CollectorRegistry(), ManualClock()
    with leasehold.connect(MemoryStore(clock), observers=[PrometheusObserver(registry)]) as hold:
        for _ in range(20):
            with hold.lock("job", renew=False):
                clock.advance(5)
        with hold.lock("mail", renew=False):
            clock.advance(0.05)
    for text in (generate_latest(registry).decode(), openmetrics(registry).decode()):  # type: ignore[no-untyped-call]  # theirs
        assert (measured(text, "job").p999, measured(text, "job").samples) == (10.0, 20)
        assert measured(text, "mail").p999 == 0.1
