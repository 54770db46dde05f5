"""The questions of ``leasehold advise``, asked on standard error: what standard output gets is the verdict."""

from __future__ import annotations

import sys
from typing import Any

import click

from leasehold.advice.need import Need
from leasehold.advice.questions import QUESTIONS, Question
from leasehold.cli import exit_codes
from leasehold.cli.arguments import duration
from leasehold.cli.exit_codes import Ended
from leasehold.cli.printable import printable
from leasehold.cli.signals import signal
from leasehold.errors import InvalidRequest

TRIES = 5  # for one question: then somebody else is typing than we think
WORDS = {"yes": True, "y": True, "no": False, "n": False}
NOT_KNOWN = "Enter: not known"


class NoAnswer(Exception):
    """This is none, and why."""


def ask() -> Need:
    """Every question once, until there is an answer that goes with those before."""
    _show('Enter is "not known", and counts as the careful answer. Ctrl-C ends it.\n')
    answers: dict[str, Any] = {}
    try:
        for number, question in enumerate(QUESTIONS, 1):
            _show(f"{number}/{len(QUESTIONS)} {question.text}")
            answers[question.field] = _answer(question, answers)
    except KeyboardInterrupt:
        _show("")
        raise Ended(exit_codes.of_signal(signal.SIGINT), "interrupted", "no verdict") from None
    except EOFError:
        _show("")
        raise Ended(exit_codes.USAGE, "failed", "the answers ended before the questions: no verdict") from None
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
    raise Ended(exit_codes.USAGE, "failed", f"{TRIES} answers to one question could not be used: no verdict")


def _line(question: Question) -> str:
    """What somebody types. ``input`` would write to standard output."""
    hint = "yes, no" if question.choices and question.choices[0][0] is True else question.example
    _show(
        f"  {hint + '; ' if hint else ''}{NOT_KNOWN if question.field != 'protects' else 'it must be answered'} > ", ""
    )
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()


def parsed(question: Question, typed: str) -> object:
    """The answer: a choice by its number, its name or how that begins; a length; a number; names of columns."""
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
    begun = [value for value in values if str(value).startswith(typed)]
    if len(begun) != 1:
        raise NoAnswer(f"type one of {', '.join(map(str, values))}, or its number")
    return begun[0]


def _show(text: str, end: str = "\n") -> None:
    click.echo(text + end, err=True, nl=False)
