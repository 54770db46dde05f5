"""``leasehold ttl``: how long a lease should be, from what you know or have recorded."""

from __future__ import annotations

import json
from typing import Any

import click

from leasehold.advice import Measured, measured, ttl_for
from leasehold.advice.ttl import NETWORK, PAUSE, TtlAdvice
from leasehold.advice.words import length
from leasehold.cli import codes
from leasehold.cli.arguments import duration
from leasehold.cli.codes import Ended
from leasehold.cli.opening import failed
from leasehold.cli.printable import printable
from leasehold.cli.reading import text_of
from leasehold.cli.screen import paint, say
from leasehold.core.durations import seconds
from leasehold.errors import InvalidRequest


def give_ttl(
    recorded: str | None, kind: str | None, p999: str | None, pause: str | None, network: str | None,
    no_renew: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print it."""
    if recorded is not None and p999 is not None:
        raise click.UsageError("--from says how long the work takes: leave out --p999")
    if kind is not None and recorded is None:
        raise click.UsageError("--kind chooses among the metrics of --from FILE")
    found = None if recorded is None else _measured(recorded, kind)
    try:
        lengths = {"pause": PAUSE if pause is None else seconds(duration(pause), "--pause"),
                   "network": NETWORK if network is None else seconds(duration(network), "--network")}  # fmt: skip
        work = found.p999 if found is not None else None if p999 is None else seconds(duration(p999), "--p999")
        if no_renew and work is None:
            raise InvalidRequest(_cannot_know(found))
        advice = ttl_for(work, renew=not no_renew, **lengths)
    except InvalidRequest as error:
        raise failed(error) from error
    assumed = [f"--{name} was not said, and counts as {length(lengths[name])}"
               for name, said in (("pause", pause), ("network", network)) if said is None]  # fmt: skip
    more = [*assumed, *(found.warnings if found is not None else ())]
    if as_json:
        say(json.dumps(_document(advice, work, lengths, found, more), indent=2, ensure_ascii=False))
    else:
        _tell(advice, more)


def _measured(path: str, kind: str | None) -> Measured:
    try:
        return measured(text_of(path), kind)
    except InvalidRequest as error:
        raise Ended(codes.USAGE, "failed", f"{printable(path)}: {error}") from error


def _cannot_know(found: Measured | None) -> str:
    if found is None:
        return "without renewal, say how long the work takes: --p999 8s, or --from FILE"
    return (
        f"p99.9 is over {length(found.at_least)}, the last bucket, so that without renewal nobody can know the ttl: "
        "record durations, or let the lease be renewed"
    )


def _document(
    advice: TtlAdvice, work: float | None, lengths: dict[str, float], found: Measured | None, more: list[str]
) -> dict[str, Any]:
    document = advice.as_dict()
    samples = None if found is None else found.samples
    return {**document, "warnings": [*document["warnings"], *more], "p999": work, **lengths, "samples": samples}


def _tell(advice: TtlAdvice, more: list[str]) -> None:
    head, *rest = str(advice).split("\n")
    say(paint(head, bold=True))
    for line in rest:
        say(paint(line, "yellow") if line.startswith("heed") else line)
    for line in more:
        say(paint(f"note        {line}", dim=True))
