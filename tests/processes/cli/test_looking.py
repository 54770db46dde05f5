"""``leasehold ls`` and ``leasehold inspect``: what people and programs are told."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.cli.terminal import bar, elapsed
from tests.support.cli.desk import SOON, SOURCE, Desk
from tests.support.servers.redis import RedisServer

pytestmark = pytest.mark.slow
ME = f"{os.uname().nodename}:{os.getpid()}"


def as_json(desk: Desk, *arguments: str) -> Any:
    """The document that a command prints."""
    done = desk.run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_nothing_is_held(desk: Desk) -> None:
    """An empty store says so; so does a pattern that nothing matches. That is no failure; one that is free is 1."""
    assert desk.run("ls").stdout == f"Nothing is held in {desk.url}.\n"
    assert desk.run("ls", "job:*").stdout == f"Nothing that is held in {desk.url} matches job:*.\n"
    assert as_json(desk, "ls", "--json") == []
    done = desk.run("inspect", "job:7")
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        f"job:7\n  store      {desk.url}\n  nobody holds it\n",
        "",
    )


def test_a_table(desk: Desk) -> None:
    """Where it looked, and one line for each, in order of the names: holder, age, what is left, who waits, the fence;
    plain in a pipe."""
    with desk.hold.lock("job", 10) as lease, desk.hold.lock("job", 2):
        place, *lines = desk.run("ls").stdout.splitlines()
    assert place == f"In {desk.url}:"
    assert [line.split()[0] for line in lines] == ["RESOURCE", "job:10", "job:2"]
    resource, holder, age, left, seconds, waiters, fence = lines[1].split()
    assert (resource, holder, waiters, fence) == ("job:10", ME, "-", str(lease.fence))
    assert age.endswith("s") and set(left) == {"#"} and seconds.endswith("s")
    assert "\x1b" not in "".join(lines)


def test_patterns_and_namespaces(desk: Desk) -> None:
    """``*`` and ``?`` in the whole name; with a namespace, only what is in it."""
    holds = [desk.hold.lock("job", number).acquire() for number in (1, 2, 10)]
    assert [one["resource"] for one in as_json(desk, "ls", "job:?", "--json")] == ["job:1", "job:2"]
    assert [one["resource"] for one in as_json(desk, "--json", "ls", "*:1*")] == ["job:1", "job:10"]
    process = desk.holding("job:1", "--namespace", "acme")
    assert [one["resource"] for one in as_json(desk, "--namespace", "acme", "ls", "--json")] == ["acme/job:1"]
    assert as_json(desk, "inspect", "acme/job:1", "--json")["holders"][0]["owner"].endswith(f":{process.pid}")
    assert as_json(desk, "inspect", "job:1", "--namespace", "acme", "--json")["held"]
    assert all(holds)


def test_a_resource_for_people(desk: Desk) -> None:
    """Holder, fence, metadata, what is left, and the queue in order."""
    with desk.hold.lock("job", meta={"by": "alice", "number": 7}, ttl="5m") as lease:
        desk.start("run", "job", "--", "true")
        desk.until(lambda: desk.hold.inspect("job").waiters)
        lines = desk.run("inspect", "job").stdout.splitlines()
    name, store, held, fence, expires, *rest = [line.strip() for line in lines]
    assert (name, store, fence) == ("job", f"store      {desk.url}", f"fence      {lease.fence}")
    assert held.startswith(f"held by    {ME} for ")
    assert expires.startswith("expires in ##########") and expires.endswith("of 5m 00s")
    assert rest[:2] == ['meta       by: "alice"', "number: 7"]
    assert rest[2].startswith("waiting    1. ")


def test_a_closed_door_and_its_history(desk: Desk) -> None:
    """After an eviction: nobody holds it, for how long nobody may, and who did that to whom, and why."""
    lease = desk.hold.lock("job", ttl="5m").acquire()
    assert lease is not None
    desk.hold.evict("job", fence=lease.fence, reason="host on fire", by="alice")
    shown = desk.run("inspect", "job").stdout
    assert "nobody holds it" in shown and "no claim is granted before" in shown
    assert f"evicted {ME} (fence {lease.fence}) by alice: host on fire" in shown
    assert "closed for" in desk.run("ls").stdout


def test_somebody_who_only_sets_the_key(desk: Desk, redis_url: str, redis_server: RedisServer) -> None:
    """Nobody knows since when: that is said as nothing, and not as half a century."""
    redis_server.client().set("lock:v1:{job}:owner", "theirs", px=60_000)
    assert desk.run("ls", "--url", redis_url).stdout.splitlines()[2].split()[:3] == ["job", "?", "-"]
    assert "  held by    ?\n" in desk.run("inspect", "job", "--url", redis_url).stdout
    assert as_json(desk, "inspect", "job", "--url", redis_url, "--json")["holders"][0]["since"] is None


def test_several_who_hold(desk: Desk) -> None:
    """Each permit with its slots, and the limit once one was stored; in a table, the first and how many more."""
    pool = desk.hold.semaphore("pool", limit=3)
    with pool, pool.acquire(permits=2) as pair:  # type: ignore[union-attr]  # nobody else is here
        pool.resize(4)
        lines = [line.strip() for line in desk.run("inspect", "pool").stdout.splitlines()]
        document = as_json(desk, "inspect", "pool", "--json")
        assert f"{ME} and 1 more" in desk.run("ls").stdout
    held = [line for line in lines if line.startswith("held by")]
    assert [line.rpartition(", slot")[2] for line in held] == [" 0", "s 1, 2"]
    assert f"fence      {pair.fence}" in lines and "limit      4 permits, as it was resized" in lines
    assert document["limit"] == 4
    assert [(one["mode"], one["slots"]) for one in document["holders"]] == [("permit", [0]), ("permit", [1, 2])]


def test_documents_for_programs(desk: Desk) -> None:
    """Keys that stay, times in ISO 8601 with their zone, lengths in seconds."""
    with desk.hold.lock("job", meta={"number": 7}) as lease:
        desk.start("run", "job", "--", "true")
        desk.until(lambda: desk.hold.inspect("job").waiters)
        document = as_json(desk, "inspect", "job", "--json")
        assert as_json(desk, "ls", "--json")[0].keys() == document.keys()
    assert set(document) == {
        "resource",
        "held",
        "fence",
        "closed_for",
        "limit",
        "holders",
        "waiters",
        "notes",
        "unreadable",
        "id_hash",
        "store",
        "namespace",
    }
    (holder,), (waiter,) = document["holders"], document["waiters"]
    assert set(holder) == {"owner", "fence", "ttl", "expires_in", "since", "meta", "mode", "slots"}
    assert set(waiter) == {"owner", "ttl", "since", "live", "meta"}
    assert (holder["owner"], holder["fence"], holder["meta"]) == (ME, lease.fence, {"number": 7})
    assert abs((datetime.now(UTC) - datetime.fromisoformat(holder["since"])).total_seconds()) < 60
    assert (document["held"], document["notes"], waiter["live"], holder["ttl"]) == (True, [], True, 30.0)
    assert (document["limit"], holder["mode"], holder["slots"]) == (None, "exclusive", [])


@pytest.mark.parametrize("command", [["ls"], ["inspect", "job"]], ids=" ".join)
def test_exit_codes(desk: Desk, command: list[str]) -> None:
    """No store 69, a bad URL 78: in words, or as JSON."""
    done = desk.run(*command, "--url", "redis://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith("leasehold: the store is unavailable: ")
    done = desk.run("--json", *command, "--url", "pigeon://x")
    assert (done.returncode, json.loads(done.stderr)["event"]) == (78, "failed")


def test_a_name_that_is_none(desk: Desk) -> None:
    """A mistake in a name is a mistake in what was typed: 2."""
    done = desk.run("inspect", "job:%zz")
    assert (done.returncode, "write %25" in done.stderr) == (2, True)


HIJACK = "\x1b]0;gotcha\x07\x9b2J\u202eend\nnobody holds it"


def test_a_terminal_is_not_hijacked(desk: Desk, redis_url: str) -> None:
    """Whatever somebody wrote into a store is shown as text: no escape sequence, no forged line, no turned writing."""
    import redis  # needs the extra

    with leasehold.connect(redis_url) as hold, hold.lock("job", HIJACK, meta={HIJACK: HIJACK}) as lease:
        with redis.Redis.from_url(redis_url) as client:
            client.set("lock:v1:{foreign\x1b[31m}:owner", f"{HIJACK}:1:secret.1", px=60000)
            client.set("lock:v1:{busy}:owner", f"{HIJACK}:1:secret.1", px=60000)
        told = [desk.run("ls", "--url", redis_url), desk.run("inspect", lease.resource, "--url", redis_url),
                desk.run("run", "busy", "-n", "--url", redis_url, "--", "true")]  # fmt: skip
    for done in told:
        shown = done.stdout + done.stderr
        assert "gotcha" in shown and "\\x1b]0;" in shown
        assert all(char.isprintable() for line in shown.split("\n") for char in line)
        assert "nobody holds it" not in shown.split("\n")
    assert "secret" not in "".join(done.stdout + done.stderr for done in told)


def test_somebody_else_is_listed(desk: Desk, redis_url: str) -> None:
    """A client that only writes the owner's key has no age and no fence; what is no lease at all is unreadable."""
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.set("lock:v1:{job}:owner", "pigeon:7:secret.1", px=60000)
        client.set("lock:v1:{nonsense}:owner", "h:1:x.1", px=60000)
        client.set("lock:v1:{nonsense}:fence", "many", px=60000)
        client.rpush("lock:v1:{nonsense}:notes", "no note")
        client.hset("lock:v1:{other}:owner", "some", "hash")
    _, _, job, nonsense, other = desk.run("ls", "--url", redis_url).stdout.splitlines()
    name, holder, age, *_, waiters, fence = job.split()
    assert (name, holder, age, waiters, fence) == ("job", "pigeon:7", "-", "-", "-")
    assert nonsense.split()[:5] == ["nonsense", "h:1", "and", "unreadable", "-"]
    assert other.split() == ["other", "unreadable", "-", "-", "-", "-"]
    assert "  held by    pigeon:7\n" in desk.run("inspect", "job", "--url", redis_url).stdout


def test_what_cannot_be_read_hides_nothing_else(desk: Desk, redis_url: str) -> None:
    """One key of another type, one note that is none: named, with the reason, beside the rest. That is no failure."""
    import redis

    with leasehold.connect(redis_url) as hold, hold.lock("job") as lease, redis.Redis.from_url(redis_url) as client:
        client.rpush("lock:v1:{job}:notes", b"99999999999999999999 \x1b[2J")
        client.set("lock:v1:{queue\x1b[2J}:queue", "no list")
        done = desk.run("ls", "--url", redis_url)
        assert (done.returncode, done.stderr, "\x1b" in done.stdout) == (0, "", False)
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["In", "RESOURCE", "job", "queue\\x1b[2J"]
        documents = {one["resource"]: one for one in as_json(desk, "ls", "--url", redis_url, "--json")}
        seen = as_json(desk, "inspect", "job", "--url", redis_url, "--json")
        said = desk.run("inspect", "job", "--url", redis_url).stdout
    assert documents["job"]["unreadable"] == ["lock:v1:{job}:notes has an entry that is no note"] == seen["unreadable"]
    assert seen["held"] and f"  fence      {lease.fence}\n" in said
    assert "  unreadable lock:v1:{job}:notes has an entry that is no note\n" in said
    assert documents["queue\x1b[2J"]["unreadable"][0].startswith("lock:v1:{queue\x1b[2J}:queue is no list")


def test_a_damaged_row_hides_nothing_else(desk: Desk) -> None:
    """The same of the embedded store."""
    with desk.hold.lock("good"):
        with closing(sqlite3.connect(desk.path("leases.db"))) as connection, connection:
            connection.execute("INSERT INTO resources SELECT 'bad', boot, '{' FROM resources")
        done = desk.run("ls")
        (why,) = as_json(desk, "inspect", "bad", "--json")["unreadable"]
        said = desk.run("inspect", "bad").stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[:2] for line in done.stdout.splitlines()[2:]] == [["bad", "unreadable"], ["good", ME]]
    assert why.startswith("its row in the table resources is damaged") and f"  unreadable {why}\n" in said
    assert "  nobody is known to hold it\n" in said


def test_columns_of_any_writing(desk: Desk) -> None:
    """Ideographs take two columns, an accent none: the columns stand under one another."""
    names = ["plain", "漢字", "e\u0301te\u0301"]
    with desk.hold.lock(names[0]), desk.hold.lock(names[1]), desk.hold.lock(names[2]):
        lines = desk.run("ls").stdout.splitlines()[2:]
    assert {line.split()[0]: line.index(ME) for line in lines} == {
        "plain": len("RESOURCE  "), "漢字": len("RESOURCE  ") - 2, names[2]: len("RESOURCE  ") + 2,
    }  # fmt: skip


def test_a_terminal_without_unicode(desk: Desk) -> None:
    """What it cannot show are escapes: a name that somebody chose does not keep the rest from being listed."""
    with desk.hold.lock("straße", "日本"):
        for words in (["ls"], ["inspect", "straße:日本"]):
            done = desk.run(*words, env={"PYTHONIOENCODING": "latin-1"}, encoding="latin-1")
            assert (done.returncode, done.stderr) == (0, "") and "straße:\\u65e5\\u672c" in done.stdout


def test_nowhere_to_print(desk: Desk) -> None:
    """A full disk is a failure in one line; a closed standard output is none; nor is a pipe that nobody reads."""
    with desk.hold.lock("job"), Path("/dev/full").open("w") as full:
        done = desk.run("ls", stdout=full)
        assert (done.returncode, done.stderr) == (1, "leasehold: No space left on device\n")
    for redirection in (">&-", "| true"):
        shell = subprocess.run(
            ["sh", "-c", f'"$0" -m leasehold --url "$1" ls {redirection}', sys.executable, desk.url],
            env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=SOON,
            check=False,
        )  # fmt: skip
        assert (shell.returncode, shell.stderr) == (0, "")


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals(desk: Desk, environment: dict[str, str], coloured: bool) -> None:
    """On a terminal, unless somebody asks for none."""
    ours, theirs = pty.openpty()
    env = {"TERM": "xterm", "NO_COLOR": "", **environment}
    with desk.hold.lock("job"):
        assert desk.start("ls", stdout=theirs, env=env).wait(SOON) == 0
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "job" in shown
    assert ("\x1b[32m##########" in shown) is coloured


def test_bars_and_times() -> None:
    """A bar is full after a renewal and never empty while something is left; times have one or two units."""
    assert [bar(left, 30) for left in (30, 15, 0.1, 0)] == ["#" * 10, "#" * 5 + "." * 5, "#" + "." * 9, "." * 10]
    assert [elapsed(one) for one in (0.04, 9.94, 12, 185, 7800, 442800)] == [
        "0.0s", "9.9s", "12s", "3m 05s", "2h 10m", "5d 3h",
    ]  # fmt: skip
