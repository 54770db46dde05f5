"""The examination of one Redis: what is wrong with a server that was set up wrongly is found, with a fix that works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.doctor import rights
from tests.support.cli.typed import typed
from tests.support.doctor import every_finding_helps, examined, found, only
from tests.support.servers.clock import WallClock
from tests.support.servers.redis import EVERY, RedisServer, redis_6_2, redis_7, valkey
from tests.support.servers.replicas import RedisReplicas
from tests.support.waiting import until

pytestmark = pytest.mark.slow
Start = Callable[..., RedisServer]


@pytest.fixture(scope="module")
def server() -> Any:
    """A server for the tests of this file, whose settings they change."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def tuned(server: RedisServer) -> Any:
    """It, with settings that are taken back."""
    server.wipe()
    before: dict[str, str] = {}
    client = server.client(decode_responses=True)

    def tune(**settings: str) -> str:
        for name, value in settings.items():
            option = name.replace("_", "-")
            before.setdefault(option, client.config_get(option)[option] or "")
            client.config_set(option, value)
        return server.url

    yield tune
    for option, value in before.items():
        client.config_set(option, value)


# ---------------------------------------------------------------- a healthy server


@pytest.mark.parametrize("program", EVERY)
def test_a_server_in_order(own_redis: Start, program: Callable[[], str]) -> None:
    """On every version: nothing is wrong, each check was made, and only the resource of the trial was written."""
    server = own_redis(executable=program(), appendonly=True)
    seen = examined(server.url)
    every_finding_helps(seen)
    known = ["waitaof"] if program is valkey else []  # the next test
    assert [one.check for one in seen.report.findings if one.severity in ("warning", "problem")] == known
    assert {
        "lease",
        "latency",
        "version",
        "eviction",
        "persistence",
        "replicas",
        "scripts",
        "busy-reply-threshold",
        "connections",
        "permissions",
        "clock",
        "keys without ttl",
    } <= {one.check for one in seen.report.findings}
    assert seen.trial is not None and all(seen.trial[1:]) and 0 < seen.trial.p(0.5) <= seen.trial.p(0.99)
    keys = server.client(decode_responses=True).keys("*")
    names = {str(key).partition("}")[0] for key in keys}
    assert all(name.startswith("lock:v1:{leasehold-doctor:") for name in names) and len(names) == 1


@pytest.mark.parametrize("program", [redis_7, valkey])
def test_confirmations_that_come_too_early(own_redis: Start, program: Callable[[], str]) -> None:
    """Valkey with appendfsync everysec confirms what the disk does not have yet: a warning, until its fix is applied.
    Redis does not, and no word is said of it."""
    server = own_redis(executable=program(), appendonly=True)
    version = server.client(decode_responses=True).info("server").get("valkey_version")
    assert (version is None) == (program is redis_7)
    seen = examined(server.url)
    if program is redis_7:
        assert seen.report.of("waitaof") == []
        return
    finding = only(seen, "waitaof")
    assert finding.severity == "warning" and f"Valkey {version} " in finding.text
    command, _, _ = finding.fix.partition(",")
    client: Any = server.client()
    client.execute_command(*command.split())
    assert examined(server.url).report.of("waitaof") == []


# ---------------------------------------------------------------- what is wrong


def test_eviction(tuned: Any) -> None:
    """A policy that evicts is a problem once there is a maxmemory; the fix ends it."""
    assert only(examined(tuned(maxmemory_policy="allkeys-lru")), "eviction").severity == "warning"
    finding = only(examined(tuned(maxmemory="512mb", maxmemory_policy="volatile-lru")), "eviction")
    assert finding.severity == "problem" and "volatile-lru" in finding.text and "noeviction" in finding.fix
    assert only(examined(tuned(maxmemory_policy="noeviction")), "eviction").severity == "ok"


def test_memory_is_nearly_full(tuned: Any, server: RedisServer) -> None:
    """Above nine tenths."""
    used = int(server.client().info("memory")["used_memory"])
    assert only(examined(tuned(maxmemory=str(int(used * 1.04)))), "memory").severity == "warning"


def test_persistence(tuned: Any) -> None:
    """What a kill -9 would lose, from nothing to everything."""
    nothing = only(examined(tuned(save="", appendonly="no")), "persistence")
    assert nothing.severity == "warning" and "a kill -9 or a restart loses every lease" in nothing.text
    snapshots = only(examined(tuned(save="3600 1")), "persistence")
    assert snapshots.severity == "warning" and "all since the last one" in snapshots.text
    for fsync, severity in {"no": "warning", "everysec": "ok", "always": "ok"}.items():
        finding = only(examined(tuned(save="", appendonly="yes", appendfsync=fsync)), "persistence")
        assert (finding.severity, fsync in finding.text) == (severity, True)


def test_slow_scripts_and_their_threshold(tuned: Any, server: RedisServer) -> None:
    """A script that blocked the others is in the slow log; one that runs for ever is never answered BUSY with 0."""
    server.client().eval("local e = redis.call('TIME') repeat local n = redis.call('TIME') "
                         "until (n[1] - e[1]) * 1e6 + n[2] - e[2] > 150000", 0)  # fmt: skip
    seen = examined(tuned(busy_reply_threshold="0"))
    assert "slow scripts are in the slow log" in found(seen, "scripts")["warning"].text
    assert only(seen, "busy-reply-threshold").severity == "warning"
    server.client().slowlog_reset()


def test_connections(tuned: Any, server: RedisServer) -> None:
    """Nearly as many as maxclients are open."""
    clients = [server.client() for _ in range(36)]
    for client in clients:
        client.ping()
    assert only(examined(tuned(maxclients="40")), "connections").severity == "warning"
    server.forget_clients()


def test_too_few_replicas(tuned: Any) -> None:
    """It refuses all writes: no lease can be taken, and the reason is found. The server is not away: exit 1."""
    seen = examined(tuned(min_replicas_to_write="1"))
    assert "problem" in found(seen, "lease") and "problem" in found(seen, "min-replicas")
    assert seen.report.reachable and seen.trial is None


def test_keys_without_a_ttl(tuned: Any, server: RedisServer) -> None:
    """Of another library: named, and counted."""
    url = tuned()
    server.client().set("lock:of-another", "x")
    finding = only(examined(url), "keys without ttl")
    assert finding.severity == "warning" and "lock:of-another" in finding.text


def test_a_clock_that_is_off(own_redis: Start) -> None:
    """By more than half a second, to either side."""
    clock = WallClock()
    server = own_redis(clock=clock)
    for off, way in ((5.0, "ahead of"), (-5.0, "behind")):
        clock.set_off(off)
        finding = only(examined(server.url), "clock")
        assert finding.severity == "warning" and f"5.0 s {way} that of this host" in finding.text


# ---------------------------------------------------------------- rights


def _user(server: RedisServer, line: str, name: str = "app") -> str:
    reply = server.ask(line.replace("SETUSER leasehold ", f"SETUSER {name} "))
    assert reply == b"+OK\r\n"
    return server.url.replace("redis://", f"redis://{name}:password@")


@pytest.mark.parametrize("program", EVERY)
def test_the_line_that_it_prints_is_enough(own_redis: Start, program: Callable[[], str]) -> None:
    """A user made with it takes, waits for, renews and gives back leases; and the examination says so."""
    server = own_redis(executable=program())
    line = only(examined(server.url), "permissions").fix
    assert line == rights.redis_line()
    url = _user(server, line)
    with leasehold.connect(url) as one, leasehold.connect(url) as other:
        lease = one.lock("job", ttl=1).acquire()
        assert lease is not None
        assert other.lock("job").try_acquire() is None
        deadline = lease.deadline
        until(lambda: lease.deadline > deadline, "it is renewed")
        assert lease.release()
        with other.lock("job", wait=5):
            pass
    seen = examined(url)
    assert found(seen, "permissions").keys() == ({"note"} if program is redis_6_2 else {"ok"})
    assert not {"problem"} & {one.severity for one in seen.report.findings}
    hidden = {one.check for one in seen.report.findings if one.text.endswith("cannot be seen")}
    assert {"busy-reply-threshold", "scripts"} <= hidden  # no CONFIG, no SLOWLOG


@pytest.mark.parametrize("program", EVERY)
def test_the_line_for_operators_is_enough(own_redis: Start, program: Callable[[], str]) -> None:
    """With the line for programs alone `leaks` and `cron --history` are refused, and each says what is missing; with
    the second line they work."""
    server = own_redis(executable=program())
    server.client().set("lock:of-another", "x")
    url = _user(server, rights.redis_line())
    with leasehold.connect(server.url) as hold:
        rollup = hold.cron("* * * * * *", "rollup")(lambda: None).start()
        until(lambda: rollup.history(1) != [], "there was a run")
    seen = examined(url)
    assert only(seen, "operators").severity == "note" and "%R~lock:*" in only(seen, "keys without ttl").fix
    refused = typed("leaks", "--url", url)
    assert refused.code == 69 and "the right to read what it searches, such as %R~lock:*" in refused.err
    refused = typed("cron", "--history", "rollup", "--url", url)
    assert refused.code == 69 and "docs/patterns/result-stores.md has the ACL line" in refused.err
    line = only(seen, "operators").fix
    assert line == rights.operator_line(old=program is redis_6_2)
    assert _user(server, line) == url
    assert typed("leaks", "--url", url)[:2] == (1, "lock:of-another\n")
    assert typed("cron", "--history", "rollup", "--url", url).code == 0
    seen = examined(url)
    assert only(seen, "operators").severity == ("note" if program is redis_6_2 else "ok")
    assert "lock:of-another" in only(seen, "keys without ttl").text


def test_a_user_without_scripts(server: RedisServer) -> None:
    """Nothing can be leased: the line is the fix."""
    server.wipe()
    url = _user(server, rights.redis_line().replace(" +eval ", " ").replace("+evalsha ", ""), "mute")
    seen = examined(url)
    assert found(seen, "permissions")["problem"].fix == rights.redis_line()
    assert "may not run scripts" in found(seen, "permissions")["problem"].text and seen.trial is None


def test_a_user_without_a_command_a_channel_or_a_right_of_operators(server: RedisServer) -> None:
    """Each is told apart: a problem, a warning, a note."""
    server.wipe()
    line = rights.redis_line()
    seen = examined(_user(server, line.replace(" +hset", ""), "less"))
    assert "hset" in found(seen, "permissions")["problem"].text
    seen = examined(_user(server, line.replace(" &lock:v1:push:*", ""), "deaf"))
    assert only(seen, "channels").severity == "warning" and seen.trial is not None
    seen = examined(_user(server, line.replace(" +scan", ""), "worker"))
    assert "scan" in found(seen, "permissions")["note"].text and seen.trial is not None


def test_a_connection_without_pushes(server: RedisServer) -> None:
    """RESP2, because the URL says so: waiters poll."""
    server.wipe()
    assert only(examined(f"{server.url}?protocol=2"), "channels").severity == "note"
    assert "         fix: Leave protocol=2 out" in typed("doctor", "--url", f"{server.url}?protocol=2").out
    assert not examined(server.url).report.of("channels")


def test_a_user_of_one_namespace(server: RedisServer) -> None:
    """A login that is limited to the keys of its namespace, as the page about security has them, is enough there; in
    another namespace no lease can be taken, and the rights are the reason."""
    server.wipe()
    page = (Path(__file__).parents[3] / "docs/howto/security.md").read_text("utf-8")
    keys = re.search(r"In Redis: `([^`]*)` in place of", page)
    assert keys
    url = _user(server, rights.redis_line().replace("~lock:v1:*", keys[1]), "tenant")
    seen = examined(url, namespace="acme")
    assert found(seen, "permissions").keys() == {"ok"} and seen.trial is not None
    assert found(examined(url, namespace="other"), "permissions").keys() == {"problem", "note"}


def test_a_user_who_may_not_see(server: RedisServer) -> None:
    """As on managed services: without INFO and CONFIG there are notes, no traceback and no problem."""
    server.wipe()
    seen = examined(_user(server, rights.redis_line().replace(" +info", ""), "blind"))
    unseen = {one.check for one in seen.report.findings if one.severity == "note" and "cannot be seen" in one.text}
    assert {"version", "eviction", "persistence", "replicas", "connections", "busy-reply-threshold"} <= unseen
    assert "problem" not in {one.severity for one in seen.report.findings}


# ---------------------------------------------------------------- replicas, and servers that are away


def test_replicas(redis_replicas: RedisReplicas) -> None:
    """In step; then one is cut off, which shows; and a replica itself takes no leases."""
    seen = examined(redis_replicas.url)
    assert found(seen, "replicas").keys() == {"ok"} and len(seen.report.of("replicas")) == 2
    assert "note" in found(seen, "min-replicas") and found(seen, "clock").keys() == {"ok"}
    replica = redis_replicas.replicas[0]
    seen = examined(replica.url)
    assert only(seen, "role").severity == "problem" and seen.trial is None
    assert seen.report.reachable


@pytest.mark.soak  # the primary notices a silent replica only after seconds
def test_a_replica_that_lags(redis_replicas: RedisReplicas) -> None:
    """One that is frozen gives no sign of life."""
    redis_replicas.replicas[0].freeze()
    until(lambda: "warning" in found(examined(redis_replicas.url), "replicas"), "it lags")
    seen = examined(redis_replicas.url)
    assert "lags" in found(seen, "replicas")["warning"].text
    assert any("cannot be seen" in one.text for one in seen.report.of("clock"))


def test_a_server_that_is_gone(own_redis: Start) -> None:
    """A finding, in a bounded time."""
    server = own_redis()
    server.kill()
    seen = examined(server.url)
    assert not seen.report.reachable and found(seen, "reachable")["problem"].place == f"127.0.0.1:{server.port}"


def test_a_server_that_hangs(own_redis: Start) -> None:
    """The same for one that accepts connections and answers nothing."""
    server = own_redis()
    server.freeze()
    seen = examined(server.url)
    assert not seen.report.reachable


def test_a_wrong_password(own_redis: Start) -> None:
    """The login is the reason and what to correct, not the server; the password is not shown. So without any."""
    server = own_redis(login=("s3cret",))
    for url in (server.url.replace("s3cret", "wr0ng"), server.url.replace(":s3cret@", "")):
        seen = examined(url)
        finding = found(seen, "reachable")["problem"]
        assert not seen.report.reachable and finding.text.startswith("the server refuses the login: ")
        assert "user and the password" in finding.fix and "Start it" not in finding.fix
    seen = examined(server.url.replace("s3cret", "wr0ng"))
    assert "wr0ng" not in str(seen.report.as_dict())
