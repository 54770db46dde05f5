"""What a server of Redis may say, and can hardly be brought to say in a test with a real one."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.doctor import redis
from leasehold.doctor.nodes import Facts, Server
from leasehold.doctor.report import Finding
from leasehold.stores.redis.target import Target
from tests.support.tables import each

INFO = {
    "redis_version": "7.0.15", "role": "master", "maxmemory_policy": "noeviction", "aof_enabled": "1",
    "aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok", "connected_clients": "1", "maxclients": "100",
    "master_repl_offset": "500",
}  # fmt: skip


def check(
    info: dict[str, str] | None = None,
    fails_over: bool = False,
    hidden: bool = False,
    resp2: bool = False,
    **settings: Any,
) -> dict[str, list[Finding]]:
    """The findings by check about a server that says this. ``hidden``: its settings cannot be seen."""
    facts: Any = object.__new__(Facts)
    facts.target, facts.info, facts.config = Target(), {**INFO, **(info or {})}, None if hidden else dict(settings)
    facts.slow, facts.user, facts.refused, facts.scripts_refused, facts.clock = [], "app", [], "", None
    facts.operator_refused, facts.resp3 = [], not resp2
    found: dict[str, list[Finding]] = {}
    for one in redis.check(Server(facts, fails_over, "the line")):
        found.setdefault(one.check, []).append(one)
    return found


def test_versions() -> None:
    """One that is too old; Valkey by its own name, though it says that it is Redis 7.2."""
    assert check({"redis_version": "6.0.16"})["version"][0].severity == "problem"
    assert check({"redis_version": "7.2.4", "valkey_version": "8.1.1"})["version"][0].text.startswith("Valkey 8.1.1")


def test_a_setting_of_the_disk_that_cannot_be_seen() -> None:
    """What a power cut would lose is then not claimed to be known."""
    (finding,) = check(hidden=True)["persistence"]
    assert finding.severity == "note" and "appendfsync cannot be seen" in finding.text
    assert check(appendfsync="everysec")["persistence"][0].severity == "ok"


def test_a_proxy_that_knows_no_pushes() -> None:
    """RESP3 is wanted, and HELLO 3 was refused."""
    assert check(resp2=True)["channels"][0].severity == "warning"


@pytest.mark.parametrize("field", ["aof_last_write_status", "rdb_last_bgsave_status"])
def test_a_disk_that_fails(field: str) -> None:
    """The next claim may be refused."""
    finding = check({field: "err"}, appendfsync="always")["persistence"][0]
    assert finding.severity == "problem" and field in finding.text


def test_snapshots_that_cannot_be_seen() -> None:
    """A login without CONFIG is not told that there are any: a server without them says when it was started."""
    info = {"aof_enabled": "0", "rdb_changes_since_last_save": "527", "rdb_last_save_time": "1794000000"}
    (finding,) = check(info, hidden=True)["persistence"]
    assert finding.severity == "warning" and "whether snapshots are written cannot be seen" in finding.text
    assert "at least the last 527 changes" in finding.text and " ago" not in finding.text
    assert "CONFIG GET save" in finding.fix
    assert "only snapshots are written" in check(info, save="3600 1")["persistence"][0].text
    assert "nothing is written to disk" in check(info, save="")["persistence"][0].text


@each(
    ("line", "severity"),
    [
        ("ip=10.0.0.2,port=6379,state=online,offset=500,lag=0", "ok"),
        ("ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0", "warning"),
        ("ip=10.0.0.2,port=6379,state=online,offset=100,lag=9", "warning"),
    ],
)
def test_replicas(line: str, severity: str) -> None:
    """In step, being copied to, silent."""
    (finding,) = check({"slave0": line})["replicas"]
    assert finding.severity == severity and "10.0.0.2:6379" in finding.text


def test_fewer_replicas_than_writes_need() -> None:
    """And what a primary risks that fails over without that setting."""
    line = {"slave0": "ip=10.0.0.2,port=6379,state=online,offset=500,lag=0"}
    for least, severity in (("2", "problem"), ("1", "ok"), ("0", "warning")):
        settings: dict[str, Any] = {"min-replicas-to-write": least}
        (finding,) = check(line, fails_over=True, **settings)["min-replicas"]
        assert finding.severity == severity
    for alone, severity in ((check(fails_over=True), "warning"), (check(), "note")):
        (finding,) = alone["replicas"]
        assert finding.severity == severity and finding.fix


def test_thresholds() -> None:
    """Under its old name, too; what is much longer than usual is warned of."""
    for value, severity in (("5000", "ok"), ("60000", "warning"), ("0", "warning")):
        settings: dict[str, Any] = {"lua-time-limit": value}
        (finding,) = check(**settings)["busy-reply-threshold"]
        assert finding.severity == severity
