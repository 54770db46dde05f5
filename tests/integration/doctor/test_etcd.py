"""The examination of etcd: members, quota, alarms, compaction, and the rights that it printed itself."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

import leasehold
from leasehold.doctor import etcd
from tests.support.doctor import every_finding_helps, examined, found, only
from tests.support.servers.etcd import EtcdEnsemble, EtcdServer

pytestmark = pytest.mark.slow


def test_one_member(etcd_url: str) -> None:
    """Nothing is wrong but that it is alone."""
    seen = examined(etcd_url)
    every_finding_helps(seen)
    assert "problem" not in {one.severity for one in seen.report.findings} and seen.trial is not None
    assert only(seen, "members").severity == "warning" and only(seen, "alarms").severity == "ok"
    assert only(seen, "quota").severity == "ok" and only(seen, "clock").severity == "ok"


def test_compaction(etcd_server: EtcdServer, etcd_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old revisions are there until somebody compacts them."""
    assert only(examined(etcd_url), "compaction").severity == "note"
    monkeypatch.setattr(etcd, "KEPT_REVISIONS", 5)
    for number in range(99):
        etcd_server.put("a", str(number))
    assert "auto-compaction" in found(examined(etcd_url), "compaction")["warning"].fix
    etcd_server.compact()
    monkeypatch.setattr(etcd, "KEPT_REVISIONS", 60)  # the trial itself has written since
    assert only(examined(etcd_url), "compaction").severity == "ok"


@pytest.mark.soak  # a server of its own, which is filled
def test_a_quota_that_is_nearly_used_and_then_is() -> None:
    """A problem from four fifths on. When it is full there is an alarm, and no lease can be taken."""
    with EtcdServer("--quota-backend-bytes=2097152") as server:
        for number in range(3):
            server.put(f"filler-{number}", "x" * 500_000)
        seen = examined(server.url)
        assert only(seen, "quota").severity == "problem" and "defrag" in only(seen, "quota").fix
        status = 200
        while status == 200:
            status, _ = server.post("kv/put", {"key": "YQ==", "value": "eHh4" * 200_000})
        seen = examined(server.url)
        assert only(seen, "alarms").severity == "problem" and "NOSPACE" in only(seen, "alarms").text
        assert seen.trial is None and seen.report.reachable


def _control(server: EtcdServer, line: str) -> None:
    words = line.replace("user add app", "user add app:password").split()
    login = ["--user", ":".join(server.login or ())]
    command = [words[0], f"--endpoints=127.0.0.1:{server.port}", *(login if server.login else ()), *words[1:]]
    subprocess.run(
        command, check=True, capture_output=True, timeout=60, env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"}
    )


def test_the_lines_that_it_prints_are_enough(etcd_url: str) -> None:
    """A user made with them takes and gives back leases, and none under another prefix."""
    prefix = etcd_url.rpartition("/")[2]
    lines = only(examined(etcd_url), "permissions").fix.split("; ")
    assert prefix in lines[1]
    with EtcdServer() as server:
        for line in lines:
            _control(server, line)
        for line in ("etcdctl user add root:toor", "etcdctl user grant-role root root", "etcdctl auth enable"):
            _control(server, line)
        url = f"etcd://app:password@127.0.0.1:{server.port}/{prefix}"
        with leasehold.connect(url) as one, leasehold.connect(url) as other:
            with one.lock("job"):
                assert other.lock("job").try_acquire() is None
            with other.lock("job", wait=5):
                pass
        seen = examined(url)
        assert seen.trial is not None and only(seen, "permissions").severity == "ok"
        assert "problem" not in {one.severity for one in seen.report.findings}
        seen = examined(url + "-of-others")
        assert seen.trial is None and "grant its role" in found(seen, "lease")["problem"].text
        assert seen.report.reachable and only(seen, "permissions").text == "the rights of this login cannot be seen"
        seen = examined(url.replace("app:password@", ""))
        assert "requires a user" in found(seen, "lease")["problem"].text
        assert (
            only(seen, "permissions").text == "the rights of this login cannot be seen"
        )  # not that everybody has them
        seen = examined(url.replace("password", "wr0ng"))
        finding = found(seen, "reachable")["problem"]
        assert "refuses the login" in finding.text and "user and the password" in finding.fix


def test_a_server_that_is_gone() -> None:
    """A finding: nothing listens there."""
    seen = examined("etcd://127.0.0.1:1")
    assert not seen.report.reachable and found(seen, "reachable")["problem"].place == "127.0.0.1:1"


@pytest.mark.soak  # an ensemble of its own takes seconds to start and to heal
def test_an_ensemble(etcd_ensemble: EtcdEnsemble) -> None:
    """Three members: whole; one away is a warning; two are no majority."""
    url = etcd_ensemble.url
    assert only(examined(url), "members").severity == "ok"
    first, second, _ = etcd_ensemble.members
    first.kill()
    seen: Any = examined(url)
    assert only(seen, "members").severity == "warning" and seen.trial is not None
    second.kill()
    seen = examined(url)
    assert not seen.report.reachable and "problem" in found(seen, "reachable")
