"""``leasehold advise``: which coordination fits a known case, answers in a file, or somebody who is asked."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import Any

import click

from leasehold.advice import CASES, Need, Verdict, advise
from leasehold.advice.verdict import COLUMNS
from leasehold.cli import exit_codes
from leasehold.cli.asking import ask
from leasehold.cli.exit_codes import Ended
from leasehold.cli.printable import printable
from leasehold.cli.reading import text_of
from leasehold.cli.screen import paint, say
from leasehold.errors import InvalidRequest

COLOURS = {"yes": "green", "no": "red", "only to save work": "yellow", "yes, with its fence": "green"}
NOTHING_GIVEN = "there is nobody to ask: name a --case, give --answers FILE, or run it on a terminal"


def give_advice(case: str | None, answers: str | None, as_json: bool) -> None:
    """Print the verdict."""
    try:
        need = _need(case, answers)
        verdict = advise(need)
    except InvalidRequest as error:
        raise Ended(exit_codes.USAGE, "failed", str(error)) from error
    if as_json:
        say(json.dumps({"need": need.answers(), **verdict.as_dict()}, indent=2, ensure_ascii=False))
    else:
        _tell(verdict)


def _need(case: str | None, answers: str | None) -> Need:
    if case is not None and answers is not None:
        raise click.UsageError("a --case has its answers: leave out --answers")
    if case is not None:
        try:
            return CASES[case]
        except KeyError:
            known = ", ".join(CASES)
            raise click.UsageError(f"there is no case {printable(case)!r}: it is one of {known}") from None
    if answers is not None:
        return _read(answers)
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(NOTHING_GIVEN)
    return ask()


def _read(path: str) -> Need:
    """A JSON object whose keys are the fields of a need. What is wrong with it is told with the name of the file."""
    try:
        return Need.of(_object(text_of(path)))
    except (InvalidRequest, ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise Ended(exit_codes.USAGE, "failed", f"{printable(path)}: {why}") from error


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError('answers are a JSON object, such as {"protects": "efficiency"}')  # noqa: TRY004  # of a text
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The last of two answers would win without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an answer is given twice")
    return found


# ---------------------------------------------------------------- for people


def _tell(verdict: Verdict) -> None:
    """As ``str(verdict)``, with colours where they are welcome."""
    head, *rest = str(verdict).split("\n")
    say(paint(head, bold=True))
    for line in rest:
        for part in _wrapped(line):
            say(_painted(part, verdict))


def _wrapped(line: str) -> list[str]:
    """As wide as the terminal; whoever reads us through a pipe gets whole sentences."""
    if not line.startswith("  - ") or sys.stdout is None or not sys.stdout.isatty():
        return [line]
    columns = max(shutil.get_terminal_size().columns, 40)
    return textwrap.wrap(line, columns, subsequent_indent="    ", break_on_hyphens=False)


def _painted(line: str, verdict: Verdict) -> str:
    if line in ("Why", "Heed"):
        return paint(line, bold=True)
    if line.startswith(f"  {COLUMNS['lease']} "):
        return line.removesuffix(verdict.lease) + paint(verdict.lease, COLOURS[verdict.lease])
    return line
