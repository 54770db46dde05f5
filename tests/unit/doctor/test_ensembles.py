"""What Sentinels, Clusters, etcd and ZooKeeper may say, and can hardly be brought to say in a test with real ones."""

from __future__ import annotations

from typing import Any

from leasehold.doctor import cluster, etcd, redlock, sentinel, zookeeper
from leasehold.doctor.clocks import Reading
from leasehold.doctor.exposition import Exposition
from leasehold.doctor.members import Away
from leasehold.doctor.report import Finding
from leasehold.doctor.sentinel import Opinion
from leasehold.stores.etcd.urls import Endpoint
from leasehold.stores.etcd.urls import from_url as etcd_from_url
from leasehold.stores.redis.target import Target
from tests.support.tables import each


def severities(findings: list[Finding]) -> list[tuple[str, str]]:
    """Check and severity of each."""
    return [(one.check, one.severity) for one in findings]


# ---------------------------------------------------------------- Sentinel

WELL = {"ip": "10.0.0.1", "port": "6379", "flags": "master", "num-other-sentinels": "2", "num-slaves": "1",
        "down-after-milliseconds": "5000"}  # fmt: skip


def test_sentinels_that_do_not_agree() -> None:
    """The finding names what each says."""
    others = Opinion("s2", {**WELL, "ip": "10.0.0.2"}, "OK")
    (finding,) = sentinel._agreement([Opinion("s1", WELL, "OK"), others])
    assert finding.severity == "problem" and "s2 says 10.0.0.2:6379" in finding.text
    assert sentinel._agreement([Opinion("s1", WELL, "OK")] * 3) == []


@each(
    ("fields", "quorum", "expected"),
    [
        ({}, "OK", [("quorum", "ok"), ("sentinels", "note")]),
        ({}, "NOQUORUM 1 usable Sentinels", [("quorum", "problem"), ("sentinels", "note")]),
        ({}, "NOPERM", [("quorum", "note"), ("sentinels", "note")]),
        ({"flags": "master,o_down"}, "OK", [("quorum", "ok"), ("sentinels", "problem"), ("sentinels", "note")]),
        ({"num-other-sentinels": "0"}, "OK", [("quorum", "ok"), ("sentinels", "warning")]),
    ],
)
def test_what_a_sentinel_says(fields: dict[str, str], quorum: str, expected: list[tuple[str, str]]) -> None:
    """Of the quorum, of the primary, and of the others."""
    assert severities(sentinel._health(Opinion("s1", {**WELL, **fields}, quorum))) == expected


# ---------------------------------------------------------------- Cluster


@each(
    ("count", "served", "state", "expected"),
    [
        (3, 16384, {"cluster_state": "ok"}, [("slots", "ok")]),
        (3, 16000, {"cluster_state": "fail"}, [("slots", "problem"), ("cluster", "problem")]),
        (2, 16384, {"cluster_state": "ok"}, [("slots", "ok"), ("cluster", "warning")]),
        (3, 16384, None, [("slots", "ok"), ("cluster", "note")]),
    ],
)
def test_the_health_of_a_cluster(
    count: int, served: int, state: dict[str, str] | None, expected: list[tuple[str, str]]
) -> None:
    """Slots, state, and enough masters to promote a replica."""
    masters = [("10.0.0.1", port) for port in range(count)]
    assert severities(cluster._health(cluster.Map(Target(), masters, served, state))) == expected


# ---------------------------------------------------------------- etcd

URL = etcd_from_url("etcd://a,b,c")
STATUS = {"version": "3.5.9", "leader": "7", "dbSize": "1000", "dbSizeInUse": "900"}


def facts(**more: Any) -> etcd.Facts:
    """Of a member in order, but for these."""
    given = {"endpoint": Endpoint("a"), "status": STATUS, "alarms": [], "members": [{}] * 3, "metrics": None,
             "clock": Reading(0.0, 0.5), "whole": False, **more}  # fmt: skip
    return etcd.Facts(**given)


def test_no_node_to_compare() -> None:
    """Of nodes that are all away it is not said that they are different servers."""
    assert redlock._independent([]) == []


def test_members_of_etcd() -> None:
    """A majority that is left, one that is not, an even number, a URL that does not name all."""
    gone = (Endpoint("c"), Away("refused"))
    assert severities(etcd._members(URL, [facts()] * 3, [])) == [("members", "ok")]
    assert severities(etcd._members(URL, [facts()] * 2, [gone])) == [("members", "warning")]
    assert severities(etcd._members(URL, [facts()], [gone] * 2)) == [("reachable", "problem")] * 2
    four = facts(members=[{}] * 4)
    assert severities(etcd._members(URL, [four] * 3, [])) == [("members", "note")] * 2


def test_a_member_of_etcd() -> None:
    """Too old, without a leader, with a slow disk and a loose file, and what cannot be seen."""
    assert severities(etcd._version(facts(status={**STATUS, "version": "3.3.1"}))) == [("version", "problem")]
    assert severities(etcd._leader(facts(status={}))) == [("leader", "problem")] and etcd._leader(facts()) == []
    disk = "etcd_disk_wal_fsync_duration_seconds_bucket"
    slow = f'{disk}{{le="0.128"}} 50\n{disk}{{le="+Inf"}} 100'
    assert severities(etcd._disk(facts(metrics=Exposition(slow)))) == [("disk", "warning")]
    loose = {**STATUS, "dbSize": str(1 << 30)}
    assert severities(etcd._compaction(facts(status=loose))) == [("compaction", "ok"), ("compaction", "note")]
    assert severities(etcd._quota(facts())) == [("quota", "note")]
    assert severities(etcd._alarms([facts(alarms=None)])) == [("alarms", "note")]
    (finding,) = etcd._alarms([facts(alarms=[{"alarm": "CORRUPT"}])])
    assert finding.severity == "problem" and "CORRUPT" in finding.text


def test_clocks_of_etcd() -> None:
    """HTTP tells whole seconds: what is less is no finding."""
    far = facts(endpoint=Endpoint("b"), clock=Reading(9.0, 0.5))
    assert [one.severity for one in etcd._clocks([facts(), far])] == ["warning", "warning"]
    assert [one.severity for one in etcd._clocks([facts(clock=Reading(0.9, 0.5))])] == ["ok"]


# ---------------------------------------------------------------- ZooKeeper


def member(place: str = "a:2181", **srvr: str) -> zookeeper.Facts:
    """One that allows the word srvr, and no other."""
    return zookeeper.Facts(place, {"zookeeper version": "3.8.0-x, built", "mode": "follower", **srvr}, None, None)


def test_members_of_zookeeper() -> None:
    """One leads; the leader is not in the URL; one serves nothing; one tells nothing; most are away."""
    hosts = ["a:2181", "b:2181", "c:2181"]
    leader, idle = member(mode="leader"), member(mode="")
    silent = zookeeper.Facts("c:2181", None, None, None)
    assert severities(zookeeper._members(hosts, [leader, member(), member()], [])) == [("members", "ok")]
    assert severities(zookeeper._members(hosts, [member(), member()], [])) == [("members", "note")]
    assert severities(zookeeper._members(hosts, [leader, idle], [])) == [("members", "problem"), ("members", "ok")]
    assert severities(zookeeper._members(hosts, [leader, silent], []))[0] == ("members", "note")
    gone = [("b:2181", Away("refused")), ("c:2181", Away("refused"))]
    assert severities(zookeeper._members(hosts, [idle], gone))[:2] == [("reachable", "problem")] * 2
    assert severities(zookeeper._members(hosts, [leader, member()], gone[:1])) == [("members", "warning")]


def test_a_member_of_zookeeper() -> None:
    """Too old, slow, followers that are behind, and what cannot be seen."""
    assert severities(zookeeper._version(member(**{"zookeeper version": "3.4.14"}))) == [("version", "problem")]
    assert severities(zookeeper._version(zookeeper.Facts("a", None, None, None))) == [("version", "note")]
    slow = member(**{"latency min/avg/max": "0/250.5/900"})
    assert severities(zookeeper._load(slow)) == [("latency of requests", "warning")]
    behind = member()._replace(mntr={"zk_followers": "2", "zk_synced_followers": "1.0"})
    assert severities(zookeeper._load(behind)) == [("replicas", "warning")]
    assert severities(zookeeper._ticks(member())) == [("ticks", "note")]
