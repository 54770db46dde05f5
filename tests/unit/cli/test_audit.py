"""``leasehold audit`` and ``leasehold leaks``, and what ``inspect`` exits with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leasehold.cli import audit, clear, doctor, inspection, leaks, terminal
from leasehold.cli.audit import moment
from leasehold.errors import InvalidRequest
from tests.support.cli.console import Stage


def evict(stage: Stage, kind: str, reason: str) -> int:
    """Somebody evicts a new holder, at once."""
    lease = stage.hold.lock(kind, ttl=30, renew=False).acquire()
    assert lease is not None
    stage.hold.evict(kind, fence=lease.fence, reason=reason, by="alice", delay=0, force=True)
    return lease.fence


def test_what_was_done_newest_first(stage: Stage) -> None:
    """Everywhere, also where it is free now."""
    fences = []
    for kind, reason in (("b", "first"), ("a", "second"), ("b", "third")):
        fences.append(evict(stage, kind, reason))
        stage.clock.advance(60)
    done = stage.run("audit")
    assert done.code == 0
    where, head, *lines = [line.split("  ") for line in done.out.splitlines()]
    assert where == ["In memory://console:"]
    assert head[0].startswith("AT")
    assert [line[-1] for line in lines] == ["third", "second", "first"]
    found = stage.run("audit", "--json").document()
    assert [(one["resource"], one["reason"], one["fence"], one["by"]) for one in found] == [
        ("b", "third", fences[2], "alice"),
        ("a", "second", fences[1], "alice"),
        ("b", "first", fences[0], "alice"),
    ]
    assert found[0]["remaining"] == 30.0 and found[0]["event"] == "evicted"
    assert set(found[0]) == {"resource", "at", "event", "owner", "fence", "by", "reason", "remaining"}


def test_which_and_how_many(stage: Stage) -> None:
    """One name, a pattern, since when, at most so many: what is left out is said."""
    for kind in ("job", "jobs", "task"):
        evict(stage, kind, f"of {kind}")
    reasons = {
        words: [one["reason"] for one in stage.run("audit", *words.split(), "--json").document()]
        for words in ("job", "job*", "--since=1h", "nothing", "--limit=1")
    }
    assert reasons["job"] == ["of job"]
    assert sorted(reasons["job*"]) == ["of job", "of jobs"]
    assert len(reasons["--since=1h"]) == 3
    assert reasons["nothing"] == []
    assert len(reasons["--limit=1"]) == 1
    assert "... and 2 older: --limit shows more" in stage.run("audit", "--limit", "1").out


def test_a_narrow_terminal(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note is a paragraph then: no name is broken, and no line is longer than the terminal."""
    evict(stage, "report-export-of-the-month", "it hangs, and nobody knows why; the host does not answer either")
    wide = stage.run("audit").out.splitlines()
    monkeypatch.setattr(terminal, "columns_of_terminal", lambda: 80)
    narrow = stage.run("audit").out.splitlines()
    assert max(map(len, wide)) > 80 >= max(map(len, narrow))
    assert narrow[1].endswith("  report-export-of-the-month") and narrow[2].startswith("  evicted ")
    assert " left) by alice" in narrow[2] and narrow[3].startswith("  it hangs, and")
    shown = stage.run("inspect", "report-export-of-the-month").out.splitlines()
    assert max(map(len, shown)) <= 80 and shown[-1].startswith(" " * 13)
    long = "report-export-of-the-month-" + "7" * 40
    evict(stage, long, "it hangs")
    narrow = stage.run("audit", long).out.splitlines()
    assert max(map(len, narrow)) <= 80 and narrow[2] == long  # with its time before it, it would be cut


def test_nothing_was_done(stage: Stage) -> None:
    """That is no failure. Of a namespace, only what is in it."""
    assert stage.run("audit") == (0, "No operator did anything that is recorded in memory://console.\n", "")
    said = "No operator did anything to job:9 that is recorded in memory://console (--since 2h).\n"
    assert stage.run("audit", "job:9", "--since", "2h") == (0, said, "")
    evict(stage, "job", "x")
    assert stage.run("--namespace", "acme", "audit", "--json").document() == []


def test_since_when() -> None:
    """A length of time before now, or a time: local unless it has a zone."""
    assert abs(moment("2h") - (datetime.now(UTC) - timedelta(hours=2))) < timedelta(minutes=1)
    assert moment("2025-11-17T03:00+00:00") == datetime(2025, 11, 17, 3, tzinfo=UTC)
    assert moment("2025-11-17T03:00") == datetime(2025, 11, 17, 3).astimezone()
    with pytest.raises(InvalidRequest, match="2999-01-01 is in the future: nothing was done since then"):
        moment("2999-01-01")
    assert moment("99999999d").year > 2000
    for wrong in ("soon", "-1h", "", "2026-13-01"):
        with pytest.raises(InvalidRequest, match="--since is a length of time"):
            moment(wrong)


@pytest.mark.parametrize(
    "words",
    [
        ["--since", "soon"],
        ["--since", "2999-01-01"],
        ["--limit", "0"],
        ["--limit", "x"],
        ["job:%zz"],
        ["x" * 2000 + "*"],
    ],
    ids=str,
)
def test_bad_input_of_audit(stage: Stage, words: list[str]) -> None:
    """2, and one sentence."""
    done = stage.run("audit", *words)
    assert (done.code, done.out) == (2, "") and done.err


@pytest.mark.slow
def test_notes_of_others_are_only_text(stage: Stage, redis_url: str) -> None:
    """A terminal obeys none of them."""
    import redis

    with redis.Redis.from_url(redis_url) as client:
        text = '1794000000000000 evicted 7 web:1 {"by": "a\\u001b[2Jb", "reason": "x\\ny", "remaining": "long"}'
        client.rpush("lock:v1:{job}:notes", text)
        client.pexpire("lock:v1:{job}:notes", 60000)
    stage.url = redis_url
    shown = stage.run("audit").out
    assert "a\\x1b[2Jb" in shown and "x\\ny" in shown and "\x1b" not in shown
    assert stage.run("audit", "--json").document()[0]["remaining"] is None


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--json"], ["job"]])
def test_notes_that_cannot_be_read(stage: Stage, redis_url: str, options: list[str]) -> None:
    """They are no sign that nothing was done: standard error says so, without anything that a terminal would obey."""
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.set("lock:v1:{job}:notes", "\x1b[2J", px=60000)
        client.set("lock:v1:{job}:owner", "7 web:1:x", px=60000)
    stage.url = redis_url
    done = stage.run("audit", *options)
    assert done.code == 0 and "lock:v1:{job}:notes" in done.err and "unreadable, of job" in done.err
    assert "\x1b" not in done.err


# ---------------------------------------------------------------- leaks


def test_nothing_can_leak_here(stage: Stage) -> None:
    """One sentence, and 0."""
    said = "memory://console has no keys of other programs, and gives everything an end: nothing can leak there.\n"
    assert stage.run("leaks") == (0, said, "")
    assert stage.run("leaks", "--json") == (0, "[]\n", "")


def test_leaks_of_a_file_that_is_not_there(stage: Stage, tmp_path: Path) -> None:
    """A crontab with a wrong path fails, though nothing could leak at the right one."""
    (tmp_path / "file").touch()
    stage.url = f"sqlite:///{tmp_path}/file/leases.db"
    done = stage.run("leaks")
    assert (done.code, done.out, done.err.count("\n")) == (69, "", 1), done


@pytest.mark.slow
@pytest.mark.parametrize("url", ["postgresql://app:x@127.0.0.1:1/db", "etcd://127.0.0.1:1"], ids=["postgresql", "etcd"])
def test_leaks_of_a_server_that_is_away(stage: Stage, url: str) -> None:
    """The same of stores without keys of others."""
    stage.url = url
    done = stage.run("leaks", "--json")
    assert (done.code, done.out, done.err.count("\n")) == (69, "", 1), done


@pytest.mark.slow
def test_keys_without_an_end(stage: Stage, redis_url: str) -> None:
    """Of any library: each is listed, and the exit code is 1; without any it is 0."""
    import redis

    stage.url = redis_url
    assert stage.run("leaks") == (0, f"No key that matches lock:* lacks a TTL in {redis_url}.\n", "")
    with redis.Redis.from_url(redis_url) as client:
        client.set("lock:theirs", "x")
        client.set("lock:\x1b[31m", "x")
        client.set("lock:ends", "x", px=60000)
        client.set("celery:theirs", "x")
    assert stage.run("leaks") == (1, "lock:\\x1b[31m\nlock:theirs\n", f"leasehold: 2 keys have no TTL in {redis_url}\n")
    one = f"leasehold: 1 key has no TTL in {redis_url}\n"
    assert stage.run("leaks", "--pattern", "celery*") == (1, "celery:theirs\n", one)
    done = stage.run("leaks", "--json")
    assert (done.code, done.document()) == (1, ["lock:\x1b[31m", "lock:theirs"])


def test_a_store_that_is_away(stage: Stage) -> None:
    """69; a pattern that is none is 2, before anything is sent."""
    stage.url = "redis://127.0.0.1:1"
    for words in (["leaks"], ["audit"], ["revoke", "job"], ["clear", "job", "--reason", "x", "--yes"]):
        done = stage.run(*words)
        assert (done.code, done.out, done.err.count("\n")) == (69, "", 1)
    assert stage.run("leaks", "--pattern", "").code == 2


# ---------------------------------------------------------------- inspect


def test_a_free_resource_has_an_exit_code(stage: Stage) -> None:
    """1; held or closed is 0."""
    assert stage.run("inspect", "job").code == stage.run("inspect", "job", "--json").code == 1
    lease = stage.hold.lock("job", ttl=30, renew=False).acquire()
    assert lease is not None and stage.run("inspect", "job").code == 0
    stage.hold.evict("job", fence=lease.fence, reason="x")
    assert stage.run("inspect", "job").code == 0
    stage.clock.advance(31)
    done = stage.run("inspect", "job")
    assert (done.code, done.err, "history" in done.out) == (1, "", True)


def test_an_interrupt_is_no_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """130, as for every command: 1 would say that there are leaks, a problem, or nobody to ask."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for module, words in (
        (audit, ["audit"]), (leaks, ["leaks"]), (doctor, ["doctor"]), (clear, ["revoke", "job"]),
        (inspection, ["inspect", "job"]),
    ):  # fmt: skip
        monkeypatch.setattr(module, "open_hold", interrupted)
        assert stage.run(*words) == (130, "", "")
