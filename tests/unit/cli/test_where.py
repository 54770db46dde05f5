"""``leasehold status``, and what ``ls`` and ``inspect`` say about where they look, in which order and how wide."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import leasehold
from leasehold import Leasehold
from leasehold.cli import listing, terminal
from tests.support.cli.typed import typed
from tests.support.tables import each
from tests.support.waiting import until

PASSWORD = "hunter2"
NOBODY = f"redis://app:{PASSWORD}@127.0.0.1:1/2"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of its own."""
    return f"sqlite:///{tmp_path}/leases.db"


@pytest.fixture
def hold(url: str) -> Iterator[Leasehold]:
    """A coordinator there."""
    with leasehold.connect(url) as made:
        yield made


@pytest.fixture
def waiter(hold: Leasehold, url: str) -> Iterator[None]:
    """Somebody waits for ``job``, which is held."""
    with leasehold.connect(url) as other:
        lease = hold.lock("job", ttl="2m").acquire()
        waits = threading.Thread(target=lambda: other.lock("job").acquire(wait=60), daemon=True)
        waits.start()
        until(lambda: bool(hold.inspect("job").waiters), "it waits")
        yield
        assert lease is not None and lease.release()
        waits.join()


# ---------------------------------------------------------------- status


def test_status_for_people(waiter: None, url: str) -> None:
    """Store, why this one, namespace, round trip, versions, what is held and waited for, and the promises."""
    done = typed("status", LEASEHOLD_URL=url)
    found = {line[:12].strip(): line[12:] for line in done.out.splitlines()}
    assert (done.code, done.err) == (0, "")
    assert (found["store"], found["chosen by"]) == (url, "the variable LEASEHOLD_URL")
    assert found["reachable"].startswith("yes, in ") and found["server"].startswith("SQLite 3")
    assert (found["leasehold"], found["namespace"]) == (leasehold.__version__, "none: all names of the store")
    assert found["held"] == "1 lease on 1 resource, 1 waiting"
    assert found["guarantees"].startswith("two can hold a lease at the same time when ")


def test_status_for_programs(hold: Leasehold, url: str) -> None:
    """Keys that stay; only the namespace is counted."""
    with hold.lock("job"):
        document = typed("status", "--json", "--namespace", "acme", "--url", url).document()
    assert list(document) == [
        "store", "address", "chosen_by", "namespace", "reachable", "error", "round_trip", "servers", "leasehold",
        "resources", "held", "waiting", "guarantees",
    ]  # fmt: skip
    assert (document["store"], document["address"], document["chosen_by"]) == ("sqlite", url, "--url")
    assert (document["namespace"], document["held"], document["reachable"]) == ("acme", 0, True)
    assert document["round_trip"] > 0 and document["error"] is None


def test_status_of_a_store_that_is_away() -> None:
    """What is known is printed, without the password; the reason, and 69."""
    done = typed("status", "--url", NOBODY)
    assert done.code == 69 and done.err.startswith("leasehold: the store is unavailable: Redis at 127.0.0.1:1")
    assert "reachable   no\n" in done.out and "redis://127.0.0.1:1/2\n" in done.out
    assert PASSWORD not in done.out + done.err
    done = typed("status", "--json", "--url", NOBODY)
    assert done.code == 69 and '"reachable": false' in done.out and '"held": null' in done.out
    assert "cannot be reached" in done.err and PASSWORD not in done.out + done.err


def test_a_store_without_a_server() -> None:
    """There is none whose version could be told, and none that could lose its data."""
    document = typed("status", "--json", "--url", "memory://status").document()
    assert (document["servers"], document["address"]) == ([], "memory://status")
    assert document["guarantees"] == "no two hold a lease at the same time, whatever happens to the store"
    assert "server      none\n" in typed("status", "--url", "memory://status").out


# ---------------------------------------------------------------- a store that nobody meant


@each("command", [["ls"], ["inspect", "job"], ["status"]])
def test_an_empty_url(command: list[str]) -> None:
    """In the environment, behind ``--url`` or before the command: a mistake, 78, and never the embedded store."""
    done = typed(*command, LEASEHOLD_URL="")
    assert (done.code, done.err[:37]) == (78, "leasehold: LEASEHOLD_URL is empty: se")
    for words in (["--url", "", *command], [*command, "--url", ""]):
        done = typed(*words)
        assert (done.code, done.err[:33]) == (78, "leasehold: that is no URL: write ")


def test_the_embedded_store_is_called_so(tmp_path: Path) -> None:
    """Whoever forgets the URL can see it in each answer; where it must be shared, it is refused."""
    for words in (["ls"], ["inspect", "job"], ["status"]):
        shown = typed(*words, XDG_STATE_HOME=str(tmp_path)).out
        assert f"sqlite:///{tmp_path}/leasehold/leasehold.db" in shown and "the embedded store" in shown
        done = typed(*words, XDG_STATE_HOME=str(tmp_path), LEASEHOLD_REQUIRE_SHARED="1")
        assert (done.code, done.out) == (78, "") and "no store is named" in done.err


def test_it_says_where(tmp_path: Path) -> None:
    """``ls`` and ``inspect``, in words and for programs, with the namespace."""
    url = f"sqlite:///{tmp_path}/where.db"
    options = ["--url", url, "--namespace", "acme"]
    assert typed("ls", *options).out == f"Nothing is held in {url}, namespace acme.\n"
    assert typed("ls", "job:*", *options).out == f"Nothing that is held in {url}, namespace acme matches job:*.\n"
    with leasehold.connect(url, namespace="acme") as hold, hold.lock("job"):
        assert typed("ls", *options).out.splitlines()[0] == f"In {url}, namespace acme:"
        assert f"  store      {url}, namespace acme\n" in typed("inspect", "job", *options).out
        documents = [
            typed("inspect", "job", *options, "--json").document(),
            *typed("ls", *options, "--json").document(),
        ]
    assert [(one["store"], one["namespace"]) for one in documents] == [(url, "acme")] * 2


# ---------------------------------------------------------------- ls


def test_orders(waiter: None, hold: Leasehold, url: str) -> None:
    """By name, the oldest first, what expires first, the longest queue first."""
    kept = [hold.lock("b", ttl="9m").acquire(), hold.lock("a", ttl="5m").acquire()]
    listed = {
        order: [one["resource"] for one in typed("ls", "--url", url, "--json", "--sort", order).document()]
        for order in ("name", "age", "remaining", "waiters")
    }
    assert all(kept)
    assert listed == {
        "name": ["a", "b", "job"], "age": ["job", "b", "a"], "remaining": ["job", "a", "b"],
        "waiters": ["job", "a", "b"],
    }  # fmt: skip


def test_hashes_lead_to_resources(hold: Leasehold, url: str) -> None:
    """``ls --long`` shows them, and ``inspect`` finds the resource by one, by its beginning, or as messages have it."""
    with hold.lock("report", 42), hold.lock("plain"):
        head, plain, report = typed("ls", "--long", "--url", url).out.splitlines()[1:]
        assert (head.split()[-2:], plain.split()[-1], report.split()[-1]) == (["ID", "HASH"], "-", "2cfe7600489b")
        for words in (["--id-hash", "2cfe7600489b"], ["--id-hash", "2CFE"], ["report#2cfe7600489b"]):
            done = typed("inspect", *words, "--url", url)
            assert (done.code, done.out.splitlines()[0]) == (0, "report:42")
        document = typed("inspect", "--id-hash", "2cfe7600489b", "--json", "--url", url).document()
        assert (document["resource"], document["id_hash"], document["store"]) == ("report:42", "2cfe7600489b", url)
        done = typed("inspect", "other#2cfe7600489b", "--url", url)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"leasehold: no name in {url} has the hash 2cfe7600489b: ")


def test_a_free_resource_found_by_its_hash(hold: Leasehold, url: str) -> None:
    """1, as by its name; while it is closed, 0."""
    for number, delay, code in ((42, 0, 1), (43, 30, 0)):
        lease = hold.lock("report", number, ttl=30, renew=False).acquire()
        assert lease is not None
        hold.evict(lease.resource, fence=lease.fence, reason="frozen", delay=delay, force=True)
        digits = lease.log_context()["id_hash"]
        for words in (
            [f"report:{number}"],
            ["--id-hash", digits],
            [f"report#{digits}"],
            [f"report#{digits}", "--json"],
        ):
            done = typed("inspect", *words, "--url", url)
            assert (done.code, f"report:{number}" in done.out, done.err) == (code, True, ""), words


def test_only_what_is_in_use_is_listed(hold: Leasehold, url: str) -> None:
    """What is free, and has a history, with --all; in words and for programs."""
    for kind, delay in (("free", 0), ("closed", 30)):
        lease = hold.lock(kind, ttl=30, renew=False).acquire()
        assert lease is not None
        hold.evict(kind, fence=lease.fence, reason="frozen", delay=delay, force=True)
    with hold.lock("held"):
        for more, names in (([], ["closed", "held"]), (["--all"], ["closed", "free", "held"])):
            assert [one["resource"] for one in typed("ls", "--json", "--url", url, *more).document()] == names
            assert [line.split()[0] for line in typed("ls", "--url", url, *more).out.splitlines()[2:]] == names
    assert typed("ls", "free", "--url", url).out == f"Nothing that is held in {url} matches free.\n"


def test_hashes_of_hidden_ids(url: str) -> None:
    """With the key and without it: what the log shows is what is found."""
    with leasehold.connect(url, hide_ids="key") as hold, hold.lock("report", 42) as lease:
        digits = lease.log_context()["id_hash"]
        for more in ({"LEASEHOLD_ID_KEY": "key"}, {}):
            done = typed("inspect", "--id-hash", digits, "--url", url, **more)
            assert (done.code, done.out.splitlines()[0]) == (0, lease.resource)
        assert digits in typed("ls", "--long", "--url", url, LEASEHOLD_ID_KEY="key").out


def test_hashes_of_ids_that_nobody_hid(hold: Leasehold, url: str) -> None:
    """An operator who has a key sees the hash that programs without it log, not the beginning of the id."""
    with hold.lock("mail", "alice@example.com") as lease:
        digits = lease.log_context()["id_hash"]
        for more in ({"LEASEHOLD_ID_KEY": "key"}, {}):
            assert typed("ls", "--long", "--url", url, **more).out.splitlines()[-1].endswith(f"  {digits}")
            assert typed("inspect", "--id-hash", digits, "--url", url, **more).code == 0


@each(
    ("words", "why"),
    [
        (["inspect"], "it needs the NAME of a resource, or --id-hash: one of them"),
        (["inspect", "job", "--id-hash", "2cfe7600489b"], "one of them"),
        (["inspect", "--id-hash", "2cf"], "the hash of an id is 12 hex digits"),
        (["inspect", "--id-hash", "report:42"], "the hash of an id is 12 hex digits"),
        (["ls", "--watch", "job:*"], "write leasehold ls 'job:*' --watch"),
        (["ls", "job", "--watch=soon"], "--watch 'soon' is not a duration"),
        (["ls", "--watch", "0"], "--watch must be above zero: it is how long the store is left alone"),
        (["ls", "--watch=0s"], "--watch must be above zero"),
        (["ls", "--watch=nan"], "--watch must be a finite number of seconds\n"),
        (["ls", ""], "the pattern is empty, and would match nothing: '*' matches everything"),
        (["ls", "x" * 513, "--watch"], "the pattern has 513 characters, and no name more than 512: shorten it"),
        (["ls", "--sort", "colour"], "'colour' is not one of 'name', 'age', 'remaining', 'waiters'"),
    ],
)
def test_mistakes(words: list[str], why: str) -> None:
    """One sentence, and 2, before anything is sent."""
    done = typed(*words, "--url", NOBODY)
    assert (done.code, done.out, why in done.err) == (2, "", True), done.err


NAME = "acme/" + "a-long-kind" * 3 + ":" + "9" * 30


@pytest.mark.parametrize(("columns", "lines"), [(200, 3), (100, 5), (80, 5), (50, 7), (None, 3)])
def test_no_name_is_broken(url: str, columns: int | None, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a narrow terminal each name has a line of its own, whole; then the holder too. A pipe has one line for all."""
    monkeypatch.setattr(listing, "columns_of_terminal", lambda: columns)
    monkeypatch.setattr(terminal, "columns_of_terminal", lambda: columns)
    with leasehold.connect(url, namespace="acme") as hold, hold.lock("a-long-kind" * 3, "9" * 30) as lease:
        found = typed("ls", "--url", url).out.splitlines()
    assert len(found) == lines and lease.resource == NAME
    if columns is not None and columns <= 100:
        assert NAME in found and max([len(line) for line in found[1:] if line != NAME]) <= columns
    else:
        assert found[2].startswith(f"{NAME}  ")


def test_one_long_name_costs_the_others_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is longer than a line is wrapped by the terminal in any layout: that of the rest is what fits."""
    monkeypatch.setattr(terminal, "columns_of_terminal", lambda: 80)
    with leasehold.connect(url) as hold, hold.lock("job", 7), hold.lock("job", "x" * 100):
        found = typed("ls", "--url", url).out.splitlines()
    assert [line for line in found if not line.startswith(" ")][1:] == ["RESOURCE", "job:7", f"job:{'x' * 100}"]
    assert len(found) == 7


def test_paint_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is as long with colours as without, and has its colours wherever it is wrapped."""
    monkeypatch.setattr(terminal, "columns_of_terminal", lambda: 60)
    red, green = "\x1b[31m", "\x1b[32m"
    painted = f"{red}{'warning':<10}\x1b[0m" + " 所 has a report" * 8 + f" {green}and it is well\x1b[0m" + " so" * 30
    for line in (painted, f"{red}\x1b[1m{'a word ' * 30}\x1b[0m", f"{'x' * 58} {red}y\x1b[0m", "all plain " * 20):
        shown = terminal.wrapped(line, "    ")
        assert [click.unstyle(one) for one in shown] == terminal.wrapped(click.unstyle(line), "    ")
        assert "".join("".join(shown).split()) == "".join(line.split())


# ---------------------------------------------------------------- a name out of a log


def test_operators_type_the_name_that_a_log_has(hold: Leasehold, url: str) -> None:
    """``clear``, ``revoke`` and ``audit`` mean the resource with that hash; nobody is told that it is free."""
    name, reason = "report#2cfe7600489b", ["--reason", "moved", "--yes", "--url", url]
    lease = hold.lock("report", 42, ttl=60).acquire()
    until(lambda: typed("revoke", name, "--reason", "asked", "--url", url).code == 0, "it was asked")
    done = typed("clear", name, *reason)
    assert (done.code, done.out.splitlines()[0]) == (75, "report:42") and "renewed" in done.err
    done = typed("clear", name, "--force", *reason)
    assert done.code == 0 and "Evicted " in done.out
    assert lease is not None and lease.lost.wait(10)
    found = typed("audit", "report#2cfe7600489b", "--json", "--url", url).document()
    assert [(one["resource"], one["reason"]) for one in found] == [("report:42", "moved"), ("report:42", "asked")]


@each("command", [["clear", "--reason", "x", "--yes"], ["revoke"], ["audit"], ["inspect"]])
def test_a_name_out_of_a_log_that_no_resource_has(command: list[str], url: str) -> None:
    """That is not the same as a resource that nobody holds."""
    name, *more = command
    done = typed(name, "report#0123456789ab", *more, "--url", url)
    assert done.code == 1 and done.err.startswith(f"leasehold: no name in {url} has the hash 0123456789ab: ")


def test_a_name_out_of_a_log_with_its_namespace(url: str) -> None:
    """As ``ls`` shows the rest of the name."""
    with leasehold.connect(url, namespace="acme") as hold, hold.lock("report", 42) as lease:
        digits = lease.log_context()["id_hash"]
        for name in (f"report#{digits}", f"acme/report#{digits}"):
            done = typed("inspect", name, "--url", url)
            assert (done.code, done.out.splitlines()[0]) == (0, "acme/report:42")
        assert typed("inspect", f"other/report#{digits}", "--url", url).code == 1


def test_a_name_out_of_a_log_that_means_several(hold: Leasehold, url: str) -> None:
    """A lease is taken from one holder: which, the operator says."""
    other = "2cfe7600489b" + 20 * "0"  # might be an id that somebody has hidden
    with hold.lock("report", 42), hold.lock("report", other):
        done = typed("clear", "report#2cfe7600489b", "--reason", "x", "--yes", "--force", "--url", url)
        assert done.code == 2 and f"report:{other}, report:42" in done.err
        assert len(list(hold.scan("report:*"))) == 2 == len([one for one in hold.scan() if one.held])


@each("command", [["clear", "--reason", "x", "--yes"], ["revoke"], ["inspect"]])
def test_a_pattern_in_place_of_a_name(command: list[str], hold: Leasehold, url: str) -> None:
    """What matches may be held: that nobody holds the pattern itself is only half of the answer."""
    name, *more = command
    with hold.lock("report", 42):
        done = typed(name, "report:*", *more, "--url", url)
    assert done.code == 1 and "not a pattern: `leasehold ls 'report:*'` lists what matches" in done.err


# ---------------------------------------------------------------- nothing was found, and where


@each(
    "command",
    [
        ["clear", "job", "--reason", "x", "--yes"],
        ["revoke", "job"],
        ["cron", "--history", "job"],
    ],
)
def test_nothing_is_there_says_where(command: list[str], url: str) -> None:
    """Whoever looks into the wrong store, or namespace, must see it: "nobody holds it" would end the search."""
    done = typed(*command, "--namespace", "acme", "--url", url)
    assert done.code == 1 and f" in {url}, namespace acme" in done.out + done.err


def test_the_history_of_a_cron_in_a_store_that_cannot_be(tmp_path: Path) -> None:
    """A folder is no store: that is no cron of which nothing is known, and nothing is made beside it."""
    (tmp_path / "folder").mkdir()
    done = typed("cron", "--history", "job", "--url", f"sqlite:///{tmp_path}/folder")
    assert done.code == 69 and "is a folder" in done.err
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]
