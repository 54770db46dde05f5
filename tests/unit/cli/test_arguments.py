"""What is typed: read by hand, the same as click would show it, and names as Python has them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from leasehold.cli.arguments import COMMON, RUN, RunRequest, Usage, options, parse_run, quick
from leasehold.cli.coordinator import parse_name
from leasehold.cli.service_arguments import CRON, ELECT, CronRequest, ElectRequest, parse_elect
from leasehold.errors import InvalidRequest
from tests.support.tables import each


def test_everything_at_once() -> None:
    """Options stand before and behind the name, with a space or ``=``; before ``run``, too."""
    words = "--url u --json run --ttl=5s job:7 --wait 1m --at-least 2s --on-lost kill -E9 --namespace n -- cmd -n --x"
    request = quick(words.split())
    assert request is not None
    assert vars(request) == {
        "name": "job:7", "command": ["cmd", "-n", "--x"], "url": "u", "namespace": "n", "as_json": True, "ttl": "5s",
        "wait": "1m", "at_least": "2s", "shared": False, "limit": None, "on_lost": "kill",
        "on_revoke": "warn",
        "skip_ok": False, "busy_code": 9, "shared_store": None,
        "metrics_file": None, "metrics_port": None, "metrics": None,
    }  # fmt: skip


def test_the_defaults() -> None:
    """A lease of 30 s, waited for without end; 75 when busy; ``-n`` is a wait of nothing."""
    request = parse_run(["job", "--", "cmd"], {})
    assert (request.ttl, request.wait, request.on_lost, request.busy_code) == ("30s", None, "term", 75)
    assert parse_run(["-n", "job", "--skip-ok", "--", "cmd"], {}).wait == 0
    assert parse_run(["-n", "job", "--skip-ok", "--", "cmd"], {}).busy_code == 0


def test_where_metrics_are_served() -> None:
    """On this host, unless another address is named; IPv6 with or without brackets."""
    for text, address in {
        "9109": ("127.0.0.1", 9109),
        "0.0.0.0:9109": ("0.0.0.0", 9109),  # noqa: S104 - as users may
        "[::1]:9109": ("::1", 9109),
        "::1:9109": ("::1", 9109),
        "metrics.local:0": ("metrics.local", 0),
    }.items():
        assert parse_run(["job", f"--metrics-port={text}", "--", "x"], {}).metrics_port == address
    for wrong in ("", "abc", "-1", "65536", "host:", "٣"):
        with pytest.raises(Usage, match="takes a port such as 9109"):
            parse_run(["job", f"--metrics-port={wrong}", "--", "x"], {})


def test_not_alone() -> None:
    """``--shared`` or ``--limit N``, and not both."""
    assert parse_run(["job", "--shared", "--", "cmd"], {}).shared
    assert parse_run(["job", "--limit=3", "--", "cmd"], {}).limit == 3
    with pytest.raises(Usage, match="leave out one"):
        parse_run(["job", "--limit", "3", "--shared", "--", "cmd"], {})


@each("words", [[], ["--help"], ["ls"], ["run", "--help"], ["run", "job"], ["--what", "run"]], ids=str)
def test_the_rest_is_for_click(words: list[str]) -> None:
    """What is not a plain run, and whatever is wrong with one, goes the long way."""
    assert quick(words) is None


def test_the_last_one_counts() -> None:
    """As everywhere: an option that is repeated replaces the one before, and that of the group."""
    assert RunRequest(options(["--url", "a", "--url=b"], COMMON)[0], "job", []).url == "b"
    request = quick(["--url", "a", "run", "--url", "c", "job", "--", "cmd"])
    assert request is not None and request.url == "c"


def test_an_empty_value_is_one() -> None:
    """``--wait=`` says something, and it is wrong; it is not taken for what follows."""
    assert parse_run(["job", "--wait=", "--", "cmd"], {}).wait == ""
    with pytest.raises(Usage, match="-E needs a value"):
        parse_run(["job", "-E", "--", "cmd"], {})


def test_a_bare_number_is_seconds() -> None:
    """As with sleep, timeout and flock; 0 is one try."""
    request = parse_run(["job", "--ttl", "45", "--wait", "0", "--at-least=2.5", "--", "cmd"], {})
    assert (request.ttl, request.wait, request.at_least) == (45.0, 0.0, 2.5)


def test_a_candidacy() -> None:
    """``elect``: terms of 10 s; a value is JSON where it can be read as such, else text."""
    request = parse_elect(
        ["--once", "job", "--value", '{"a":1}', "--health", "true", "--wait", "3", "--", "cmd", "-x"], {}
    )
    assert (request.name, request.command, request.ttl, request.wait) == ("job", ["cmd", "-x"], "10s", 3.0)
    assert (request.value, request.health, request.once) == ({"a": 1}, "true", True)
    assert parse_elect(["job", "--value", "host-a:80", "--", "cmd"], {}).value == "host-a:80"
    assert parse_elect(["job", "--", "cmd"], {}).value is None
    assert (request.health_start_period, request.health_retries) == ("30s", 3)


@each(
    ("words", "why"),
    [
        ("-- cmd", "NAME of the election"),
        ("job cmd", "write -- before"),
        ("job -n -- cmd", "no such option: -n"),
        ("job --once=yes -- cmd", "takes no value"),
        ("job --health-retries 2 -- cmd", "--health-retries is about --health"),
        ("job --health-start-period 2m -- cmd", "--health-start-period is about --health"),
        ("job --health true --health-retries often -- cmd", "takes a number"),
    ],
)
def test_mistakes_in_an_election(words: str, why: str) -> None:
    """Each says what is wrong."""
    with pytest.raises(Usage, match=why):
        parse_elect(words.split(), {})


def test_short_options_stand_together() -> None:
    """As with flock: ``-nE 9`` and ``-nE9``."""
    for words in (["-nE", "9"], ["-nE9"], ["-n", "-E9"]):
        request = parse_run(["job", *words, "--", "cmd"], {})
        assert (request.wait, request.busy_code) == (0, 9)


def test_the_table_is_complete() -> None:
    """Every option is read into the request, none twice, and says what it does."""
    for table, kind in ((RUN, RunRequest), (ELECT, ElectRequest), (CRON, partial(CronRequest, expression=""))):
        names = [name for option in table for name in option.names]
        assert len(names) == len(set(names))
        assert {option.field for option in table} - {"no_wait"} <= vars(kind({}, name="job", command=[])).keys()
        assert all(option.text.endswith(".") for option in table)
        assert all(not option.value[0].isdigit() for option in table if option.value)  # a sort of value, no example
        assert all(option.help.endswith("]") for option in table if option.default or option.unset)
    names = [name for option in (*RUN, *ELECT, *CRON) for name in option.names]
    page = (Path(__file__).parents[3] / "docs/reference/command-line.md").read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}" not in page] == []


@each(
    ("text", "parts"),
    [
        ("job", (None, "job", [])),
        ("job:7:x", (None, "job", ["7", "x"])),
        ("acme/job:7", ("acme", "job", ["7"])),
        ("a%2Fb/job:%25:%3A", ("a/b", "job", ["%", ":"])),
        ("job:ü", (None, "job", ["ü"])),
    ],
)
def test_names(text: str, parts: tuple[str | None, str, list[str]]) -> None:
    """What ``ls`` shows can be typed, and means the same."""
    assert parse_name(text) == parts
    assert parse_name(text, parts[0]) == parts


@each("text", ["", ":7", "job:", "job::7", "job:%", "job:%4", "job:a/b", "/job", "a/b/c", "job:%41"])
def test_no_names(text: str) -> None:
    """What is no text form is refused, in place of guessing what was meant."""
    with pytest.raises(InvalidRequest):
        parse_name(text)


def test_a_namespace_for_names_without() -> None:
    """A namespace that was asked for is that of a name that has none, and of no other."""
    assert parse_name("job", "acme") == ("acme", "job", [])
    with pytest.raises(InvalidRequest, match="not in the namespace"):
        parse_name("other/job", "acme")
