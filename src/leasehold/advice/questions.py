"""The questions, in the order in which they are asked: which field each fills, and what can be answered."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """One field. ``choices``: each answer and what it means; none for a length, a number or names."""

    field: str
    text: str
    choices: tuple[tuple[str | bool, str], ...] = ()
    example: str = ""


YES_NO = ((True, ""), (False, ""))

QUESTIONS = (
    Question(
        "protects",
        "If two run at once, or a stale one writes: what is harmed?",
        (
            ("efficiency", "time or money for work that is done twice"),
            ("correctness", "something is wrong afterwards: state, money, law, what cannot be undone"),
        ),
    ),
    Question(
        "work",
        "What is it?",
        (
            ("cache", "a value that can be made again"),
            ("schedule", "something that the clock starts"),
            ("task", "one job of many, from a queue or a table"),
            ("transition", "a row of a database changes its state"),
            ("section", "rows of one database are read and then written"),
            ("command", "a command or request that is to be processed once"),
            ("message", "messages of a broker"),
            ("external", "an effect outside of our database: a payment, a mail, a device"),
            ("workflow", "many steps, over hours or days"),
            ("general", "none of these: mutual exclusion in business code"),
        ),
    ),
    Question(
        "duplicates",
        "What is a duplicate?",
        (("harmless", "nobody minds"), ("costly", "wasted work, nothing worse"), ("wrong", "it must not happen")),
    ),
    Question("idempotent", "Can the effect be made idempotent, so that doing it again changes nothing?", YES_NO),
    Question("downstream_fences", "Can whatever is written to refuse a stale fence?", YES_NO),
    Question(
        "durable_state",
        "Is there durable state that can decide: a conditional update or a unique constraint of a database?",
        YES_NO,
    ),
    Question("unique", "Which columns tell one piece of the work from another?", example="such as customer, period"),
    Question("survives_failover", "Must the state of the lock survive a failover, or the loss of its store?", YES_NO),
    Question("duration", "How long can the work take?", example="such as 200ms, 5m, 3h"),
    Question("limit", "How many may run at once, for each tenant or in all?", example="such as 3"),
    Question("audit", "Is an audit trail required?", YES_NO),
    Question("regions", "Are partitions between regions expected?", YES_NO),
)
CHOICES = {one.field: tuple(value for value, _ in one.choices) for one in QUESTIONS if one.choices}


# ---------------------------------------------------------------- words
#
# Answers and lengths, as people say them.


def answer_text(value: object) -> str:
    """An answer: yes and no for what is true or not, a length with its unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value)
    return duration_text(value) if isinstance(value, float) else str(value)


def duration_text(seconds: float) -> str:
    """A stretch of time that can be typed where a duration is asked for: 250ms, 12s, 1.5s, 90m, 2h."""
    ms = round(seconds * 1000)
    if ms < 1000:
        return f"{seconds * 1000:g}ms" if ms < 1 else f"{ms}ms"
    for unit, size in (("h", 3_600_000), ("m", 60_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms / 1000:.10g}s"
