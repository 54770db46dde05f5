"""Each anti-pattern shows in metrics, and a healthy program shows none."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

import leasehold
from leasehold.doctor import antipatterns
from leasehold.doctor.exposition import Exposition
from leasehold.doctor.report import Finding
from leasehold.observe.prometheus import PrometheusObserver
from tests.support.tables import each


def find(*lines: str) -> list[Finding]:
    """In an exposition with these lines."""
    return antipatterns.find(Exposition("\n".join(("leasehold_held 0", *lines))))


def held(kind: str, total: int, **bounds: int) -> list[str]:
    """The buckets of a histogram: how many leases are held for at most so long."""
    counts = {name.removeprefix("s").replace("_", "."): count for name, count in bounds.items()} | {"+Inf": total}
    return [f'leasehold_hold_seconds_bucket{{kind="{kind}",le="{bound}"}} {count}' for bound, count in counts.items()]


SHOWN = {
    "blind delete": ("problem", ['leasehold_lost_total{kind="a",reason="deleted"} 1']),
    "no ttl": ("problem", ["leasehold_keys_without_ttl 2"]),
    "ttl too long": ("warning", ['leasehold_ttl_seconds{kind="a"} 600', *held("a", 1000, s1_0=1000)]),
    "ttl too short": ("warning", ['leasehold_ttl_seconds{kind="a"} 5', *held("a", 100, s10_0=90, s60_0=100)]),
    "believing expiry": ("warning", ['leasehold_stale_release_total{kind="a"} 1']),
    "no fencing": ("problem", ['leasehold_unguarded_total{kind="a"} 3']),
    "redlock as magic": (
        "problem",
        ['leasehold_unguarded_total{kind="a"} 3', 'leasehold_acquire_total{kind="a",store="redlock"} 9'],
    ),
    "endless retry": (
        "warning",
        [
            'leasehold_acquire_total{kind="a",outcome="busy"} 500',
            'leasehold_acquire_total{kind="a",outcome="acquired"} 4',
        ],
    ),
    "one global lock": ("warning", ['leasehold_antipattern_total{kind="a",pattern="no_id"} 1']),
}


@each("pattern", SHOWN)
def test_each_is_found(pattern: str) -> None:
    """By its name, with the kind, a reason and a fix."""
    severity, lines = SHOWN[pattern]
    (finding,) = find(*lines)
    assert (finding.check, finding.severity) == (pattern, severity) and finding.reason and finding.fix
    assert finding.text.startswith("a: ") or pattern == "no ttl"
    assert not finding.reason.endswith(".")  # it is printed with one


@each(
    ("pattern", "check"),
    {"ttl_too_long": "ttl too long", "ttl_too_short": "ttl too short", "retry_loop": "endless retry",
     "unguarded": "no fencing", "no_id": "one global lock"}.items(),
)  # fmt: skip
def test_what_programs_notice_themselves(pattern: str, check: str) -> None:
    """Their own counter is enough, and is not reported twice beside the other metrics."""
    noticed = f'leasehold_antipattern_total{{kind="a",pattern="{pattern}"}} 1'
    assert [one.check for one in find(noticed)] == [check]
    assert [one.check for one in find(noticed, *SHOWN[check][1])] == [check]


def test_other_signs() -> None:
    """Leases that expired while they were held; guards that refused; a ttl that is long but bearable."""
    assert [one.check for one in find('leasehold_lost_total{kind="a",reason="expired"} 1')] == ["ttl too short"]
    (finding,) = find('leasehold_fencing_rejected_total{kind="a",downstream="sql"} 1')
    assert finding.check == "believing expiry" and "protected the data" in finding.reason
    (finding,) = find('leasehold_ttl_seconds{kind="a"} 30', *held("a", 1000, s1_0=1000))
    assert (finding.check, finding.severity) == ("ttl too long", "note")


@each(
    "lines",
    [
        ['leasehold_ttl_seconds{kind="a"} 600', *held("a", 999, s1_0=999)],  # too few to know
        [
            'leasehold_ttl_seconds{kind="a"} 5',
            *held("a", 10, s10_0=10),
            'leasehold_renew_total{kind="a",outcome="renewed"} 9',
        ],
        ['leasehold_ttl_seconds{kind="a"} 45', *held("a", 100, s10_0=0, s60_0=100)],  # they may all end before 45 s
        ['leasehold_ttl_seconds{kind="a"} 5', *held("a", 100, s10_0=99, s60_0=100)],  # one in a hundred, and no more
        ['leasehold_acquire_total{kind="a",outcome="busy"} 90'],
        [
            'leasehold_acquire_total{kind="a",outcome="busy"} 9000',
            'leasehold_cron_last_success_timestamp_seconds{kind="a"} 1.7e+09',  # another host runs every tick
        ],
        ['leasehold_lost_total{kind="a",reason="closed"} 9'],
    ],
)
def test_what_is_none(lines: list[str]) -> None:
    """Few samples, renewed leases, some refusals, ticks that another host runs, losses that are nobody's fault."""
    assert [one.severity for one in find(*lines)] == ["ok"]


def test_how_many() -> None:
    """One is one, a million has all its digits, and the share that is held for too long is the real one."""
    (finding,) = find('leasehold_unguarded_total{kind="a"} 1')
    assert finding.text == "a: 1 lease protected correctness, and no one used the fence"
    (finding,) = find('leasehold_lost_total{kind="a",reason="deleted"} 1234567')
    assert finding.text == "a: 1234567 leases were deleted in the store while held"
    (finding,) = find(*SHOWN["ttl too short"][1])
    assert finding.text == "a: 10 % of the leases are held for more than the ttl of 5 s, and none is renewed"


def test_a_program_in_order() -> None:
    """Its real exposition shows nothing; one without our metrics is a note."""
    registry = CollectorRegistry()
    with leasehold.connect("memory://", observers=[PrometheusObserver(registry)]) as hold, hold.lock("report", 7):
        pass
    (finding,) = antipatterns.find(Exposition(generate_latest(registry).decode()))
    assert finding.severity == "ok"
    (finding,) = antipatterns.find(Exposition("up 1"))
    assert finding.severity == "note"
