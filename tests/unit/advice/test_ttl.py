"""How long a lease should be: the formulas, their bounds, and what follows from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import InvalidRequest
from leasehold._core.durations import seconds, ttl_ms
from leasehold._core.policy import margin, renew_after
from leasehold.advice import ttl_for
from leasehold.advice.questions import duration_text
from tests.support.tables import each

LENGTH = st.floats(min_value=0, max_value=10_000)


def test_the_example_with_renewal() -> None:
    """Pauses of 5 s and a store that answers within 1 s: 12 s, renewed every 4 s, and work stops with 2 s left."""
    advice = ttl_for(p999="8s", pause="5s", network="1s")
    assert (advice.ttl, advice.renew_every, advice.stop_at, advice.room) == (12.0, 4.0, 2.0, 6.0)
    assert (advice.tool, advice.warnings) == ("lock", ())


def test_the_example_without() -> None:
    """The same with work of 8 s and no renewal: 14 s, and work stops at the deadline."""
    advice = ttl_for(p999="8s", pause="5s", network="1s", renew=False)
    assert (advice.ttl, advice.renew_every, advice.stop_at) == (14.0, None, 0.0)


def test_it_is_what_the_watchdog_does() -> None:
    """Interval and threshold are those of the policy, whatever those are."""
    advice = ttl_for(pause=30, network=2)
    assert (advice.renew_every, advice.stop_at) == (renew_after(advice.ttl), margin(advice.ttl))


def test_at_least() -> None:
    """A lease that is renewed has at least 5 s; one that is not has what a lease must have. Both say so."""
    short = ttl_for(pause="1s", network="10ms")
    assert short.ttl == 5.0 and "at least 5s" in "\n".join(short.reasons)
    tiny = ttl_for(p999="1ms", pause=0, network=0, renew=False)
    assert tiny.ttl == 0.05 and "at least 50ms" in "\n".join(tiny.reasons)


def test_with_renewal_the_work_does_not_matter() -> None:
    """Neither its length nor whether it is known changes the ttl."""
    assert ttl_for().ttl == ttl_for(p999="10m").ttl == ttl_for(p999="3h").ttl


@each(
    ("arguments", "what"),
    [({"p999": "3h"}, "the work"), ({"p999": "3h", "renew": False}, "the ttl"), ({"pause": "40m"}, "the ttl")],
    ids=str,
)
def test_over_an_hour(arguments: dict[str, Any], what: str) -> None:
    """The answer is durable ownership, and it is said of what."""
    advice = ttl_for(**arguments)
    assert advice.tool == "jobs"
    assert advice.warnings[0].startswith(f"{what} is over 1h: use durable ownership")


def test_longer_than_any_lease() -> None:
    """What no lock would take is said to be refused."""
    assert "at most 24h" in ttl_for(p999="2d", renew=False).warnings[1]


def test_without_renewal_the_work_must_be_known() -> None:
    """A guess is no advice."""
    with pytest.raises(InvalidRequest, match=r"p999.*99\.9 %"):
        ttl_for(renew=False)


@each(
    "arguments",
    [{"p999": -1}, {"pause": "soon"}, {"network": float("inf")}, {"renew": "no"}, {"p999": True}, {"pause": None}],
    ids=str,
)
def test_mistakes(arguments: dict[str, Any]) -> None:
    """They are refused by name."""
    with pytest.raises(InvalidRequest, match=next(iter(arguments))):
        ttl_for(**arguments)


@given(LENGTH, LENGTH, LENGTH, st.booleans())
def test_every_advice(work: float, pause: float, network: float, renew: bool) -> None:
    """Whatever is asked: it covers what was said, a lock takes it, and it is JSON."""
    advice = ttl_for(work, pause, network, renew)
    needed = 2 * (pause + network) if renew else work + pause + network
    assert advice.ttl >= needed - 1e-6
    assert ttl_ms(advice.ttl) == round(advice.ttl * 1000)
    assert json.loads(json.dumps(advice.as_dict())) == advice.as_dict()
    assert seconds(duration_text(advice.ttl), "ttl") == pytest.approx(advice.ttl)


def test_lengths_can_be_typed() -> None:
    """One unit, no more digits than needed."""
    written = [duration_text(one) for one in (0, 0.0005, 0.25, 1, 1.5, 12.0, 61, 60, 5400, 7200, 3661, 0.9999)]
    assert written == ["0ms", "0.5ms", "250ms", "1s", "1.5s", "12s", "61s", "1m", "90m", "2h", "3661s", "1s"]


def test_it_reads_well() -> None:
    """For people: the ttl, what follows, and how it was computed."""
    assert str(ttl_for(pause=5, network=1)).splitlines() == [
        "ttl         12s",
        "renewed     every 4s; renewals may fail for 6s",
        "work stops  2s before the deadline, when renewal does not succeed",
        "a crash     blocks others for at most 12s",
        "why         2 × (pause 5s + network 1s) = 12s",
        "            how long the work takes does not matter: it is renewed meanwhile",
    ]
    assert str(ttl_for(p999="2h", renew=False)).splitlines()[-1].startswith("warning     the ttl is over 1h")
