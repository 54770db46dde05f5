"""``leasehold audit``: what operators did, on all resources, newest first."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from leasehold._core.durations import seconds
from leasehold.cli.coordinator import failed, open_hold, place_of
from leasehold.cli.log_names import resource_of
from leasehold.cli.output import printable
from leasehold.cli.terminal import echo, elapsed, fits, json_fields, paint, table_lines, warn, wrapped
from leasehold.coordinator import Leasehold
from leasehold.errors import InvalidRequest, LeaseholdError
from leasehold.primitives.inspection import Inspection, Note

HEADS = ["AT", "RESOURCE", "WHAT", "OWNER", "FENCE", "LEFT", "BY", "REASON"]
MOST_SECONDS = 3650 * 86400  # ten years: notes are kept for 30 days


class Entry(NamedTuple):
    """One note, and the resource that it is kept with."""

    resource: str
    note: Note


def audit(url: str | None, namespace: str | None, as_json: bool, name: str, since: str | None, limit: int) -> None:
    """Print the notes of one resource, or of all that match."""
    try:
        begin = None if since is None else moment(since)
        with open_hold(url, namespace) as hold:
            where = printable(place_of(hold, url))
            found = _resources(hold, where, name)
    except LeaseholdError as error:
        raise failed(error) from error
    notes = [Entry(one.resource, note) for one in found for note in reversed(one.notes)]
    entries = sorted([one for one in notes if begin is None or one.note.at >= begin], key=_newest_first)
    for one in found:  # what cannot be read is no sign that nothing was done
        for why in one.unreadable:
            warn(f"unreadable, of {one.resource}: {why}")
    if as_json:
        echo(json.dumps([_document(one) for one in entries[:limit]], indent=2))
        return
    if not entries:
        to = "" if name == "*" else f" to {printable(name)}"
        since_when = "" if since is None else f" (--since {printable(since)})"
        echo(f"No operator did anything{to} that is recorded in {where}{since_when}.")
        return
    echo(paint(f"In {where}:", dim=True))
    lines = table_lines(HEADS, [_row(one) for one in entries[:limit]])
    for line in lines if fits(lines) else [line for one in entries[:limit] for line in _paragraph(one)]:
        echo(line)
    if len(entries) > limit:
        echo(paint(f"... and {len(entries) - limit} older: --limit shows more", dim=True))


def _resources(hold: Leasehold, where: str, name: str) -> list[Inspection]:
    """What the name means: one resource, or a pattern."""
    return list(hold.scan(name)) if set("*?") & set(name) else [hold.inspect(resource_of(hold, where, name))]


def moment(text: str) -> datetime:
    """The time of ``--since``: a length of time before now, or a time, which is local unless it names a zone."""
    try:
        ago = seconds(text, "--since")
    except InvalidRequest:
        return _past(text)
    return datetime.now(UTC) - timedelta(seconds=min(ago, MOST_SECONDS))


def _past(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        why = "--since is a length of time such as 2h, or a time such as 2026-11-17T03:00"
        raise InvalidRequest(f"{why}, not {text[:40]!r}") from None
    if found > datetime.now(UTC):
        raise InvalidRequest(f"--since {text} is in the future: nothing was done since then")
    return found


def _newest_first(entry: Entry) -> tuple[float, str]:
    return -entry.note.at.timestamp(), entry.resource


def _document(entry: Entry) -> dict[str, Any]:
    return {"resource": entry.resource, **json_fields(entry.note)}


def _row(entry: Entry) -> list[str]:
    note = entry.note
    left = "-" if note.remaining is None else elapsed(note.remaining)
    texts = [entry.resource, note.event, note.owner, str(note.fence), left, note.by, note.reason or "-"]
    return [_at(note), *[printable(text) for text in texts]]


def _paragraph(entry: Entry) -> list[str]:
    """The same for a terminal that is too narrow for the table: no name is broken in its middle."""
    note = entry.note
    left = "" if note.remaining is None else f", {elapsed(note.remaining)} left"
    texts = [f"{note.event} {note.owner} (fence {note.fence}{left}) by {note.by}", note.reason]
    below = [line for text in texts if text for line in wrapped(f"  {printable(text)}", "  ")]
    at, name = _at(note), paint(printable(entry.resource), bold=True)
    head = [f"{at}  {name}"]
    return [*(head if fits(head) else [at, name]), *below]


def _at(note: Note) -> str:
    return note.at.astimezone().isoformat(sep=" ", timespec="seconds")
