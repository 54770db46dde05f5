"""``leasehold advise``: which coordination fits a known case, answers in a file, or answers at the terminal."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from leasehold.advice import CASES, Need, Verdict, advise
from leasehold.advice.questions import QUESTIONS, Question
from leasehold.advice.verdict import COLUMNS
from leasehold.cli.arguments import duration
from leasehold.cli.output import CommandEnded, ExitCode, printable
from leasehold.cli.process import signal
from leasehold.cli.terminal import echo, paint, terminal_to_ask, text_of, wrapped
from leasehold.errors import InvalidRequest

# ---------------------------------------------------------------- questions
#
# The questions are asked on standard error: standard output gets the verdict.


TRIES = 5  # for one question: then the input is not typed by a person
WORDS = {"yes": True, "y": True, "no": False, "n": False}
NOT_KNOWN = "Enter: not known"


class NoAnswer(Exception):
    """What was typed is no answer. The message says why."""


def ask() -> Need:
    """Ask every question, each until its answer agrees with those before."""
    _show('Enter is "not known", and counts as the careful answer. Ctrl-C ends it.\n')
    answers: dict[str, Any] = {}
    try:
        for number, question in enumerate(QUESTIONS, 1):
            _show(f"{number}/{len(QUESTIONS)} {question.text}")
            answers[question.field] = _answer(question, answers)
    except KeyboardInterrupt:
        _show("")
        raise CommandEnded(ExitCode.of_signal(signal.SIGINT), "interrupted", "no verdict") from None
    except EOFError:
        _show("")
        raise CommandEnded(ExitCode.USAGE, "failed", "the answers ended before the questions: no verdict") from None
    _show("")
    return Need(**answers)


def _answer(question: Question, before: dict[str, Any]) -> object:
    for number, (value, meaning) in enumerate(question.choices, 1):
        if isinstance(value, str):
            _show(f"  {number:>2}. {value:<11}  {meaning}")
    for _ in range(TRIES):
        try:
            answer = parsed(question, _line(question))
            Need(**{**before, question.field: answer})
            return answer
        except (NoAnswer, InvalidRequest) as why:
            _show(f"  {printable(str(why))}")
    raise CommandEnded(ExitCode.USAGE, "failed", f"{TRIES} answers to one question could not be used: no verdict")


def _line(question: Question) -> str:
    """The line that the user types. ``input`` would write to standard output."""
    hint = "yes, no" if question.choices and question.choices[0][0] is True else question.example
    _show(
        f"  {hint + '; ' if hint else ''}{NOT_KNOWN if question.field != 'protects' else 'it must be answered'} > ", ""
    )
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


def parsed(question: Question, typed: str) -> object:
    """The answer: a choice by its number, its name or a prefix of that; a duration; a number; names of columns."""
    if not typed:
        if question.field == "protects":
            raise NoAnswer("without this answer there is no verdict")
        return None
    if question.choices:
        return _choice(question, typed.lower())
    if question.field == "limit":
        if not (typed.isascii() and typed.isdigit() and len(typed) < 10):
            raise NoAnswer("type a number such as 3")
        return int(typed)
    if question.field == "unique":
        return tuple(part.strip() for part in typed.split(","))
    return duration(typed)


def _choice(question: Question, typed: str) -> object:
    values = [value for value, _ in question.choices]
    if True in values:
        if typed not in WORDS:
            raise NoAnswer("type yes or no")
        return WORDS[typed]
    if typed.isascii() and typed.isdigit() and 1 <= int(typed[:4]) <= len(values):
        return values[int(typed[:4]) - 1]
    matching = [value for value in values if str(value).startswith(typed)]
    if len(matching) != 1:
        raise NoAnswer(f"type one of {', '.join(map(str, values))}, or its number")
    return matching[0]


def _show(text: str, end: str = "\n") -> None:
    click.echo(text + end, err=True, nl=False)


# ---------------------------------------------------------------- the command


COLOURS = {"yes": "green", "no": "red", "only to save work": "yellow", "yes, with its fence": "green"}
NOTHING_GIVEN = "there are no answers: name a --case, give --answers FILE, or run it on a terminal"


def print_verdict(case: str | None, answers: str | None, as_json: bool) -> None:
    """Print the verdict."""
    try:
        need = _need(case, answers)
        verdict = advise(need)
    except InvalidRequest as error:
        raise CommandEnded(ExitCode.USAGE, "failed", str(error)) from error
    if as_json:
        echo(json.dumps({"need": need.answers(), **verdict.as_dict()}, indent=2, ensure_ascii=False))
    else:
        _print(verdict)


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
    if not terminal_to_ask():
        raise click.UsageError(NOTHING_GIVEN)
    return ask()


def _read(path: str) -> Need:
    """A JSON object whose keys are the fields of a need. An error names the file."""
    try:
        return Need.of(_object(text_of(path)))
    except (InvalidRequest, ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise CommandEnded(ExitCode.USAGE, "failed", f"{printable(path)}: {why}") from error


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError('answers are a JSON object, such as {"protects": "efficiency"}')  # noqa: TRY004  # of a text
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is given twice: without this, the last one would silently win."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an answer is given twice")
    return found


# ---------------------------------------------------------------- for people


def _print(verdict: Verdict) -> None:
    """As ``str(verdict)``, with colours on a terminal."""
    head, *rest = str(verdict).split("\n")
    echo(paint(head, bold=True))
    for line in rest:
        for part in wrapped(line, "    ") if line.startswith("  - ") else [line]:
            echo(_painted(part, verdict))


def _painted(line: str, verdict: Verdict) -> str:
    if line in ("Why", "Warnings"):
        return paint(line, bold=True)
    if line.startswith(f"  {COLUMNS['lease']} "):
        return line.removesuffix(verdict.lease) + paint(verdict.lease, COLOURS[verdict.lease])
    return line
