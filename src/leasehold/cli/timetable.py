"""``leasehold cron --history`` and ``--next``: how it went, and when it will be."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from leasehold.cli.arguments import Timetable
from leasehold.cli.naming import parse_name
from leasehold.cli.opening import failed, open_hold
from leasehold.cli.printable import printable
from leasehold.cli.screen import lasting, paint, say, table
from leasehold.errors import InvalidRequest, LeaseholdError
from leasehold.patterns.cron.history import history
from leasehold.patterns.cron.schedule import Schedule
from leasehold.patterns.cron.state import DIED, ERROR, KEPT, LOST, MISSED, OK, RUNNING, SKIPPED, Run
from leasehold.patterns.flavour import finish

HEADS = ["TICK", "OUTCOME", "STARTED", "LASTED", "BY", "WHAT"]
COLOURS = {OK: "green", RUNNING: "cyan", ERROR: "red", LOST: "red", DIED: "red", MISSED: "yellow", SKIPPED: "yellow"}
MOST = 1000


def answer(request: Timetable) -> int:
    """What was asked; the exit code."""
    try:
        if request.history:
            _history(request)
        else:
            _upcoming(request)
    except LeaseholdError as error:
        raise failed(error) from error
    return 0


def _history(request: Timetable) -> None:
    if not 0 < (request.limit or 0) <= KEPT:
        raise InvalidRequest(f"--limit is a number from 1 to {KEPT}: no more runs are kept")
    namespace, kind, ids = parse_name(request.name, request.namespace)
    with open_hold(request.url, namespace) as hold:
        runs = finish(history(hold._flavour, hold._shelf, hold.lock(kind, *ids), request.limit or 0))
    if request.as_json:
        say(json.dumps([_document(run) for run in runs], indent=2))
    elif runs:
        table(HEADS, [_row(run) for run in runs])
    else:
        say(f"Nothing is known of a cron {printable(request.name)}.")


def _upcoming(request: Timetable) -> None:
    if not 0 < (request.upcoming or 0) <= MOST:
        raise InvalidRequest(f"--next is a number from 1 to {MOST}")
    schedule, moment, ticks = Schedule(request.expression, request.timezone), time.time(), []
    for _ in range(request.upcoming or 0):
        moment = schedule.after(moment)
        ticks.append(schedule.moment(moment))
    if request.as_json:
        say(json.dumps([tick.isoformat() for tick in ticks], indent=2))
    else:
        for tick in ticks:
            say(f"{tick:%a %Y-%m-%d %H:%M:%S} {tick.tzname()}")


def _document(run: Run) -> dict[str, Any]:
    """For programs: keys that stay, times in ISO 8601."""
    fields: dict[str, Any] = run._asdict()
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in fields.items()}


def _row(run: Run) -> list[str]:
    started = "-" if run.started is None else f"{run.started:%H:%M:%S}"
    known = run.started is not None and run.ended is not None
    lasted = lasting((run.ended - run.started).total_seconds()) if known else "-"  # type: ignore[operator]  # both are
    tick = f"{run.tick:%Y-%m-%d %H:%M:%S} {run.tick.tzname()}"
    outcome = paint(printable(run.outcome), COLOURS.get(run.outcome))
    return [tick, outcome, started, lasted, printable(run.by) or "-", _what(run)]


def _what(run: Run) -> str:
    if run.until is None:
        return printable(run.error)
    many = "more than 1000" if run.ticks is None else str(run.ticks)
    return f"{many} ticks, until {run.until:%Y-%m-%d %H:%M:%S}"
