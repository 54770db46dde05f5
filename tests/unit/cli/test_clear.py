"""``leasehold clear``: every way through the runbook, on a store whose clock the test advances."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

import click
import pytest

import leasehold
from leasehold.cli import clear, terminal
from leasehold.cli.liveness import Liveness
from leasehold.cli.output import width
from leasehold.coordinator.operators import eviction_request
from leasehold.guards.sql import FenceGuard
from tests.support.cli.console import Stage

HOST = os.uname().nodename
ME = f"{HOST}:{os.getpid()}"
LATELY = 5  # seconds: within a third of the ttl of 30
LATER = 20


def held(stage: Stage, seconds: float = LATER, **more: Any) -> leasehold.Lease:
    """A lease of 30 s that was granted so many seconds ago, and is not renewed."""
    lease = stage.hold.lock("job", 7, ttl=30, renew=False, **more).acquire()
    assert lease is not None
    stage.clock.advance(seconds)
    return lease


def listening(stage: Stage, lease: leasehold.Lease) -> leasehold.Lease:
    """The same lease, when its holder can be told: that is so from a moment after it began."""
    while not stage.hold.revoke(lease.resource, fence=lease.fence):
        pass
    return lease


def cleared(stage: Stage, *more: str, answer: str | None = None) -> Any:
    """Type it."""
    return stage.run("clear", "job:7", "--reason", "it hangs", *more, answer=answer)


# ---------------------------------------------------------------- what is shown


def test_every_answer_of_the_runbook(stage: Stage) -> None:
    """Resource, holder, fence, what remains, metadata, queue, last renewal, alive, downstream, and what to do."""
    lease = held(stage, meta={"job": 7})
    done = cleared(stage, answer="n\n")
    lines = [line.strip() for line in done.out.splitlines()]
    assert lines[0] == "job:7"
    assert lines[1] == "store      memory://console"
    assert lines[2].startswith(f"held by    {ME} for ")
    assert lines[3] == f"fence      {lease.fence}"
    assert lines[4].startswith("expires in ####...... 10s of 30s")
    assert lines[5:7] == ["meta       job: 7", "waiting    nobody"]
    assert lines[7] == "renewed    20s ago, or granted then; a holder that renews does so every 10s"
    assert lines[8].startswith(f"alive      yes: its process {os.getpid()} (")
    assert lines[9].startswith("downstream no guard is named, by --guard or by")
    assert lines[10].startswith("advice     prefer to wait (--wait): it ends in 10s unless it is renewed")


def test_the_guard_that_the_metadata_names(stage: Stage) -> None:
    """The query shows what the guard has seen."""
    lease = held(stage, meta={"guard": "leasehold_fences"})
    assert "SELECT resource, fence FROM leasehold_fences WHERE resource IN ('job:7');" in cleared(stage, answer="n").out
    shown = cleared(stage, "--guard", "app.reports.last_fencing_token", answer="n").out
    assert f"for this resource, seen a fence above {lease.fence}? Then it refuses this holder:" in shown
    assert f"SELECT * FROM app.reports WHERE last_fencing_token > {lease.fence};" in shown


def test_the_query_and_the_guard_agree(stage: Stage) -> None:
    """Rows that it prints refuse this holder; those which the holder wrote itself are not among them."""
    lease = held(stage)
    guard = FenceGuard(table="unused")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE reports (id TEXT, last_fencing_token BIGINT)")
        connection.execute("INSERT INTO reports VALUES ('job', NULL)")
        query = next(line.strip() for line in cleared(stage, "--guard", "reports.last_fencing_token", answer="n").out
                     .splitlines() if "SELECT" in line)  # fmt: skip
        guard.update(connection, "reports", key={"id": "job"}, values={"id": "job"}, lease=lease)
        assert connection.execute(query).fetchall() == []
        guard.update(connection, "reports", key={"id": "job"}, values={"id": "job"}, lease=lease)  # it may
        connection.execute("UPDATE reports SET last_fencing_token = last_fencing_token + 1")
        assert len(connection.execute(query).fetchall()) == 1
        with pytest.raises(leasehold.StaleOwner):
            guard.update(connection, "reports", key={"id": "job"}, values={"id": "job"}, lease=lease)


@pytest.mark.parametrize("name", ["report-export-of-the-month:" + "4" * 30, "月報" * 9, "x" * 100])
def test_the_question_breaks_no_name(stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """On a terminal of 80 columns: the name, the owner and the fence each stand on one line."""
    monkeypatch.setattr(terminal, "columns_of_terminal", lambda: 80)
    lease = stage.hold.lock(*name.split(":"), ttl=30, renew=False).acquire()
    assert lease is not None
    stage.clock.advance(LATER)
    asked = stage.run("clear", name, "--reason", "it hangs", answer="n").err
    lines = asked.splitlines()
    for whole in (f"{name}?", str(lease.fence), ME):
        assert any(whole in line for line in lines), asked
    assert all(width(line) <= 80 or line == f"{name}?" for line in lines) and "[y/N]: " in asked


def test_a_guard_that_is_no_table_is_shown_as_it_is(stage: Stage) -> None:
    """Metadata is anybody's: it becomes no query, and no escape sequence reaches the terminal."""
    held(stage, meta={"guard": "s3://bucket/\x1b[31m; DROP TABLE jobs"})
    shown = cleared(stage, answer="n").out
    assert "look at s3://bucket/\\x1b[31m; DROP TABLE jobs: has it seen" in shown and "SELECT" not in shown


# ---------------------------------------------------------------- evict


def test_what_stays_closed(stage: Stage) -> None:
    """Beside others it is not all of the resource: the slots of a permit, and after a reader only writers wait."""
    pool = stage.hold.semaphore("job", 7, limit=4, ttl=30, renew=False)
    one, two = pool.acquire(), pool.acquire(permits=2)
    assert one and two
    for fence, what in ((one.fence, "Nobody gets its slot 0 for"), (two.fence, "Nobody gets its slots 1, 2 for")):
        done = cleared(stage, "--force", "--expect-fence", str(fence), answer="y\n")
        assert done.code == 0 and f"? {what} 30s." in done.err and f"{what} 30s." in done.out
    assert pool.try_acquire() is not None
    reader = stage.hold.rwlock("catalogue").read(ttl=30, renew=False).acquire()
    assert reader is not None
    done = stage.run("clear", "catalogue", "--reason", "it hangs", "--force", "--yes")
    assert done.code == 0 and "No writer gets it for 30s." in done.out
    assert stage.hold.rwlock("catalogue").read().try_acquire() is not None


def test_it_asks_and_evicts(stage: Stage) -> None:
    """The question names the holder; the fence goes up, the door stays closed, the holder learns of it."""
    lease = listening(stage, held(stage))
    done = cleared(stage, answer="y\n")
    assert (done.code, f"Evict {ME} (fence {lease.fence}) from job:7? Nobody gets it for 10s." in done.err) == (
        0,
        True,
    )
    assert f"Evicted {ME} with fence {lease.fence}. Nobody gets it for 10s." in done.out
    assert lease.lost.wait(10)
    found = stage.hold.inspect("job:7")
    assert (found.held, found.closed_for) == (False, 10.0) and found.fence > lease.fence


def test_the_note_says_all(stage: Stage) -> None:
    """Who, on which host, why, whose lease, its fence, and what remained of it."""
    lease = held(stage)
    assert cleared(stage, "--yes", "--by", "alice").code == 0
    (note,) = stage.hold.inspect("job:7").notes
    assert note[1:] == ("evicted", ME, lease.fence, f"alice@{HOST}", "it hangs", 10.0)


def test_the_operator_is_the_user(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the id of the process, with the one who used sudo."""
    me = clear.user()
    held(stage)
    assert cleared(stage, "--yes").code == 0
    assert stage.hold.inspect("job:7").notes[0].by == f"{me}@{HOST}"
    monkeypatch.setenv("SUDO_USER", "alice")
    assert clear.user() == f"alice as {me}"


def test_no_is_an_answer(stage: Stage) -> None:
    """Nothing is done, and the exit code says so; Ctrl-C is another answer."""
    lease = held(stage)
    done = cleared(stage, answer="n\n")
    assert (done.code, done.err.splitlines()[-1]) == (1, "leasehold: nothing was done")
    assert cleared(stage, answer="").code == 130  # the terminal is closed
    assert stage.hold.inspect("job:7").holder is not None and lease.state == "held"


def test_a_document_for_programs(stage: Stage) -> None:
    """One object, with what was seen and what was done."""
    lease = held(stage, meta={"guard": "fences"})
    found = cleared(stage, "--yes", "--json").document()
    assert (found["resource"], found["holder"]["owner"], found["holder"]["fence"]) == ("job:7", ME, lease.fence)
    assert (found["renewed_ago"], found["waiters"], found["outcome"]) == (20.0, 0, "evicted")
    assert (found["alive"]["alive"], found["alive"]["by"]) == (True, "pid")
    assert found["guard"]["place"] == "fences" and found["guard"]["query"].startswith("SELECT")
    assert found["eviction"]["fence"] > lease.fence and found["eviction"]["closed_for"] == 10.0
    assert found["eviction"]["reason"] == "it hangs"


def test_a_shorter_door_needs_force(stage: Stage) -> None:
    """Only who knows that the holder has stopped may open earlier."""
    held(stage)
    done = cleared(stage, "--yes", "--delay", "0")
    assert (done.code, "needs --force" in done.err) == (2, True)
    assert cleared(stage, "--yes", "--delay", "0", "--force").code == 0
    assert stage.hold.lock("job", 7).try_acquire()


def test_one_of_several(stage: Stage) -> None:
    """Permits: the fence says which. The guard is asked about its slot."""
    pool = stage.hold.semaphore("job", 7, limit=2, ttl=30, renew=False)
    first, second = pool.acquire(), pool.acquire()
    assert first is not None and second is not None
    stage.clock.advance(LATER)
    done = cleared(stage, "--yes")
    assert (done.code, f"{ME} with fence {first.fence}, {ME} with fence {second.fence}" in done.err) == (2, True)
    done = cleared(stage, "--yes", "--expect-fence", str(second.fence), "--guard", "fences")
    assert (done.code, "resource IN ('job:7::1')" in done.out) == (0, True)
    assert [one.fence for one in stage.hold.inspect("job:7").holders] == [first.fence]


# ---------------------------------------------------------------- refuse


def test_nobody_holds_it(stage: Stage) -> None:
    """There is nothing to clear; a door that is still closed is named."""
    done = cleared(stage, "--yes")
    assert (done.code, done.err) == (1, "leasehold: nobody holds job:7 in memory://console\n")
    held(stage)
    cleared(stage, "--yes")
    assert cleared(stage, "--yes").err == "leasehold: nobody holds job:7 in memory://console; it is closed for 10s\n"


def test_a_holder_that_renewed_lately_is_left_alone(stage: Stage) -> None:
    """It is at work: 75, and --force in spite of that."""
    lease = held(stage, LATELY)
    done = cleared(stage, "--yes")
    assert (done.code, done.out.splitlines()[-1].strip()) == (75, "advice     ask the holder first: leasehold revoke")
    assert done.err.startswith("leasehold: job:7 was renewed 5.0s ago, and a live holder renews every 10s")
    assert cleared(stage, "--yes", "--json").document()["outcome"] == "refused"
    assert lease.state == "held"
    assert cleared(stage, "--yes", "--force").code == 0


def test_the_expected_fence(stage: Stage) -> None:
    """Another holder than the expected one is not touched."""
    lease = held(stage)
    done = cleared(stage, "--yes", "--force", "--expect-fence", str(lease.fence - 1))
    assert (done.code, f"It is held by {ME} with fence {lease.fence}" in done.err) == (75, True)
    assert cleared(stage, "--yes", "--expect-fence", str(lease.fence)).code == 0


def change(stage: Stage, monkeypatch: pytest.MonkeyPatch, lease: leasehold.Lease, *, taken: bool) -> list[Any]:
    """While the operator thinks, the lease ends, and perhaps another takes it."""
    taker: list[Any] = []

    def confirm(*_: Any, **__: Any) -> bool:
        lease.release()
        if taken:
            taker.append(stage.hold.lock("job", 7, ttl=30, renew=False).acquire())
            stage.clock.advance(LATER)
        return True

    monkeypatch.setattr(click, "confirm", confirm)
    return taker


def test_another_holder_meanwhile(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Owner and fence are compared with what was shown: the next holder is not hit."""
    (taker,) = [change(stage, monkeypatch, held(stage), taken=True)]
    done = cleared(stage, answer="")
    assert (done.code, "it was taken by another holder meanwhile" in done.err) == (75, True)
    assert taker[0].state == "held" and stage.hold.inspect("job:7").notes == ()


def test_it_ends_meanwhile(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing left to do, which is what was wanted."""
    change(stage, monkeypatch, held(stage), taken=False)
    done = cleared(stage, answer="")
    assert (done.code, done.out.splitlines()[-1]) == (0, "It has ended by itself: nothing was evicted.")


def test_the_holder_comes_back_while_the_operator_thinks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It renewed: it is left alone."""
    lease = held(stage)

    def confirm(*_: Any, **__: Any) -> bool:
        lease.extend(30)
        return True

    monkeypatch.setattr(click, "confirm", confirm)
    assert cleared(stage, answer="").code == 75


@pytest.mark.parametrize("taken", [True, False])
def test_it_changes_in_the_last_moment(stage: Stage, monkeypatch: pytest.MonkeyPatch, taken: bool) -> None:
    """Between the last look and the eviction: the store compares."""
    lease = held(stage)

    def request(*args: Any) -> Any:
        lease.release()
        if taken:
            stage.hold.lock("job", 7, renew=False).acquire()
        return made(*args)

    made = eviction_request
    monkeypatch.setattr(clear, "eviction_request", request)
    assert cleared(stage, "--yes").code == (75 if taken else 0)
    assert stage.hold.inspect("job:7").notes == ()


def test_one_of_several_ends_meanwhile(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who share it have taken nothing."""
    pool = stage.hold.semaphore("job", 7, limit=2, ttl=30, renew=False)
    first, second = pool.acquire(), pool.acquire()
    assert first is not None and second is not None
    stage.clock.advance(LATER)
    change(stage, monkeypatch, second, taken=False)
    assert cleared(stage, "--expect-fence", str(second.fence), answer="").code == 0
    assert first.state == "held" and stage.hold.inspect("job:7").notes == ()


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (leasehold.OutcomeUnknown("no reply"), 69)])
def test_nobody_knows_whether_it_was_done(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    """It is interrupted, or goes unanswered, when the eviction was sent: that is said."""
    held(stage)

    async def evict(*_: Any) -> None:
        raise error

    monkeypatch.setattr("leasehold._core.resource_flows.evict", evict)
    done = cleared(stage, "--yes", "--json")
    assert (done.code, done.document()["outcome"]) == (code, "unknown")
    assert "it is not known whether the holder of job:7 was evicted" in done.err


# ---------------------------------------------------------------- wait


def test_waiting_is_enough(stage: Stage) -> None:
    """The lease ends, nobody is evicted; also when the next in the queue has it by then."""
    held(stage)
    done = cleared(stage, "--yes", "--wait")
    assert (done.code, done.out.splitlines()[-1]) == (0, "It has ended by itself: nothing was evicted.")
    assert stage.hold.inspect("job:7").notes == ()


def test_a_holder_that_renews_is_alive(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting ends with the first renewal: then it needs --force."""
    lease = held(stage)

    def sleep(seconds: float) -> None:
        stage.clock.advance(seconds)
        lease.extend(30)

    monkeypatch.setattr(clear, "sleep", sleep)
    refused = cleared(stage, "--yes", "--wait")
    assert refused.code == 75 and "`leasehold revoke`, or give --force" in refused.err  # it has waited
    assert cleared(stage, "--yes", "--wait", "--force").code == 0
    assert stage.hold.inspect("job:7").notes != ()


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["job:7"], "Missing option '--reason'"),
        (["job:7", "--yes", "--reason", " "], "--reason is one printable line"),
        (["job:7", "--yes", "--reason", "x" * 301], "of at most 300 characters"),
        (["job:7", "--yes", "--reason", "a\nb"], "--reason is one printable line"),
        (["job:7", "--yes", "--reason", "x", "--by", "x" * 301], "--by is one printable line"),
        (["job:7", "--reason", "x"], "there is no terminal to ask on: give --yes"),
        (["job:7", "--reason", "x", "--json"], "with --json nothing is asked: give --yes"),
        (["job:7", "--yes", "--reason", "x", "--guard", "a b"], "--guard is a TABLE"),
        (["job:7", "--yes", "--reason", "x", "--expect-fence", "soon"], "'soon' is not a valid integer"),
        (["job:7", "--yes", "--reason", "x", "--expect-fence", "-1"], "as `leasehold inspect` shows it"),
        (["job:7", "--yes", "--reason", "x", "--delay", "soon"], "delay"),
        (["job:7", "--yes", "--reason", "x", "--delay", "25h"], "delay must be at most 24 h"),
        (["job:%zz", "--yes", "--reason", "x"], "write %25"),
    ],
)
def test_bad_input(stage: Stage, words: list[str], told: str) -> None:
    """One sentence, 2, and nothing is sent."""
    held(stage)
    done = stage.run("clear", *words)
    assert (done.code, told in done.err) == (2, True), done
    assert stage.hold.inspect("job:7").held


def test_a_store_that_is_away_or_cannot_evict(stage: Stage) -> None:
    """69, and 78."""
    stage.url = "redis://127.0.0.1:1"
    assert (done := cleared(stage, "--yes")).code == 69 and done.out == ""
    stage.url = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    assert (done := cleared(stage, "--yes")).code == 78 and "cannot do clear" in done.err


def test_unknown_is_said(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither yes nor no."""
    held(stage)
    monkeypatch.setattr(clear, "liveness", lambda *_: Liveness(None, "renewals", "it runs elsewhere"))
    assert "alive      unknown: it runs elsewhere" in cleared(stage, answer="n").out


# ---------------------------------------------------------------- revoke


def test_the_holder_is_asked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the lease until it releases it; --wait waits for that."""
    lease = listening(stage, held(stage, 0))
    monkeypatch.setattr(clear, "sleep", lambda _: None)
    done = stage.run("revoke", "job:7")
    assert (done.code, done.out) == (0, "The holder of job:7 was asked to release it. It may go on.\n")
    assert lease.revoked.wait(10) and lease.state == "held"
    done = stage.run("revoke", "job:7", "--wait", "0.2")
    assert (done.code, done.err) == (75, "leasehold: job:7 is still held after 0.2s\n")


def test_who_asked_is_in_the_audit(stage: Stage) -> None:
    """Who, on which host, whom, and why; also when the holder could not be reached. A reason is not required."""
    lease = held(stage, 0)
    stage.run("revoke", "job:7", "--by", "alice", "--reason", "we deploy")
    stage.run("revoke", "job:7")
    last, first = stage.run("audit", "job:7", "--json").document()
    assert first["by"].startswith("alice@") and (first["event"], first["reason"]) == ("asked", "we deploy")
    assert (first["owner"], first["fence"]) == (ME, lease.fence)
    assert (last["by"], last["reason"]) == (clear.operator(), "")


def test_it_is_released_when_asked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code says that it is free now."""
    lease = listening(stage, held(stage, 0))
    monkeypatch.setattr(clear, "sleep", lambda _: lease.release())
    assert stage.run("revoke", "job:7", "--fence", str(lease.fence), "--wait", "10s").out == "job:7 was released.\n"
    lease = listening(stage, held(stage, 0))
    found = stage.run("revoke", "job:7", "--wait", "10s", "--json").document()
    assert found == {"resource": "job:7", "reached": True, "released": True}


def test_there_is_nobody_to_ask(stage: Stage) -> None:
    """1, and a sentence with the name as it was typed; a wrong fence is the same."""
    done = stage.run("revoke", "job:7")
    assert (done.code, done.err) == (1, "leasehold: nobody holds job:7 in memory://console: there is nobody to ask\n")
    lease = held(stage, 0)
    done = stage.run("revoke", "job:7", "--fence", str(lease.fence + 1))
    assert (done.code, f"nobody holds job:7 with fence {lease.fence + 1} in memory://console: " in done.err) == (
        1,
        True,
    )
    assert stage.run("revoke", "job:7", "--reason", "two\nlines").code == 2
    assert stage.run("revoke", "job:7", "--fence", "-1").code == 2
    assert stage.run("revoke", "job:7", "--wait", "soon").code == 2
