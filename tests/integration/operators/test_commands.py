"""The commands for operators on every store: clear, audit, leaks, revoke, and what ``inspect`` exits with."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold._core.schemes import OPENED
from leasehold.cli import liveness
from leasehold.coordinator.operators import EvictionRequest, eviction_request
from leasehold.doctor import rights
from tests.support.cli.console import Console
from tests.support.waiting import until

ME = f"{os.uname().nodename}:{os.getpid()}"
WITH_KEYS = {"redis", "sentinel", "cluster", "redlock"}
EVICTING = sorted(set(OPENED) - {"redlock"})


def console_on(store: str, request: pytest.FixtureRequest) -> Console:
    """Commands on that store. A store that is added says here where it is."""
    fixture = request.getfixturevalue
    if store == "memory":
        url = f"memory://{fixture('tmp_path').name}"
    elif store == "sqlite":
        url = f"sqlite:///{fixture('tmp_path')}/leases.db"
    elif store == "postgresql":
        url = fixture("postgres_database").url
    elif store == "etcd":
        url = fixture("etcd_server").url
    elif store == "zookeeper":
        url = fixture("zookeeper_server").url(fixture("chroot"))
    elif store == "redis":
        url = fixture("redis_url")
    else:
        url = fixture("redlock_servers" if store == "redlock" else f"redis_{store}").url
    return Console(fixture("monkeypatch"), url)


@pytest.mark.parametrize("store", EVICTING)
def test_a_holder_is_cleared_and_the_audit_tells(store: str, request: pytest.FixtureRequest) -> None:
    """A holder at work is left alone; with force it is evicted, the next one gets the lease, and the note stays."""
    console = console_on(store, request)
    request.getfixturevalue("monkeypatch").setattr(liveness, "host_instance", lambda: "elsewhere")  # a name is no place
    clear = ["clear", "job:7", "--reason", "it hangs", "--by", "alice", "--yes"]
    with leasehold.connect(console.url) as hold:
        lease = hold.lock("job", 7, ttl=30, renew=False).acquire()
        assert lease is not None
        refused = console.run(*clear)
        assert (refused.code, "was renewed" in refused.err) == (75, True)
        assert console.run("inspect", "job:7").code == 0
        done = console.run(*clear, "--force", "--delay", "0", "--expect-fence", str(lease.fence), "--json")
        found = done.document()
        assert (done.code, found["outcome"], found["holder"]["owner"]) == (0, "evicted", ME)
        assert (found["alive"]["alive"], found["alive"]["by"]) == (True, "pid"), found["alive"]
        assert found["eviction"]["fence"] > lease.fence
        assert console.run("inspect", "job:7").code == 1  # it is free, and keeps its history
        assert console.run(*clear).code == 1
        (entry,) = console.run("audit", "--json").document()
        assert (entry["resource"], entry["owner"], entry["fence"]) == ("job:7", ME, lease.fence)
        assert (entry["by"], entry["reason"]) == (f"alice@{os.uname().nodename}", "it hangs")
        assert 0 < entry["remaining"] <= 30
        assert console.run("audit", "job:7", "--json").document() == [entry]
        following = hold.lock("job", 7).try_acquire()
        assert following and following.fence > found["eviction"]["fence"]


@pytest.mark.parametrize("store", EVICTING)
def test_a_holder_is_asked(store: str, request: pytest.FixtureRequest) -> None:
    """It releases, and ``revoke --wait`` says so. Nobody to ask is 1."""
    console = console_on(store, request)
    with leasehold.connect(console.url) as hold:
        assert console.run("revoke", "job:7").code == 1
        lease = hold.lock("job", 7, ttl=30).acquire()
        assert lease is not None
        lease.on_revoked(lambda: lease.release() and None)
        done = console.run("revoke", "job:7", "--wait", "30s")
        while done.code == 1 and lease.state == "held":  # it can be told from a moment after it began
            done = console.run("revoke", "job:7", "--wait", "30s")
        assert (done.code, done.out) == (0, "job:7 was released.\n")


@pytest.mark.parametrize("store", OPENED)
def test_what_can_leak(store: str, request: pytest.FixtureRequest) -> None:
    """Where keys of others can be, they are looked for; elsewhere one sentence says that there are none."""
    console = console_on(store, request)
    done = console.run("leaks")
    assert (done.code, done.out.startswith("No key that matches lock:*")) == (0, store in WITH_KEYS)
    assert ("nothing can leak there" in done.out) == (store not in WITH_KEYS)


def test_majorities_cannot_evict(request: pytest.FixtureRequest) -> None:
    """Redlock says so, before anything is sent; there is nothing to audit."""
    console = console_on("redlock", request)
    for words in (["clear", "job", "--reason", "x", "--yes"], ["revoke", "job"]):
        done = console.run(*words)
        assert (done.code, "could succeed on some nodes" in done.err) == (78, True)
    assert console.run("audit").code == 0


def test_keys_of_others_on_every_master(request: pytest.FixtureRequest) -> None:
    """In a Cluster they may be on any of them."""
    console = console_on("cluster", request)
    client = request.getfixturevalue("redis_cluster").client()
    names = [f"lock:{number}" for number in range(20)]
    for name in names:
        client.set(name, "x")
    done = console.run("leaks", "--json")
    assert (done.code, done.document()) == (1, sorted(names))


# ---------------------------------------------------------------- logins for one namespace


def tenant(store: str, request: pytest.FixtureRequest) -> list[Any]:
    """Make a login for the namespace acme on every server, as the page about security has it."""
    page = (Path(__file__).parents[3] / "docs/howto/security.md").read_text("utf-8")
    keys = re.search(r"In Redis: `([^`]*)` in place of", page)
    assert keys
    line = rights.cluster_line("tenant") if store == "cluster" else rights.redis_line(user="tenant")
    more, fixture = "", request.getfixturevalue
    if store == "cluster":
        more, clients = " ~lock:v1:slot:{acme}", [node.client() for node in fixture("redis_cluster").nodes]
    elif store == "redlock":
        more, clients = " ~lock:v1:redlock", fixture("redlock_servers").clients()
    else:
        clients = [fixture("redis_server").client()]
    for client in clients:
        client.execute_command(*line.replace("~lock:v1:*", f"{keys[1]}{more}").split())
    return clients


def counts(url: str) -> bool:
    """Whether leases are granted there by now."""
    with leasehold.connect(url) as hold:
        try:
            lease = hold.lock("probe", ttl=1.5).try_acquire()
        except leasehold.StoreUnavailable:
            return False
        return lease is not None and lease.release()


@pytest.mark.parametrize("store", ["redis", "cluster", "redlock"])
def test_a_login_for_one_namespace(store: str, request: pytest.FixtureRequest) -> None:
    """There it looks as everybody does. Where it may read none of what there is, no command says that there is
    nothing."""
    console = console_on(store, request)
    if store == "redlock":  # a node that was started a moment ago counts after that time
        console.url += "?max_ttl=1.5"
        until(lambda: counts(console.url), "the nodes count")
    clients, everybody = tenant(store, request), console.url
    console.url = everybody.replace("://", "://tenant:password@")
    try:
        with leasehold.connect(everybody, namespace="other") as hold, hold.lock("job", 7, ttl=1.5) as lease:
            for words in (["ls"], ["audit"], ["inspect", "--id-hash", lease.log_context()["id_hash"]]):
                for space in ([], ["--namespace", "other"]):
                    done = console.run(*words, *space)
                    assert (done.code, done.out) == (69, "") and "may read none of the names" in done.err, done
                done = console.run(*words, "--namespace", "acme")
                assert done.code == (words[0] == "inspect"), done
        with leasehold.connect(console.url, namespace="acme") as hold, hold.lock("job", 7, ttl=1.5):
            assert console.run("status", "--namespace", "acme").code == 0
            assert [one.resource for one in hold.scan()] == ["acme/job:7"]
            assert hold.ping() > 0
    finally:
        for client in clients:
            client.execute_command("ACL", "DELUSER", "tenant")


# ---------------------------------------------------------------- Redis alone


def test_somebody_who_only_sets_the_key(request: pytest.FixtureRequest) -> None:
    """Neither a fence nor a renewal is known, and without a TTL it never ends: it is cleared with a delay of ours."""
    console = console_on("redis", request)
    client = request.getfixturevalue("redis_server").client()
    client.set("lock:v1:{job}:owner", "pigeon")
    clear = ["clear", "job", "--reason", "it hangs", "--yes"]
    assert console.run("leaks").out == "lock:v1:{job}:owner\n"
    shown = console.run("clear", "job", "--reason", "x", answer="n\n").out
    assert "renewed    unknown: the holder only sets the key of the owner" in shown
    assert "alive      unknown: it does not say which process it is" in shown
    assert "advice     it has no TTL, or one of a day or more: it may never end" in shown
    assert console.run(*clear, "--delay", "1s").code == 2
    done = console.run(*clear, "--delay", "0", "--force")
    assert (done.code, "Its holder cannot be told." in done.out) == (0, True)
    assert console.run("leaks").code == 0


@pytest.mark.parametrize("moment", ["while the operator thinks", "in the last moment"])
def test_another_client_without_fences_is_not_hit(request: pytest.FixtureRequest, moment: str) -> None:
    """Both have the fence 0: the owner is compared as well."""
    console = console_on("redis", request)
    client = request.getfixturevalue("redis_server").client()
    client.set("lock:v1:{job}:owner", "pigeon", px=60_000)
    assert "prefer to wait (--wait)" in console.run("clear", "job", "--reason", "x", answer="n\n").out
    monkeypatch = request.getfixturevalue("monkeypatch")

    def confirm(*_: object, **__: object) -> bool:
        client.set("lock:v1:{job}:owner", "dove", px=60_000)
        return True

    def last(*arguments: Any) -> EvictionRequest:
        confirm()
        return eviction_request(*arguments)

    if moment == "in the last moment":
        monkeypatch.setattr("click.confirm", lambda *_, **__: True)
        monkeypatch.setattr("leasehold.cli.clear.eviction_request", last)
    else:
        monkeypatch.setattr("click.confirm", confirm)
    assert console.run("clear", "job", "--reason", "x", answer="").code == 75
    assert client.get("lock:v1:{job}:owner") == b"dove"


ACL = next(
    line for line in (Path(__file__).parents[3] / "docs" / "redis.md").read_text("utf-8").splitlines()
    if line.startswith("ACL SETUSER leasehold ")
)  # fmt: skip


CLEAR = ["clear", "job", "--reason", "x", "--yes", "--force"]


@pytest.mark.parametrize(
    ("rules", "words", "missing"),
    [
        (ACL.replace(" +evalsha", "").replace(" +eval", ""), CLEAR, "prints the ACL line"),
        (ACL.replace(" +rpush", ""), CLEAR, "prints the ACL line"),
        (ACL.replace("~lock:v1:*", "%R~lock:v1:*"), CLEAR, "leases need ~lock:v1:*"),
        (ACL.replace(" +scan", ""), ["audit"], "prints the ACL line"),
        (ACL.replace(" +scan", ""), ["leaks"], "prints the ACL line"),
        (ACL, ["leaks", "--pattern", "*"], "the right to read what it searches, such as %R~lock:*"),
    ],
    ids=["no scripts", "no notes", "read only", "no listing", "no scan", "no keys of others"],
)
def test_missing_rights(request: pytest.FixtureRequest, rules: str, words: list[str], missing: str) -> None:
    """69, one sentence that says what is missing, or where to find it; and nobody is evicted."""
    console = console_on("redis", request)
    server = request.getfixturevalue("redis_server")
    client = server.client()
    client.set("lock:of-another", "x")
    with leasehold.connect(console.url) as hold, hold.lock("job"):
        client.execute_command(*rules.split())
        console.url = console.url.replace("redis://", "redis://leasehold:password@")
        try:
            done = console.run(*words)
        finally:
            client.execute_command("ACL", "DELUSER", "leasehold")
        assert (done.code, done.err.count("\n"), missing in done.err) == (69, 1, True), done
        assert "`leasehold doctor` prints the ACL line" in done.err
        assert hold.inspect("job").held and hold.inspect("job").notes == ()
