"""``leasehold guarantees``: what the store in use promises, or another, or all of them."""

from __future__ import annotations

import json
import os
import pty

import pytest

import leasehold
from leasehold._core.guarantees import guarantees
from leasehold._core.schemes import OPENED
from leasehold.cli.guarantees import guarantees_of
from tests.processes.cli.test_completion import offered
from tests.support.cli.desk import SOON, Desk

pytestmark = pytest.mark.slow
NOWHERE = "redis://127.0.0.1:1"  # no server is asked what it promises


def test_the_store_in_use(desk: Desk) -> None:
    """By the environment or by ``--url``: what the library says, plain in a pipe, and no store is touched."""
    done = desk.run("guarantees")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{guarantees('sqlite')}\n", "")
    assert not desk.path("leases.db").exists()
    assert desk.run("guarantees", "--url", NOWHERE).stdout == f"{guarantees('redis')}\n"
    assert desk.run("--url", NOWHERE, "guarantees").stdout == f"{guarantees('redis')}\n"


@pytest.mark.parametrize("target", ["redis", NOWHERE, "valkey://host"])
def test_another_store(desk: Desk, target: str) -> None:
    """By its name or by a URL."""
    assert desk.run("guarantees", target).stdout == f"{guarantees('redis')}\n"


@pytest.mark.parametrize(
    ("scheme", "store"),
    [("redis+cluster", "cluster"), ("redis+sentinel", "sentinel"), ("zk", "zookeeper"), ("postgres", "postgresql")],
)
def test_the_scheme_of_its_urls(desk: Desk, scheme: str, store: str) -> None:
    """Whoever knows the URL of a store need not know what we call it."""
    done = desk.run("guarantees", scheme)
    assert (done.returncode, done.stdout) == (0, f"{guarantees(store)}\n")


def test_every_scheme_is_a_store() -> None:
    """Those of all stores, none for two."""
    schemes = [scheme for one in OPENED.values() for scheme in one.schemes]
    assert len(schemes) == len(set(schemes))
    assert [guarantees_of(None, scheme).store for scheme in schemes] == [
        store for store, one in OPENED.items() for _ in one.schemes
    ]


def test_every_store(desk: Desk) -> None:
    """One table: a column for each, a line for each event that can happen, and what the words mean."""
    done = desk.run("guarantees", "--all")
    head, *rows = done.stdout.partition("\n\n")[0].splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert head.split()[2:] == [guarantees(store).url for store in OPENED]
    flush = next(row for row in rows if row.startswith("all data is deleted"))
    assert flush.split()[4:7] == ["-", "lost", "lost"]
    assert "\nlost: it can be broken\n" in done.stdout and "-: this cannot happen here" in done.stdout
    assert "\x1b" not in done.stdout


def test_json(desk: Desk) -> None:
    """One document, or a list of them; ``--json`` stands on either side."""
    assert json.loads(desk.run("guarantees", "--json").stdout) == guarantees("sqlite").as_dict()
    every = json.loads(desk.run("--json", "guarantees", "--all").stdout)
    assert every == [guarantees(store).as_dict() for store in OPENED]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["mongodb"], 2, "there is no store 'mongodb': it is one of memory, sqlite, redis"),
        (["\x1b[2J"], 2, "there is no store '\\\\x1b[2J'"),
        (["--all", "redis"], 2, "leave out which one"),
        (["--all", "--url", NOWHERE], 2, "leave out which one"),
        (["etcd://host/a?durable=1"], 78, "a URL of etcd has no option 'durable'"),
        (["carrier-pigeon://loft"], 78, "unknown scheme"),
    ],
)
def test_mistakes(desk: Desk, arguments: list[str], code: int, said: str) -> None:
    """Usage is 2, a URL that cannot be opened is configuration: 78."""
    done = desk.run("guarantees", *arguments)
    assert (done.returncode, done.stdout) == (code, "") and said in done.stderr


def test_completion(desk: Desk) -> None:
    """The command and the names of the stores."""
    assert offered(desk, "leasehold gua") == {"guard", "guarantees"}
    assert offered(desk, "leasehold guarantees ") == set(OPENED)
    assert offered(desk, "leasehold guarantees r") == {"redis", "redlock"}


def test_colours_on_a_terminal(desk: Desk) -> None:
    """A loss is red, and long sentences are wrapped between words."""
    ours, theirs = pty.openpty()
    process = desk.start("guarantees", "redis", stdout=theirs, env={"TERM": "xterm", "COLUMNS": "40", "NO_COLOR": ""})
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the terminal ends with its last user
        pass
    finally:
        os.close(ours)
    assert process.wait(SOON) == 0
    lines = shown.decode().replace("\r", "").splitlines()
    assert any("exclusion: \x1b[31mlost\x1b[0m, fences: \x1b[32mholds" in line for line in lines)
    assert all(len(line) <= 40 for line in lines if "\x1b" not in line)


def test_the_same_as_in_python(desk: Desk) -> None:
    """``hold.guarantees`` is what the command prints, also for asyncio, and before anything is opened."""
    assert str(desk.hold.guarantees) == desk.run("guarantees").stdout.strip("\n")
    assert leasehold.aio.connect(NOWHERE).guarantees == guarantees("redis")
