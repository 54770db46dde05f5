"""A Prometheus exposition: samples, sums, quantiles, and what is none."""

from __future__ import annotations

import math

import pytest

from leasehold.doctor.exposition import Exposition
from leasehold.errors import InvalidRequest
from tests.support.tables import each

TEXT = """
# HELP leasehold_lost_total Leases
# TYPE leasehold_lost_total counter
leasehold_lost_total{kind="a",reason="deleted"} 2
leasehold_lost_total{kind="a",reason="expired"} 1.0 1700000000
leasehold_lost_total{kind="b \\"}{",reason="deleted"} 3 # {trace_id="1"} 1.0
# TYPE leasehold_renew counter
leasehold_keys_without_ttl 0
leasehold_hold_seconds_bucket{kind="a",le="0.1"} 90
leasehold_hold_seconds_bucket{kind="a",le="1.0"} 98
leasehold_hold_seconds_bucket{kind="a",le="+Inf"} 100
"""


def test_samples_are_summed_over_the_labels_that_are_not_named() -> None:
    """A label may hold quotes and braces; time stamps and exemplars are left out."""
    metrics = Exposition(TEXT)
    assert metrics.value("leasehold_lost_total") == 6 and metrics.total("leasehold_lost_total", reason="expired") == 1
    assert metrics.by_kind("leasehold_lost_total", reason="deleted") == {"a": 2, 'b \\"}{': 3}
    assert metrics.value("nothing") is None and metrics.total("nothing") == 0
    assert metrics.value("leasehold_keys_without_ttl") == 0 and metrics.by_kind("leasehold_keys_without_ttl") == {}


def test_a_metric_is_known_before_it_counts() -> None:
    """By its description alone; OpenMetrics leaves ``_total`` out there."""
    metrics = Exposition(TEXT)
    assert metrics.has("leasehold_lost_total") and metrics.has("leasehold_renew_total")
    assert not metrics.has("leasehold_release_total")


def test_quantiles_are_upper_bounds() -> None:
    """That of its bucket; infinite beyond the last; none without values."""
    metrics = Exposition(TEXT)
    hold = "leasehold_hold_seconds"
    assert [metrics.quantile(hold, share, kind="a") for share in (0.5, 0.9, 0.95, 0.999)] == [0.1, 0.1, 1.0, math.inf]
    assert metrics.quantile(hold, 0.5, kind="b") is None and metrics.count(hold, kind="a") == 100


def test_buckets_that_say_nothing() -> None:
    """A bound that is no number, and a count that is NaN: no quantile, and no error."""
    for bucket in ('{le="abc"} 5', "{} 5", '{le="+Inf"} NaN', '{le="1"} NaN\nhold_bucket{le="+Inf"} 0'):
        assert Exposition(f"hold_bucket{bucket}").quantile("hold", 0.5) is None


@each("text", ["", "# only words\n", "this is no metric\n", "<html>\n", 'a{b="c"} x\n'])
def test_what_is_no_exposition(text: str) -> None:
    """Refused in one sentence."""
    with pytest.raises(InvalidRequest, match=r"no metrics in it|line 1 is no sample"):
        Exposition(text)
