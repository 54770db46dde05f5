"""``leasehold ttl``: how long a lease should be, from what the user knows or has recorded."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from leasehold._core.durations import seconds
from leasehold.advice import Measured, measured, ttl_for
from leasehold.advice.questions import duration_text
from leasehold.advice.ttl import LONG, NETWORK, PAUSE, TtlAdvice
from leasehold.cli.arguments import duration
from leasehold.cli.output import CommandEnded, ExitCode, printable
from leasehold.cli.terminal import echo, paint, text_of
from leasehold.errors import InvalidRequest

DEFAULTS = {"pause": PAUSE, "network": NETWORK}


def print_ttl(
    recorded: str | None, kind: str | None, p999: str | None, pause: str | None, network: str | None,
    no_renew: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print the ttl and what follows from it."""
    if recorded is not None and p999 is not None:
        raise click.UsageError("--from says how long the work takes: leave out --p999")
    if kind is not None and recorded is None:
        raise click.UsageError("--kind chooses among the metrics of --from FILE")
    found = None if recorded is None else _measured(recorded, kind)
    try:
        work = _given("--p999", p999) if found is None else _work(found, no_renew)
        if work is None and no_renew:
            raise InvalidRequest("without renewal, say how long the work takes: --p999 8s, or --from FILE")
        typed = {"pause": _given("--pause", pause), "network": _given("--network", network)}
        margins = {name: DEFAULTS[name] if value is None else value for name, value in typed.items()}
        advice = ttl_for(work, renew=not no_renew, **margins)
    except InvalidRequest as error:
        raise CommandEnded(ExitCode.USAGE, "failed", str(error)) from error
    given = {"p999": work if found is None else found.p999, **margins, "samples": found and found.samples}
    assumed = [f"--{name} was not given, and counts as {duration_text(margins[name])}"
               for name, value in typed.items() if value is None]  # fmt: skip
    _show(advice, [*assumed, *(found.warnings if found is not None else ())], given if as_json else None)


def _given(option: str, text: str | None) -> float | None:
    """A bare number is seconds, as everywhere on the command line."""
    return None if text is None else seconds(duration(text), option)


def _measured(path: str, kind: str | None) -> Measured:
    try:
        return measured(text_of(path), kind)
    except InvalidRequest as error:
        raise CommandEnded(ExitCode.USAGE, "failed", f"{printable(path)}: {error}") from error


def _work(found: Measured, no_renew: bool) -> float:
    """Work beyond the last bucket takes longer than that bucket; how much longer matters only without renewal."""
    if found.p999 is not None:
        return found.p999
    if no_renew:
        raise InvalidRequest(
            f"p99.9 is over {duration_text(found.at_least)}, the last bucket, so that without renewal the ttl cannot "
            f"be known: record durations, or let the lease be renewed; over {duration_text(LONG)}, use durable "
            f"ownership (jobs)"
        )
    return math.nextafter(found.at_least, math.inf)


def _show(advice: TtlAdvice, notes: list[str], given: dict[str, Any] | None) -> None:
    """``given``: what the advice was computed from, when JSON is wanted."""
    if given is not None:
        document = advice.as_dict()
        document["warnings"] += notes
        echo(json.dumps({**document, **given}, indent=2, ensure_ascii=False))
        return
    head, *rest = str(advice).split("\n")
    echo(paint(head, bold=True))
    for line in rest:
        echo(paint(line, "yellow") if line.startswith("warning") else line)
    for line in notes:
        echo(paint(f"note        {line}", dim=True))
