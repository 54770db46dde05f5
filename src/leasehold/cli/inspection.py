"""``leasehold inspect``: one resource as the store has it, as text for people and JSON for programs."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from leasehold.cli.coordinator import failed, open_hold, place_of
from leasehold.cli.log_names import check_digits, found_by_hash, id_hash, no_pattern, parsed
from leasehold.cli.output import CommandEnded, ExitCode, printable
from leasehold.cli.terminal import bar, echo, elapsed, json_fields, paint, warn, wrapped
from leasehold.coordinator import Leasehold
from leasehold.errors import LeaseholdError
from leasehold.primitives.inspection import Holder, Inspection, Note, Waiting

INDENT = " " * 13  # of what follows a label


def inspect(url: str | None, namespace: str | None, name: str, as_json: bool) -> None:
    """Print one resource: by its name, or as messages name it, ``report-export#2cfe7600489b``."""
    named = parsed(name)
    if named is not None:
        kind, digits = named
        inspect_hash(url, namespace, digits, as_json, kind)
        return
    try:
        with open_hold(url, namespace) as hold:
            found, where = hold.inspect(name), place_of(hold, url)
    except LeaseholdError as error:
        raise failed(error) from error
    if as_json:
        echo(json.dumps(located(hold, found), indent=2))
    else:
        _print(found, where)
        if not found.held and (hint := no_pattern(name)):
            warn(f"nobody holds {name}{hint}")
    _end_if_free([found])


def inspect_hash(url: str | None, namespace: str | None, digits: str, as_json: bool, kind: str = "") -> None:
    """Print the resources whose ids have this hash in the log."""
    try:
        check_digits(digits)
        with open_hold(url, namespace) as hold:
            where = place_of(hold, url)
            found = found_by_hash(hold, where, digits, kind)
    except LeaseholdError as error:
        raise failed(error) from error
    if as_json:
        for one in found:
            echo(json.dumps(located(hold, one), indent=2))
    else:
        for one in found:
            _print(one, where)
    _end_if_free(found)


def _end_if_free(found: list[Inspection]) -> None:
    """A resource that nobody holds has an exit code of its own; several that share a hash, if all are free."""
    if not any(one.held or one.closed_for or one.unreadable for one in found):
        raise CommandEnded(ExitCode.NO)  # what was printed says it


def in_use(seen: Inspection) -> bool:
    """Whether ``ls`` and ``top`` show it without --all. What is free, and nobody waits for, is listed by stores only
    for its history, which they keep for weeks."""
    return bool(seen.held or seen.waiters or seen.closed_for or seen.unreadable)


def located(hold: Leasehold, seen: Inspection) -> dict[str, Any]:
    """The document of a resource, with where it is and how logs name it."""
    return {**document(seen), "id_hash": id_hash(hold, seen), "store": hold.store, "namespace": hold.namespace}


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


def row(seen: Inspection, with_bar: bool = True) -> list[str]:
    """One line of ``leasehold ls``: resource, holder, age, what is left, waiters, fence."""
    name, holder = printable(seen.resource), seen.holder
    waiters = str(len(seen.waiters)) if seen.waiters else "-"
    if holder is None:
        return [name, _unheld(seen), "-", "-", waiters, _fence(seen.fence)]
    more = f" and {len(seen.holders) - 1} more" if len(seen.holders) > 1 else ""
    if seen.unreadable:
        more += paint(" and unreadable", "yellow")
    left = _left(holder) if with_bar else elapsed(holder.expires_in)
    return [name, printable(holder.owner) + more, _age(holder.since), left, waiters, _fence(holder.fence)]


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


def _print(seen: Inspection, where: str) -> None:
    echo(paint(printable(seen.resource), bold=True))
    print_lines("store", [printable(where)])
    for holder in seen.holders:
        print_holder(holder)
    if not seen.holders:
        echo("  nobody holds it" if not seen.unreadable else "  nobody is known to hold it")
        if seen.fence:
            echo(f"  fence      {seen.fence}, the last that was given")
    if seen.limit:
        echo(f"  limit      {seen.limit} permits, as it was resized")
    if seen.closed_for:
        echo(paint(f"  closed     for {elapsed(seen.closed_for)}: no claim is granted before", "yellow"))
    print_lines("waiting", [_in_queue(*one) for one in enumerate(seen.waiters, 1)])
    print_lines("history", [history_of(one) for one in seen.notes])
    print_lines("unreadable", [paint(printable(one), "yellow") for one in seen.unreadable])


def print_holder(holder: Holder) -> None:
    """Who holds, with which fence, for how long, and what it says about itself."""
    echo(f"  held by    {_who(holder)}{_how(holder)}")
    echo(f"  fence      {_fence(holder.fence)}")
    echo(f"  expires in {_left(holder)} of {elapsed(holder.ttl)}")
    print_lines("meta", [printable(f"{key}: {meta_text(value)}") for key, value in sorted(holder.meta.items())])


def print_lines(what: str, lines: list[str]) -> None:
    """Lines that belong together, the first with its label; what is too long for the terminal goes on below it."""
    for number, line in enumerate(lines):
        for part in wrapped(f"  {what if not number else '':<10} {line}", INDENT):
            echo(part)


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


def meta_text(value: object) -> str:
    """As a program would write it into JSON."""
    return json.dumps(value, ensure_ascii=False)


def history_of(note: Note) -> str:
    """When something was done to which holder, by whom and why."""
    at, why = note.at.isoformat(timespec="seconds"), f": {note.reason}" if note.reason else ""
    return printable(f"{at} {note.event} {note.owner} (fence {note.fence}) by {note.by}{why}")
