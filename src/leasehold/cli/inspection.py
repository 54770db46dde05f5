"""``leasehold ls`` and ``leasehold inspect``: the state in the store, as text for people and JSON for programs."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from leasehold.cli.coordinator import failed, open_hold
from leasehold.cli.output import printable
from leasehold.cli.terminal import bar, echo, elapsed, json_fields, paint, table
from leasehold.errors import LeaseholdError
from leasehold.primitives.inspection import Holder, Inspection, Note, Waiting

HEADS = ["RESOURCE", "HOLDER", "AGE", "EXPIRES IN", "WAITERS", "FENCE"]


def ls(url: str | None, namespace: str | None, pattern: str, as_json: bool) -> None:
    """Print everything that matches, in the order of the names."""
    try:
        with open_hold(url, namespace) as hold:
            found = sorted(hold.scan(pattern), key=lambda one: one.resource)
    except LeaseholdError as error:
        raise failed(error) from error
    if as_json:
        echo(json.dumps([document(one) for one in found], indent=2))
    elif found:
        table(HEADS, [_row(one) for one in found])
    else:
        echo("Nothing is held." if pattern == "*" else f"Nothing that is held matches {printable(pattern)}.")


def inspect(url: str | None, namespace: str | None, name: str, as_json: bool) -> None:
    """Print one resource."""
    try:
        with open_hold(url, namespace) as hold:
            found = hold.inspect(name)
    except LeaseholdError as error:
        raise failed(error) from error
    if as_json:
        echo(json.dumps(document(found), indent=2))
    else:
        _print(found)


def document(seen: Inspection) -> dict[str, Any]:
    """For programs: stable keys, times in ISO 8601, lengths in seconds."""
    return {
        "resource": seen.resource,
        "held": seen.held,
        "fence": seen.fence,
        "closed_for": seen.closed_for,
        "limit": seen.limit,
        "holders": [json_fields(one) for one in seen.holders],
        "waiters": [json_fields(one) for one in seen.waiters],
        "notes": [json_fields(one) for one in seen.notes],
        "unreadable": list(seen.unreadable),
    }


# ---------------------------------------------------------------- for people


def _row(seen: Inspection) -> list[str]:
    name, holder = printable(seen.resource), seen.holder
    waiters = str(len(seen.waiters)) if seen.waiters else "-"
    if holder is None:
        return [name, _unheld(seen), "-", "-", waiters, _fence(seen.fence)]
    more = f" and {len(seen.holders) - 1} more" if len(seen.holders) > 1 else ""
    if seen.unreadable:
        more += paint(" and unreadable", "yellow")
    return [name, printable(holder.owner) + more, _age(holder.since), _left(holder), waiters, _fence(holder.fence)]


def _unheld(seen: Inspection) -> str:
    if seen.unreadable:
        return paint("unreadable", "yellow")
    return paint(f"closed for {elapsed(seen.closed_for)}", "yellow") if seen.closed_for else paint("free", dim=True)


def _left(holder: Holder) -> str:
    return f"{bar(holder.expires_in, holder.ttl)} {elapsed(holder.expires_in)}"


def _age(since: datetime | None) -> str:
    """Unknown for a client of another library, which writes the owner's key and nothing more."""
    return "-" if since is None else elapsed(max(time.time() - since.timestamp(), 0.0))


def _fence(number: int) -> str:
    """The client of another library has none."""
    return str(number) if number else "-"


def _print(seen: Inspection) -> None:
    echo(paint(printable(seen.resource), bold=True))
    for holder in seen.holders:
        echo(f"  held by    {_who(holder)}{_how(holder)}")
        echo(f"  fence      {_fence(holder.fence)}")
        echo(f"  expires in {_left(holder)} of {elapsed(holder.ttl)}")
        _list("meta", [printable(f"{key}: {_text(value)}") for key, value in sorted(holder.meta.items())])
    if not seen.holders:
        echo("  nobody holds it" if not seen.unreadable else "  nobody is known to hold it")
        if seen.fence:
            echo(f"  fence      {seen.fence}, the last that was given")
    if seen.limit:
        echo(f"  limit      {seen.limit} permits, as it was resized")
    if seen.closed_for:
        echo(paint(f"  closed     for {elapsed(seen.closed_for)}: no claim is granted before", "yellow"))
    _list("waiting", [_in_queue(*one) for one in enumerate(seen.waiters, 1)])
    _list("history", [_history(one) for one in seen.notes])
    _list("unreadable", [paint(printable(one), "yellow") for one in seen.unreadable])


def _list(what: str, lines: list[str]) -> None:
    for number, line in enumerate(lines):
        echo(f"  {what if not number else '':<10} {line}")


def _in_queue(number: int, waiter: Waiting) -> str:
    silent = "" if waiter.live else paint("  silent, and passed over", "yellow")
    return f"{number}. {_who(waiter)}{silent}"


def _who(one: Holder | Waiting) -> str:
    age = _age(one.since)
    return printable(one.owner) + (f" for {age}" if age != "-" else "")


def _how(holder: Holder) -> str:
    """The slots of a permit, or the side of a read-write lock; nothing for a plain lock."""
    if holder.mode == "permit":
        return f", slot{'s' if len(holder.slots) > 1 else ''} {', '.join(map(str, holder.slots))}"
    return "" if holder.mode == "exclusive" else f", to {holder.mode}"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _history(note: Note) -> str:
    at = note.at.isoformat(timespec="seconds")
    return printable(f"{at} {note.event} {note.owner} (fence {note.fence}) by {note.by}: {note.reason}")
