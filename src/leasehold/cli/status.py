"""``leasehold status``: which store a command uses, whether it answers, how much is held there, what it promises."""

from __future__ import annotations

import json
from typing import Any

from leasehold import __version__
from leasehold._core.guarantees import Guarantees
from leasehold.cli.coordinator import named_by, open_hold
from leasehold.cli.output import CommandEnded, ExitCode, printable
from leasehold.cli.terminal import echo, paint, wrapped
from leasehold.coordinator import Leasehold
from leasehold.errors import LeaseholdError

LABEL = 12  # columns
CHOICES = {
    "--url": "--url",
    "LEASEHOLD_URL": "the variable LEASEHOLD_URL",
    "": "nothing: neither --url nor LEASEHOLD_URL, so this is the embedded store of this user on this host",
}


def status(url: str | None, namespace: str | None, as_json: bool) -> None:
    """Print it. 69 when the store cannot be reached: what is known without it is printed all the same."""
    with open_hold(url, namespace) as hold:
        found = gathered(hold, url)
    if as_json:
        echo(json.dumps(found, indent=2))
    else:
        _print(found)
    if not found["reachable"]:
        raise CommandEnded(ExitCode.UNAVAILABLE, "unavailable", f"the store is unavailable: {found['error']}")


def gathered(hold: Leasehold, url: str | None) -> dict[str, Any]:
    """For programs: stable keys, lengths in seconds; null for what is not known."""
    found: dict[str, Any] = {
        "store": hold.guarantees.store,
        "address": hold.store,
        "chosen_by": named_by(url) or None,
        "namespace": hold.namespace or None,
        "reachable": False,
        "error": None,
        "round_trip": None,
        "servers": [],
        "leasehold": __version__,
        "resources": None,
        "held": None,
        "waiting": None,
    }
    try:
        hold.ping()  # the first one also connects
        found.update(round_trip=hold.ping(), reachable=True)
        found.update(servers=hold._versions())
        found.update(_counted(hold))
    except LeaseholdError as error:  # behind the ping: it answers, but a login with few rights may not list
        found["error"] = str(error)
    return {**found, "guarantees": in_a_line(hold.guarantees)}  # last: the server's settings are known by now


def _counted(hold: Leasehold) -> dict[str, int]:
    resources = held = waiting = 0
    for one in hold.scan():
        held += len(one.holders)
        waiting += len(one.waiters)
        resources += one.held
    return {"resources": resources, "held": held, "waiting": waiting}


def in_a_line(promises: Guarantees) -> str:
    """What can break exclusion here. A guard refuses an older fence whatever happens."""
    lost = [one.when for one in promises.events if one.exclusion == "lost"]
    if not lost:
        return "no two hold a lease at the same time, whatever happens to the store"
    return f"two can hold a lease at the same time when {'; '.join(lost)}"


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _held(found: dict[str, Any]) -> str:
    if found["held"] is None:
        return f"unknown: {found['error']}"
    return f"{_many(found['held'], 'lease')} on {_many(found['resources'], 'resource')}, {found['waiting']} waiting"


def _print(found: dict[str, Any]) -> None:
    answers = f"yes, in {found['round_trip'] * 1000:.2g} ms" if found["reachable"] else "no"
    lines = {
        "store": found["address"],
        "chosen by": CHOICES[found["chosen_by"] or ""],
        "namespace": found["namespace"] or "none: all names of the store",
        "reachable": answers,
        "server": ", ".join(found["servers"]) or ("none" if found["store"] == "memory" else "unknown"),
        "leasehold": found["leasehold"],
    }
    if found["reachable"]:
        lines["held"] = _held(found)
    lines["guarantees"] = f"{found['guarantees']}. `leasehold guarantees` says why"
    for label, text in lines.items():
        first, *rest = wrapped(f"{label:<{LABEL}}{printable(text)}", " " * LABEL)
        colour = {"yes": "green", "no": "red"}.get(answers.partition(",")[0]) if label == "reachable" else None
        echo(paint(first, colour))
        for line in rest:
            echo(line)
